# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The resource limits of containers: the desired ones, lowered to what the agent's engine can set.

They are set by a child of containerd. Without CAP_SYS_RESOURCE it cannot exceed its own hard limits, and a container
with higher limits fails to start. The limits of dockerd have no effect.

A limit that is not set here is that of ``default-ulimits`` of the engine. Some count what all processes of a user id
have on the host: sessions of one user id would share it. Each container has a limit of processes of its own.
"""

from __future__ import annotations

import socket
import struct
from pathlib import Path

NOFILE, MEMLOCK, CORE, NPROC = "nofile", "memlock", "core", "nproc"
SIGPENDING, MSGQUEUE = "sigpending", "msgqueue"
# The number of open files, of bytes locked in memory, and of bytes of a core dump per process, and of processes of a
# user id; -1 is no limit.
DESIRED = {NOFILE: 1 << 20, MEMLOCK: -1, CORE: 0, NPROC: -1}
# The pending signals, and the bytes of message queues, of a user id: they bound memory of the kernel, and stay as the
# host has them.
OF_HOST = (SIGPENDING, MSGQUEUE)

# The sockets of containerd: an instance started by dockerd takes precedence over that of the host.
SOCKETS = ("run/docker/containerd/containerd.sock", "run/containerd/containerd.sock")

_LINES = {
    NOFILE: "Max open files",
    MEMLOCK: "Max locked memory",
    CORE: "Max core file size",
    NPROC: "Max processes",
    SIGPENDING: "Max pending signals",
    MSGQUEUE: "Max msgqueue size",
}
_CAP_SYS_RESOURCE = 1 << 24
# The uid map of the initial user namespace: CAP_SYS_RESOURCE raises limits only there.
_WHOLE_HOST = ["0", "0", "4294967295"]


def read_limits(root: Path = Path("/")) -> dict[str, int]:
    """Return the limits of containers on the host below ``root``, by the engine's names.

    They apply as soft and hard limits. Without a running containerd the result is empty: the engine's defaults apply.
    """
    pids = [pid for pid in (_find_listener(root / path) for path in SOCKETS) if pid]
    if not pids:
        return {}
    process = root / "proc" / str(pids[0])
    limits, status, uid_map = ((process / name).read_text() for name in ("limits", "status", "uid_map"))
    return effective_limits(limits, status, uid_map, int((root / "proc/sys/fs/nr_open").read_text()))


def effective_limits(limits: str, status: str, uid_map: str, nr_open: int) -> dict[str, int]:
    """Return the limits that a process can set for its children, from its files in ``/proc``.

    ``nr_open`` is the kernel's upper bound of open files: ``fs.nr_open``.
    """
    hard = {name: _hard_limit(limits, title) for name, title in _LINES.items()}
    of_host = {name: hard[name] for name in OF_HOST}
    if _can_raise_limits(status, uid_map):
        return {**DESIRED, NOFILE: min(DESIRED[NOFILE], nr_open), **of_host}
    return {**{name: _lower_limit(desired, hard[name]) for name, desired in DESIRED.items()}, **of_host}


def _lower_limit(first: int, second: int) -> int:
    limited = [limit for limit in (first, second) if limit >= 0]
    return min(limited, default=-1)


def _hard_limit(limits: str, title: str) -> int:
    (line,) = (line for line in limits.splitlines() if line.startswith(title))
    hard = line.split()[-2]
    return -1 if hard == "unlimited" else int(hard)


def _can_raise_limits(status: str, uid_map: str) -> bool:
    """Return whether children of a root process may raise limits: they get the capabilities of its bounding set."""
    (bounding,) = (line.split()[1] for line in status.splitlines() if line.startswith("CapBnd:"))
    return bool(int(bounding, 16) & _CAP_SYS_RESOURCE) and uid_map.split() == _WHOLE_HOST


def _find_listener(path: Path) -> int | None:
    """Return the process that listens on a Unix socket; ``None`` if none does."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        try:
            connection.connect(str(path))
        except OSError:
            return None
        credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    return int(struct.unpack("3i", credentials)[0])
