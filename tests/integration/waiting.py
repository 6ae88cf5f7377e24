"""Waiting for what comes by itself."""

from __future__ import annotations

import time
from collections.abc import Callable


def eventually(holds: Callable[[], object], seconds: float = 180, pause: float = 0.3) -> float:
    """Look again and again until something holds, at most for so many seconds; return how many it took."""
    began = time.monotonic()
    while not (seen := holds()):
        assert time.monotonic() - began < seconds, f"it did not come about within {seconds} s; last seen: {seen!r}"
        time.sleep(pause)
    return time.monotonic() - began
