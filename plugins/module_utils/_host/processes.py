# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Read the boot id and properties of processes from proc(5), and start processes that outlive their parent."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Callable, Collection, Iterator
from pathlib import Path

PROC = Path("/proc")
BOOT_ID = PROC / "sys/kernel/random/boot_id"


def boot_id() -> str:
    """Return the unique id of this boot of the host."""
    return BOOT_ID.read_text().strip()


def parent_pid(pid: int) -> int:
    """Return the parent of a process, 0 if that is in another PID namespace; raises :class:`OSError`."""
    return int(_read_stat(pid)[1])


def process_start_time(pid: int) -> str:
    """Return the start time of a process in ticks since boot; it is the same inside and outside a container.

    Raises :class:`ProcessLookupError` or :class:`FileNotFoundError` if the process does not exist or is a zombie, and
    :class:`PermissionError` if processes of other users are hidden.
    """
    try:
        fields = _read_stat(pid)
    except FileNotFoundError:
        # With the mount option hidepid this distinguishes hidden processes (PermissionError) from missing ones.
        os.kill(pid, 0)
        raise
    if fields[0] in ("Z", "X"):
        raise ProcessLookupError(errno.ESRCH, os.strerror(errno.ESRCH))
    return fields[19]


def runs(pid: int) -> bool:
    """Return whether a process exists, and is no zombie."""
    try:
        process_start_time(pid)
    except (ProcessLookupError, FileNotFoundError):
        return False
    return True


def process_environment(pid: int) -> dict[str, str]:
    """Return the initial environment of a process; empty if it cannot be read."""
    try:
        variables = (PROC / str(pid) / "environ").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return {}
    return dict(variable.partition("=")[::2] for variable in variables)


def open_sockets(programs: Collection[str]) -> set[str]:
    """Return the inodes of all sockets that processes of these programs, by their names, hold open."""
    inodes = set()
    for folder in PROC.glob("[0-9]*"):
        # Processes end, and close files, at any time.
        with contextlib.suppress(OSError):
            if (folder / "comm").read_text().strip() in programs:
                inodes |= {*_socket_inodes(folder)}
    return inodes


def socket_programs() -> dict[str, str]:
    """Return the name of a program that holds each open socket, by its inode.

    systemd is named only where no other program does: it also holds the sockets of services that it starts.
    """
    programs: dict[str, str] = {}
    for folder in PROC.glob("[0-9]*"):
        # Processes end, and close files, at any time.
        with contextlib.suppress(OSError):
            # A program may give itself any name.
            program = ascii((folder / "comm").read_text(errors="replace").strip())[1:-1]
            for inode in _socket_inodes(folder):
                if programs.get(inode, _SYSTEMD) == _SYSTEMD:
                    programs[inode] = program
    return programs


_SYSTEMD = "systemd"


def _socket_inodes(process: Path) -> Iterator[str]:
    for link in (process / "fd").iterdir():
        with contextlib.suppress(OSError):
            kind, _colon, inode = os.readlink(link).partition(":")
            if kind == "socket":
                yield inode[1:-1]


def _read_stat(pid: int) -> list[str]:
    """Return the fields of ``stat`` from the third on; the second is the program's name and may contain blanks."""
    return (PROC / str(pid) / "stat").read_bytes().rpartition(b")")[2].decode().split()


def daemonize(action: Callable[[], None], keep: int) -> None:
    """Run a function in a detached process that keeps no descriptor open except ``keep``.

    It does not delay callers that wait for this process to exit or for its output to close. Its errors are lost, and
    it must not import modules from a directory that is removed when this process exits.
    """
    child = os.fork()
    if child:
        os.waitpid(child, 0)
        return
    try:
        os.setsid()
        if os.fork() == 0:
            keep_descriptors({keep})
            os.umask(0o077)
            action()
    finally:
        # Neither the child nor the grandchild returns to the caller.
        os._exit(0)


def keep_descriptors(kept: Collection[int]) -> None:
    """Close what a copy of a process has open, but for these descriptors, and leave its folder."""
    os.chdir("/")
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in range(3):
        os.dup2(null, descriptor)
    for descriptor in map(int, os.listdir("/proc/self/fd")):
        if descriptor > 2 and descriptor not in kept:
            with contextlib.suppress(OSError):
                os.close(descriptor)
