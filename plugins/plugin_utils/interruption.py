# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The end of a task before its time: Ctrl-C, a signal to the run, or the death of the run itself.

A task runs in the main thread of a worker process. Ansible sends a worker INT, then TERM, and waits for its end.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from types import FrameType
from typing import NoReturn

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class InterruptionError(KeyboardInterrupt):
    """The task has to end: it undoes what it has begun, and raises this on. Nothing can be displayed any more."""


class Interruption:
    """What asks a task to end, within :func:`interruptible`."""

    def __init__(self) -> None:
        self._parent = os.getppid()
        self.over = False
        """Whether it has asked: it does so once."""

    def heard(self) -> bool:
        """Return whether anybody reads what the task displays: the process of the run does, until it ends."""
        return not self.over and os.getppid() == self._parent

    def check(self) -> None:
        """Raise :class:`InterruptionError` if the process of the run has gone: there was no signal then."""
        if not self.over and not self.heard():
            self._end("the process of this run has gone")

    def handle(self, number: int, _frame: FrameType | None) -> None:
        """Raise :class:`InterruptionError` for a signal; later ones find nothing to interrupt."""
        self._end(f"interrupted by {signal.Signals(number).name}")

    def _end(self, reason: str) -> NoReturn:
        # Ansible's second signal must not stop what the first one makes the task undo.
        self.over = True
        for number in SIGNALS:
            signal.signal(number, signal.SIG_IGN)
        raise InterruptionError(reason)


@contextlib.contextmanager
def interruptible() -> Iterator[Interruption]:
    """Raise :class:`InterruptionError` in the block, once, for INT, TERM or HUP. For the main thread.

    After an interruption these signals stay ignored, because the process is about to end. One that was ignored before,
    as HUP is with ``nohup``, stays so.
    """
    interruption = Interruption()
    before = {number: signal.getsignal(number) for number in SIGNALS}
    for number, handler in before.items():
        if handler is not signal.SIG_IGN:
            signal.signal(number, interruption.handle)
    try:
        yield interruption
    finally:
        if not interruption.over:
            for number, handler in before.items():
                signal.signal(number, signal.SIG_DFL if handler is None else handler)
