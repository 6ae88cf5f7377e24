"""Kills runs at a task or a step of one, or soon after."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

from tests.integration.laboratory import TIMEOUT, launch


def await_task(run: subprocess.Popen[str], task: str, times: int = 1) -> str:
    """Read the output of a run until a task, or a step of one, has begun that many times, or until its end; return it.

    An empty ``task`` matches any."""
    printed = []
    assert run.stdout
    for line in run.stdout:
        printed.append(line)
        times -= (line.startswith("TASK [") and task in line) or bool(re.match(rf"{re.escape(task)}.*: begun$", line))
        if not times:
            break
    return "".join(printed)


def kill_run(run: subprocess.Popen[str]) -> None:
    """Kill a run and all its processes on the control node; workers are in sessions of their own."""
    processes = descendants(run.pid)
    for pid in (run.pid, *processes):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def descendants(pid: int) -> list[int]:
    """Return the processes that a process has started, and those that these have started."""
    parents: dict[int, int] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            parents[int(path.parent.name)] = int(path.read_text().rpartition(")")[2].split()[1])
    found, left = [], [pid]
    while left:
        above = left.pop()
        children = [child for child, parent in parents.items() if parent == above]
        found += children
        left += children
    return found


def kill_at_task(task: str, line: Sequence[str]) -> None:
    """Start a run and kill it as soon as a task, or a step of one, begins."""
    with launch(line) as run:
        printed = await_task(run, task)
        assert f"TASK [{task}]" in printed or f"{task}: begun" in printed, f"{task!r} never began: {printed}"
        kill_run(run)
        run.communicate(timeout=TIMEOUT)
    # Commands that it started on hosts continue for a moment.
    time.sleep(1)
