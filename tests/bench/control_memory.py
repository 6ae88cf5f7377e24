"""Measures the memory of the processes that a command of this process starts on the control node."""

from __future__ import annotations

import contextlib
import os
import threading
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

PROC = Path("/proc")
SECONDS = 0.1


def peak_during(action: Callable[[], object]) -> float:
    """Return the peak of the memory of all processes below this one during an action, in MiB.

    Pages that several share count once. Simulated agents do not count: they have a network of their own.
    """
    peak, over = 0, threading.Event()

    def watch() -> None:
        nonlocal peak
        while not over.wait(SECONDS):
            peak = max(peak, sum(map(_kilobytes, _below(os.getpid()))))

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        action()
    finally:
        over.set()
        watcher.join()
    return peak / 1024


def _below(pid: int) -> list[int]:
    """Return all descendants of a process."""
    children = defaultdict(list)
    for folder in PROC.glob("[0-9]*"):
        with contextlib.suppress(OSError):
            children[int((folder / "stat").read_text().rpartition(")")[2].split()[1])].append(int(folder.name))
    found, later = [], [pid]
    while later:
        below = children[later.pop()]
        found += below
        later += below
    return found


def _kilobytes(pid: int) -> int:
    """Return the proportional memory of a process; 0 if it has ended, or has another network than this one."""
    with contextlib.suppress(OSError):
        if (PROC / str(pid) / "ns" / "net").stat().st_ino != (PROC / "self" / "ns" / "net").stat().st_ino:
            return 0
        for line in (PROC / str(pid) / "smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1])
    return 0
