# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Limits the time of a request, and gives each session in it a part of that."""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Iterator
from types import FrameType

from .._model.errors import ClusterError

# What is left of the time after all turns, for what is done once they have ended.
_RESERVE = 0.1


class TimeLimitError(BaseException):
    """A request exceeded its time limit. No ``except Exception`` catches it."""


class TurnOverError(ClusterError):
    """A session has used up its part of the time of a request; the message is one sentence."""


@contextlib.contextmanager
def limited_to(seconds: float) -> Iterator[None]:
    """Raise :class:`TimeLimitError` within the block after that many seconds.

    A block within such a block may have less time, and the outer one goes on after it. The main thread only.
    """

    def end(_signal: int, _frame: FrameType | None) -> None:
        raise TimeLimitError

    began = time.monotonic()
    before = signal.signal(signal.SIGALRM, end)
    outer, _interval = signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        if outer:
            signal.setitimer(signal.ITIMER_REAL, max(0.001, outer - (time.monotonic() - began)))


class Turns:
    """Gives each of several sessions an equal part of the time that the request has left, if that is limited.

    So none of them takes the time of those after it, and what one leaves is theirs.
    """

    def __init__(self, count: int) -> None:
        self._left = count

    @contextlib.contextmanager
    def turn(self) -> Iterator[float | None]:
        """Yield how many seconds this session has, ``None`` for no limit; raise :class:`TurnOverError` after them."""
        left, _interval = signal.getitimer(signal.ITIMER_REAL)
        seconds = left * (1 - _RESERVE) / self._left if left else None
        self._left -= 1
        if seconds is None:
            yield None
            return
        try:
            with limited_to(seconds):
                yield seconds
        except TimeLimitError:
            raise TurnOverError(
                f"it took more than {seconds:.3g} seconds, its part of the time, and goes on with the next run"
            ) from None
