# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""How the first process of a container says that the session's command has ended, and how long it is waited for.

It writes the exit code into a file and a byte into a pipe, and goes on until the agent has noted what it kept. File and
pipe are in reach of the session's user, who may write anything there at any time: little is read of them, no link is
followed, nothing is waited for, and what they say concerns that session alone.

A process for each session waits. So this module imports little.
"""

from __future__ import annotations

import contextlib
import os
import re
import select
import stat
import time
from collections.abc import Iterator
from pathlib import Path

WAKE = "wake"
"""The pipe in a container's folder. Its first process has it open from before the command begins."""

KEPT = "kept"
"""The file in a container's folder that says what was kept; its first process ends when it sees it."""

STARTED = "go"
"""The file in a container's folder that lets its command begin."""

EXIT_CODE = "exit-code"
"""The file with the exit code, in the folder of a container that is its user's."""

PIPE_BYTES = 1 << 16

POLL_SECONDS = 10.0
"""How often the files are looked at when no pipe has said anything: a user can take a byte away."""

PAUSE_SECONDS = 1.0
"""How long a pipe is left alone that has said something which is not so."""

_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK

_CODE = re.compile(rb"(\d{1,3})\n?")


def make_wake(folder: Path) -> None:
    """Make the pipe of a container, for the group of its user; it may exist."""
    with contextlib.suppress(FileExistsError):
        os.mkfifo(folder / WAKE, 0o600)
        (folder / WAKE).chmod(0o660)


def read_exit_code(own: Path) -> int | None:
    """Return the exit code that a first process has written in its own folder; ``None`` if there is none."""
    written = b""
    with contextlib.suppress(OSError), contextlib.ExitStack() as stack:
        handle = os.open(own / EXIT_CODE, _FILE)
        stack.callback(os.close, handle)
        if stat.S_ISREG(os.fstat(handle).st_mode):
            written = os.read(handle, 8)
    code = _CODE.fullmatch(written)
    return int(code[1]) if code and int(code[1]) < 256 else None


def awaited(session: Path) -> list[str]:
    """Return the hostnames of a session's containers that have begun their command and of which nothing was kept.

    ``session`` is its folder on the agent, which may not exist any more.
    """
    return sorted(path.parent.name for path in session.glob(f"*/{STARTED}") if not (path.parent / KEPT).exists())


def await_ends(session: Path, homes: Path) -> list[str]:
    """Wait until commands of a session have ended, or their first processes; return the hostnames.

    ``homes`` has the folders of its containers. Empty once there is nothing to wait for.
    """
    with contextlib.ExitStack() as stack:
        pipes: dict[str, int] = {}
        while waiting := awaited(session):
            for hostname, pipe in _open(session, [name for name in waiting if name not in pipes]):
                stack.callback(os.close, pipe)
                pipes[hostname] = pipe
            heard = {hostname: _hear(pipes[hostname]) for hostname in waiting if hostname in pipes}
            ended = [name for name in waiting if heard.get(name) == b"" or _has_code(homes, name)]
            if ended:
                return ended
            if any(heard.values()):
                time.sleep(PAUSE_SECONDS)
            else:
                select.select([pipes[hostname] for hostname in heard], [], [], POLL_SECONDS)
    return []


def _has_code(homes: Path, hostname: str) -> bool:
    return read_exit_code(homes / hostname / "own") is not None


def _open(session: Path, hostnames: list[str]) -> Iterator[tuple[str, int]]:
    for hostname in hostnames:
        with contextlib.suppress(OSError):
            yield hostname, os.open(session / hostname / WAKE, _FILE)


def _hear(pipe: int) -> bytes | None:
    """Return what is in a pipe, which is little; empty if nobody has it open, ``None`` if it has nothing."""
    try:
        return os.read(pipe, PIPE_BYTES)
    except BlockingIOError:
        return None
