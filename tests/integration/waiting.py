"""Waits for conditions."""

from __future__ import annotations

import time
from collections.abc import Callable


def wait_until(condition: Callable[[], object], seconds: float = 180, pause: float = 0.3) -> float:
    """Poll a condition until it is true, at most for ``seconds``; return how many seconds that took."""
    started_at = time.monotonic()
    while not (result := condition()):
        assert time.monotonic() - started_at < seconds, (
            f"the condition was not true within {seconds} s; last result: {result!r}"
        )
        time.sleep(pause)
    return time.monotonic() - started_at
