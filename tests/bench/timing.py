"""Measures wall time and CPU time.

All agents, their engines and the control node are on this machine, so the CPU time of a command is that of the whole
machine while it runs. Other load distorts it, so it is measured and printed before each round.
"""

from __future__ import annotations

import dataclasses
import os
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

STAT = Path("/proc/stat")


class BenchError(Exception):
    """A measured command failed, or did not do what is to be measured."""


@dataclasses.dataclass(frozen=True)
class Cost:
    """Wall time, and CPU time of the whole machine during it, both in seconds."""

    wall: float
    cpu: float


def cpu_seconds(stat: str) -> float:
    """Return the user, nice, system, irq and softirq time since boot, in seconds, given the text of ``/proc/stat``."""
    user, nice, system, _idle, _iowait, irq, softirq = map(int, stat.split(maxsplit=8)[1:8])
    return (user + nice + system + irq + softirq) / os.sysconf("SC_CLK_TCK")


def cost_of(action: Callable[[], object]) -> Cost:
    """Run an action and return its cost."""
    started_at, cpu = time.monotonic(), cpu_seconds(STAT.read_text())
    action()
    return Cost(time.monotonic() - started_at, cpu_seconds(STAT.read_text()) - cpu)


def run(command: Sequence[str], cwd: Path, environment: Mapping[str, str]) -> Cost:
    """Run a command to completion and return its cost. Raises :class:`BenchError` with its output if it fails."""

    def run_once() -> None:
        ended = subprocess.run(
            command,
            cwd=cwd,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        if ended.returncode:
            raise BenchError(f"{' '.join(command)} ended with {ended.returncode}:\n{ended.stdout}")

    return cost_of(run_once)


def rounds(count: int) -> Iterator[int]:
    """Yield the numbers of rounds; before each, print the CPU use of the idle machine."""
    for number in range(1, count + 1):
        idle = cost_of(lambda: time.sleep(1))
        print(f"bench: round {number} of {count}; idle CPU use {idle.cpu / idle.wall:.2f} s/s", flush=True)
        yield number
