"""Run every gate, cheapest first, and say at the end how each went and how long it took.

The lab is built in the background meanwhile. It is taken down at the end when this run has brought it up.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import IO

ALONE = ("lint", "types", "unit", "docs", "changelog", "build", "sanity")
ON_THE_LAB = ("integration", "molecule")
LAB_IS_UP = Path(".lab/inventory.yml")
LAB_LOG = Path(".cache/lab.log")
FROM_MAKE = ("MAKEFLAGS", "MFLAGS", "MAKELEVEL")


@dataclass(frozen=True)
class Outcome:
    gate: str
    verdict: str
    seconds: float


def start(gate: str, output: IO[str] | None = None) -> subprocess.Popen[str]:
    """Start one target of the Makefile, as a make of its own."""
    environment = {name: value for name, value in os.environ.items() if name not in FROM_MAKE}
    return subprocess.Popen(
        ["make", "--no-print-directory", gate],
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=output and subprocess.STDOUT,
        text=True,
    )


def finish(gate: str, process: subprocess.Popen[str], began: float) -> Outcome:
    """Wait for a started gate; take it down when the wait is cut short."""
    try:
        verdict = "failed" if process.wait() else "ok"
    finally:
        process.terminate()
    return Outcome(gate, verdict, time.monotonic() - began)


def run(gate: str) -> Outcome:
    """Run one gate in the foreground."""
    print(f"\n=== {gate} ===", flush=True)
    outcome = finish(gate, start(gate), time.monotonic())
    print(f"=== {gate}: {outcome.verdict}, {outcome.seconds:.1f} s ===", flush=True)
    return outcome


def run_with_lab() -> Iterator[Outcome]:
    """Run the gates that need no lab while it is being built, then those that need it."""
    LAB_LOG.parent.mkdir(exist_ok=True)
    with LAB_LOG.open("w") as log, ThreadPoolExecutor() as pool:
        building = start("lab", log)
        built = pool.submit(finish, "lab", building, time.monotonic())
        try:
            yield from map(run, ALONE)
            lab = built.result()
        finally:
            building.terminate()
    print(f"\n=== lab ===\n{LAB_LOG.read_text()}=== lab: {lab.verdict}, {lab.seconds:.1f} s ===", flush=True)
    yield lab
    if lab.verdict == "ok":
        yield from map(run, ON_THE_LAB)
    else:
        yield from (Outcome(gate, "not run", 0.0) for gate in ON_THE_LAB)


def run_all() -> Iterator[Outcome]:
    """Run every gate; one that fails does not stop the others, save those that need it."""
    setup = run("setup")
    yield setup
    if setup.verdict == "ok":
        yield from run_with_lab()


def main() -> None:
    os.chdir(Path(__file__).parents[2])
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("terminated"))
    found_up = LAB_IS_UP.exists()
    outcomes: list[Outcome] = []
    try:
        outcomes.extend(run_all())
    finally:
        if not found_up and Path(".lab").exists():
            outcomes.append(run("lab-down"))
        print("\nSummary")
        for outcome in outcomes:
            print(f"  {outcome.gate:<12} {outcome.verdict:<8} {outcome.seconds:7.1f} s")
    if any(outcome.verdict != "ok" for outcome in outcomes):
        sys.exit("make test: failed")
    print("make test: every gate passed")


if __name__ == "__main__":
    main()
