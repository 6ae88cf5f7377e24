# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Commands on several hosts at the same time: threads that move bytes, and nothing else.

What is sent is made before, in the main thread, and what comes back is read there. A command that takes too long is
given up: the process that its thread waits for is killed, and a new thread takes the place of the old one, which may
never return.
"""

from __future__ import annotations

import contextlib
import dataclasses
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType
from typing import NamedTuple, Protocol

from .host_link import Output

TICK = 1.0
"""How many seconds pass at most before an interruption without a signal is noticed."""

END = 2.0
"""For how many seconds a pool that closes goes on killing: a thread may be about to start a process."""

# The thread runs no code that recurses; by default the system reserves 8 MiB for each.
_STACK = 1 << 20


class Link(Protocol):
    """What a thread calls."""

    def run(self, command: str, data: bytes | None = None) -> Output:
        """Run a command with its standard input."""


class Overdue(NamedTuple):
    """A command was given up after some seconds. Its link may still be in use."""

    seconds: float


Outcome = Output | Overdue | Exception
"""The output of a command, or what happened instead."""


@dataclasses.dataclass(eq=False)
class _Job:
    name: str
    link: Link
    command: str
    data: bytes
    seconds: float
    thread: int = 0
    begun: float | None = None
    over: bool = False
    returned: bool = False


class LinkPool:
    """Runs commands on up to ``size`` hosts at a time.

    ``check`` is called about once a second while the main thread waits, and once if there is nothing to wait for; an
    exception of it ends the wait. Leaving the ``with`` block kills the processes of commands that still run.
    """

    def __init__(self, size: int, check: Callable[[], None] = lambda: None) -> None:
        self._size, self._check = size, check
        self._waiting: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._done: queue.SimpleQueue[tuple[_Job, Output | Exception]] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._jobs: set[_Job] = set()
        self._lost: list[_Job] = []
        self._threads = 0

    def __enter__(self) -> LinkPool:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()

    def submit(self, name: str, link: Link, command: str, data: bytes, seconds: float) -> None:
        """Run a command as soon as a thread is free; its time, with that of the connection, begins then."""
        self._jobs.add(job := _Job(name, link, command, data, seconds))
        self._waiting.put(job)
        if self._threads < min(self._size, len(self._jobs)):
            self._add_thread()

    def outcomes(self) -> Iterator[tuple[str, Outcome]]:
        """Yield the outcome of each command, with the name that it was submitted by, until none is left.

        More commands may be submitted meanwhile.
        """
        # Who asks again and again for what cannot be sent has to end, too.
        self._check()
        while self._jobs:
            yield from self._give_up_overdue()
            self._kill_lost()
            self._check()
            try:
                job, outcome = self._done.get(timeout=self._wait())
            except queue.Empty:
                continue
            if job in self._jobs:
                self._jobs.remove(job)
                yield job.name, outcome

    def give_up(self) -> list[str]:
        """Forget all commands, and kill the processes of those that run; return their names.

        More commands may be submitted afterwards; a link that one of these has used may still be in use.
        """
        names = [job.name for job in self._jobs]
        for job in list(self._jobs):
            self._give_up(job)
        self._jobs.clear()
        self._kill_lost()
        return names

    def close(self) -> None:
        """End the threads, and kill the processes of commands that still run."""
        self.give_up()
        for _thread in range(self._threads):
            self._waiting.put(None)
        self._threads = 0
        deadline = time.monotonic() + END
        while self._kill_lost() and time.monotonic() < deadline:
            time.sleep(0.02)

    def _add_thread(self) -> None:
        before = threading.stack_size(_STACK)
        try:
            threading.Thread(target=self._work, daemon=True).start()
        finally:
            threading.stack_size(before)
        self._threads += 1

    def _work(self) -> None:
        """Run commands in a thread."""
        while job := self._waiting.get():
            job.thread, job.begun = threading.get_ident(), time.monotonic()
            if job.over:
                continue
            outcome: Output | Exception
            try:
                outcome = job.link.run(job.command, job.data)
            except Exception as error:
                outcome = error
            job.returned = True
            if not self._finish(job, outcome):
                # Another thread has taken the place of this one.
                return

    def _finish(self, job: _Job, outcome: Output | Exception) -> bool:
        """Hand an outcome to the main thread; return whether that still waits for it."""
        with self._lock:
            waited, job.over = not job.over, True
            if waited:
                self._done.put((job, outcome))
        return waited

    def _wait(self) -> float:
        """Return how many seconds there are until the next command is overdue; a tick at most."""
        now = time.monotonic()
        left = [job.begun + job.seconds - now for job in self._jobs if job.begun is not None]
        return max(0.0, min([TICK, *left]))

    def _give_up_overdue(self) -> Iterator[tuple[str, Overdue]]:
        now = time.monotonic()
        for job in [job for job in self._jobs if job.begun is not None and job.begun + job.seconds <= now]:
            if self._give_up(job):
                self._add_thread()
                yield job.name, Overdue(job.seconds)

    def _give_up(self, job: _Job) -> bool:
        """Forget a command, and have what it waits for killed; return whether it had not come to an end."""
        with self._lock:
            if job.over:
                return False
            job.over = True
        self._jobs.discard(job)
        if job.begun is not None:
            self._threads -= 1
            self._lost.append(job)
        return True

    def _kill_lost(self) -> bool:
        """Kill what threads wait for whose commands were given up; return whether one has still not returned."""
        self._lost = [job for job in self._lost if not job.returned]
        frames = sys._current_frames() if self._lost else {}
        for job in self._lost:
            _kill_processes(frames.get(job.thread))
        return bool(self._lost)


def _kill_processes(frame: FrameType | None) -> None:
    """Kill the processes that a thread waits for: those in the variables of its functions.

    Connection plugins keep the processes that they start to themselves.
    """
    while frame is not None:
        for value in list(frame.f_locals.values()):
            # One that is just being started has no number yet; one that another user runs, as by sudo, stays.
            if isinstance(value, subprocess.Popen) and value.pid and value.poll() is None:
                with contextlib.suppress(OSError):
                    value.kill()
        frame = frame.f_back
