# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the kernel tells of this boot and of single processes (proc(5))."""

from __future__ import annotations

import errno
import os
from pathlib import Path

PROC = Path("/proc")
BOOT_ID = PROC / "sys/kernel/random/boot_id"


def boot_id() -> str:
    """Return what tells this boot of the host from all others."""
    return BOOT_ID.read_text().strip()


def parent_pid(pid: int) -> int:
    """Return the parent of a process, 0 where it is in another PID namespace; raises :class:`OSError`."""
    return int(_stat(pid)[1])


def process_start_time(pid: int) -> str:
    """Return when a process started, in ticks since the boot; a process in a container has the same time there.

    Raises :class:`ProcessLookupError` or :class:`FileNotFoundError` where there is none, or a dead one that nobody has
    collected, and :class:`PermissionError` where another user's processes are hidden.
    """
    try:
        fields = _stat(pid)
    except FileNotFoundError:
        # Under the mount option hidepid this tells what is hidden from what is not there.
        os.kill(pid, 0)
        raise
    if fields[0] in ("Z", "X"):
        raise ProcessLookupError(errno.ESRCH, os.strerror(errno.ESRCH))
    return fields[19]


def process_environment(pid: int) -> dict[str, str]:
    """Return the environment with which a process began; empty where it cannot be read."""
    try:
        variables = (PROC / str(pid) / "environ").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return {}
    return dict(one.partition("=")[::2] for one in variables)


def _stat(pid: int) -> list[str]:
    """Return the fields of ``stat`` from the third on; the second is the program's name, which may hold anything."""
    return (PROC / str(pid) / "stat").read_bytes().rpartition(b")")[2].decode().split()
