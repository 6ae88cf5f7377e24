# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the kernel tells of this boot and of single processes (proc(5)), and processes that outlive their parent."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

PROC = Path("/proc")
BOOT_ID = PROC / "sys/kernel/random/boot_id"


def boot_id() -> str:
    """Return what tells this boot of the host from all others."""
    return BOOT_ID.read_text().strip()


def parent_pid(pid: int) -> int:
    """Return the parent of a process, 0 where it is in another PID namespace; raises :class:`OSError`."""
    return int(_read_stat(pid)[1])


def process_start_time(pid: int) -> str:
    """Return when a process started, in ticks since the boot; a process in a container has the same time there.

    Raises :class:`ProcessLookupError` or :class:`FileNotFoundError` where there is none, or a dead one that nobody has
    collected, and :class:`PermissionError` where another user's processes are hidden.
    """
    try:
        fields = _read_stat(pid)
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
    return dict(variable.partition("=")[::2] for variable in variables)


def _read_stat(pid: int) -> list[str]:
    """Return the fields of ``stat`` from the third on; the second is the program's name, which may hold anything."""
    return (PROC / str(pid) / "stat").read_bytes().rpartition(b")")[2].decode().split()


def daemonize(act: Callable[[], None], keep: int) -> None:
    """Do something in a process of its own, which shares no open file with this one but ``keep``.

    Whoever waits for the end of this process, or of its output, does not wait for that one. What goes wrong there is
    not heard of here, and what it imports later must not come from a place that goes away with this process.
    """
    child = os.fork()
    if child:
        os.waitpid(child, 0)
        return
    try:
        os.setsid()
        if os.fork() == 0:
            _close_descriptors(keep)
            act()
    finally:
        # Neither comes back into what called this.
        os._exit(0)


def _close_descriptors(keep: int) -> None:
    os.chdir("/")
    os.umask(0o077)
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in range(3):
        os.dup2(null, descriptor)
    os.closerange(3, keep)
    os.closerange(keep + 1, os.sysconf("SC_OPEN_MAX"))
