# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Calls a function that waits for programs or the engine side by side, in threads."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

THREADS = 8

Item = TypeVar("Item")

Result = TypeVar("Result")


def in_threads(function: Callable[..., Result], *arguments: Iterable[Any], threads: int = THREADS) -> list[Result]:
    """Return the results of a function for each set of arguments, in their order, from so many threads at a time.

    The first error is raised after the calls that have begun have ended.
    """
    calls = list(zip(*arguments))
    if len(calls) < 2:
        return [function(*call) for call in calls]
    # Most requests need no threads, and the import takes a tenth of the time of all others.
    import concurrent.futures

    with concurrent.futures.ThreadPoolExecutor(min(threads, len(calls))) as pool:
        return list(pool.map(lambda call: function(*call), calls))


def in_time(
    function: Callable[[Item], Result], items: Sequence[Item], until: float, threads: int = THREADS
) -> list[Result | None]:
    """Return the results of a function for each item that there are at a moment of the monotonic clock, else ``None``.

    Nobody waits for calls that take longer, nor learns how they end. An error of one that has ended is raised.
    """
    results: list[Result | None] = [None] * len(items)
    errors: list[BaseException] = []
    waiting, lock = iter(enumerate(items)), threading.Lock()

    def work() -> None:
        while time.monotonic() < until:
            with lock:
                index, item = next(waiting, (None, None))
            if index is None or item is None:
                return
            try:
                results[index] = function(item)
            except BaseException as error:
                errors.append(error)

    workers = [threading.Thread(target=work, daemon=True) for _thread in range(min(threads, len(items)))]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(max(0.0, until - time.monotonic()))
    if errors:
        raise errors[0]
    return list(results)
