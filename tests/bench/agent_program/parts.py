"""Measures the seconds of the parts of an operation."""

from __future__ import annotations

import contextlib
import functools
import time
from collections.abc import Callable, Iterator
from typing import Any


class PartTimes:
    """Seconds by the name of a part; repeated parts are summed."""

    def __init__(self) -> None:
        self._seconds: dict[str, float] = {}

    @contextlib.contextmanager
    def measure(self, name: str) -> Iterator[None]:
        """Add the time of a block to a part."""
        began = time.perf_counter()
        try:
            yield
        finally:
            self._seconds[name] = self._seconds.get(name, 0.0) + time.perf_counter() - began

    def wrap(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function that adds the time of each call to a part."""

        @functools.wraps(function)
        def timed(*args: Any, **options: Any) -> Any:
            with self.measure(name):
                return function(*args, **options)

        return timed

    def take(self) -> dict[str, float]:
        """Return the seconds of all parts, and reset them."""
        seconds, self._seconds = self._seconds, {}
        return seconds
