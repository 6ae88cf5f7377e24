"""Waiting for what comes by itself."""

from __future__ import annotations

import time
from collections.abc import Callable


def wait_until(condition: Callable[[], object], seconds: float = 180, pause: float = 0.3) -> float:
    """Look again and again until something holds, at most for so many seconds; return how many it took."""
    started_at = time.monotonic()
    while not (result := condition()):
        assert time.monotonic() - started_at < seconds, (
            f"it did not come about within {seconds} s; last seen: {result!r}"
        )
        time.sleep(pause)
    return time.monotonic() - started_at
