"""Runs that are killed at a task, or soon after one."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Sequence

from tests.integration.laboratory import TIMEOUT, launch


def await_task(run: subprocess.Popen[str], task: str, times: int = 1) -> str:
    """Read what a run prints until it has come to a task so often, or to its end; return it.

    An empty ``task`` stands for any."""
    printed = []
    assert run.stdout
    for line in run.stdout:
        printed.append(line)
        times -= line.startswith("TASK [") and task in line
        if not times:
            break
    return "".join(printed)


def kill_run(run: subprocess.Popen[str]) -> None:
    """Kill a run and all that it started on the control node."""
    os.killpg(run.pid, signal.SIGKILL)


def kill_at_task(task: str, line: Sequence[str]) -> None:
    """Start a run, and kill it as soon as it comes to a task."""
    with launch(line) as run:
        printed = await_task(run, task)
        assert f"TASK [{task}]" in printed, f"it never came to {task!r}: {printed}"
        kill_run(run)
        run.communicate(timeout=TIMEOUT)
    # What it had begun on hosts goes on for a moment.
    time.sleep(1)
