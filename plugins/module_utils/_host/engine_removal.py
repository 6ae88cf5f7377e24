# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Removes what a Docker engine that goes would leave: its rules, its bridges and its data.

Rules of others in the same tables stay.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
from collections.abc import Collection, Sequence
from pathlib import Path

from .engine_settings import DATA_ROOT
from .files import remove_path
from .installation import read_tables, run_checked

UNITS = ("docker.socket", "docker.service", "containerd.service")
FILES = ("/etc/docker/key.json", "/run/docker.sock")
EMPTY_FOLDERS = ("/etc/docker", "/etc/cni/net.d", "/etc/cni")
FOLDERS = (DATA_ROOT, "/var/lib/containerd", "/run/docker", "/run/containerd")

# What engines make in the folder of their data.
DATA = (
    *("aufs", "btrfs", "devicemapper", "fuse-overlayfs", "overlay", "overlay2", "vfs", "zfs", "rootfs"),
    *("builder", "buildkit", "containerd", "containers", "image", "network", "plugins", "runtimes", "swarm"),
    *("tmp", "trust", "volumes", "engine-id", "nuke-graph-directory.sh"),
)

# The bridges of the engine: the first one, those of swarms, and those of networks without a name of their own.
_BRIDGE = r"docker0|docker_gwbridge|br-[0-9a-f]{12}"
# Of the engine: its chains, rules that jump to them, and rules about its bridges.
_OWN = re.compile(rf"^:DOCKER|^-A DOCKER|-j DOCKER|(?<=[io] )(?:{_BRIDGE})(?= )")
_FAMILIES = {"ip": "iptables", "ip6": "ip6tables"}


def without_engine(saved: str, *, allow_forward: bool) -> str:
    """Return a listing of ``iptables-save`` without what the engine has added.

    With ``allow_forward`` packets that are forwarded are accepted, as at boot: the engine lets them be dropped.
    """
    lines = [line for line in saved.splitlines() if not _OWN.search(line)]
    if allow_forward:
        lines = [re.sub("^:FORWARD DROP", ":FORWARD ACCEPT", line) for line in lines]
    return "".join(f"{line}\n" for line in lines)


def emptied(saved: str) -> list[str]:
    """Return the tables of a listing that have nothing but empty chains of the kernel that accept packets."""
    tables = []
    for name, lines in re.findall(r"^\*(\S+)\n(.*?)^COMMIT$", saved, re.MULTILINE | re.DOTALL):
        kept = [line for line in lines.splitlines() if not re.match(r"#|:[A-Z]+ ACCEPT ", line)]
        if not kept:
            tables.append(name)
    return tables


def find_others(folder: str) -> list[str]:
    """Return the names of files of others in the folder of an engine's data; in the usual one, all is the engine's."""
    path = Path(folder)
    if not folder or not path.is_dir() or path.resolve().is_relative_to(Path(DATA_ROOT).resolve()):
        return []
    return sorted(entry.name for entry in path.iterdir() if entry.name not in {*DATA, "lost+found"})


def clear_engine(tables_before: Collection[str], data_root: str = "") -> None:
    """Stop the engine; remove its rules, its bridges and its data, and tables that then are empty and not of before.

    Data in a folder where others have files as well stays.

    Raises :class:`subprocess.CalledProcessError`.
    """
    for unit in UNITS:
        subprocess.run(["systemctl", "stop", unit], check=False, capture_output=True)
    for family, program in _FAMILIES.items():
        if shutil.which(f"{program}-save") is None:
            continue
        saved = run_checked([f"{program}-save"])
        # In a table of before, the policy may be the operator's.
        cleared = without_engine(saved, allow_forward=f"{family} filter" not in tables_before)
        if cleared != saved:
            run_checked([f"{program}-restore"], text=cleared)
        _delete([f"{family} {name}" for name in emptied(run_checked([f"{program}-save"]))], tables_before)
    # Of an engine whose rules are not those of iptables.
    _delete(["ip docker-bridges", "ip6 docker-bridges"], tables_before)
    for link in os.listdir("/sys/class/net"):
        if re.fullmatch(_BRIDGE, link):
            run_checked(["ip", "link", "delete", link])
    _remove_files(data_root)


def _delete(tables: Sequence[str], tables_before: Collection[str]) -> None:
    present = read_tables()
    for table in tables:
        if table in present and table not in tables_before:
            run_checked(["nft", "delete", "table", *table.split()])


def _remove_files(data_root: str) -> None:
    """Remove the data of the engine. A folder that is a mount point is emptied."""
    for path in map(Path, FILES):
        path.unlink(missing_ok=True)
    for path in map(Path, EMPTY_FOLDERS):
        # It stays if an operator has written a configuration.
        with contextlib.suppress(OSError):
            path.rmdir()
    own_root = [data_root] if data_root and not find_others(data_root) else []
    for folder in map(Path, (*own_root, *FOLDERS)):
        if folder.is_dir():
            for path in folder.iterdir():
                if path.name != "lost+found":
                    remove_path(path)
            with contextlib.suppress(OSError):
                folder.rmdir()
