# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What SELinux keeps from containers and from HAProxy, and the commands that open it. Nothing here changes a label."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

KERNEL = Path("/sys/fs/selinux")

# The switches of Fedora's policy by the type of a file system, and the types that containers may use in any case.
_SWITCHES = {"nfs_t": "virt_use_nfs", "cifs_t": "virt_use_samba", "cephfs_t": "container_use_cephfs"}
_OPEN = ("container_file_t", "fusefs_t")
_READABLE = (*_OPEN, "container_ro_file_t")


def is_enforced(kernel: Path = KERNEL) -> bool:
    """Return whether SELinux forbids what its policy does not allow."""
    return _read(kernel / "enforce") == "1"


def has_switch(switch: str, kernel: Path = KERNEL) -> bool:
    """Return whether the policy has a switch (boolean)."""
    return (kernel / "booleans" / switch).exists()


def is_off(switch: str, kernel: Path = KERNEL) -> bool:
    """Return whether the policy has a switch (boolean) that is off."""
    return _read(kernel / "booleans" / switch).startswith("0")


def find_opening(path: str, label: str, *, read_only: bool, kernel: Path = KERNEL) -> str:
    """Return the commands that open a folder with this label to containers; empty if it is open to them."""
    _user, _role, type_, level = [*label.split(":", 3), "", "", "", ""][:4]
    if type_ in _SWITCHES:
        return f"setsebool -P {_SWITCHES[type_]} 1" if is_off(_SWITCHES[type_], kernel) else ""
    # A level with categories is that of one container.
    if not label or (type_ in (_READABLE if read_only else _OPEN) and level in ("", "s0")):
        return ""
    # semanage takes no spaces; and of a folder behind another one (semanage fcontext -a -e) only the other's path.
    rule = re.sub(r"\s", r"\\s", re.sub(r"([^\w/\s-])", r"\\\1", path))
    return (
        f"semanage fcontext -a -t container_file_t {shlex.quote(f'{rule}(/.*)?')} && restorecon -RF {shlex.quote(path)}"
        " (if semanage says to try another path, add that one)"
    )


def _read(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""
