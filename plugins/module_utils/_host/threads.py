# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Calls a function that waits for programs or the engine side by side, in threads."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

THREADS = 8

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
