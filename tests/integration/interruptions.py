"""Kills runs at a task, or soon after one."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Sequence

from tests.integration.laboratory import TIMEOUT, launch


def await_task(run: subprocess.Popen[str], task: str, times: int = 1) -> str:
    """Read the output of a run until a task has started that many times, or until its end; return it.

    An empty ``task`` matches any."""
    printed = []
    assert run.stdout
    for line in run.stdout:
        printed.append(line)
        times -= line.startswith("TASK [") and task in line
        if not times:
            break
    return "".join(printed)


def kill_run(run: subprocess.Popen[str]) -> None:
    """Kill a run and all its processes on the control node."""
    os.killpg(run.pid, signal.SIGKILL)


def kill_at_task(task: str, line: Sequence[str]) -> None:
    """Start a run and kill it as soon as a task starts."""
    with launch(line) as run:
        printed = await_task(run, task)
        assert f"TASK [{task}]" in printed, f"the task {task!r} never started: {printed}"
        kill_run(run)
        run.communicate(timeout=TIMEOUT)
    # Commands that it started on hosts continue for a moment.
    time.sleep(1)
