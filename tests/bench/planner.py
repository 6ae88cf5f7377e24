"""Measure the planner, without a lab: quality and speed of placements, memory of facts, and a long queue.

Each part runs in its own process, on one core, and prints its figures as JSON; times are CPU time.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys

from tests.bench.errors import BenchError
from tests.bench.lab import ROOT

MODULES = ("tests.bench.replay", "tests.bench.decisions", "tests.bench.memory", "tests.bench.waiting")


def measure() -> dict[str, list[float]]:
    """Return the figures of all parts."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT / ".venv" / "collections")}
    figures: dict[str, list[float]] = {}
    for module in MODULES:
        print(f"bench: {module}", flush=True)
        command = [sys.executable, "-m", module]
        process = subprocess.run(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True, check=False)
        if process.returncode:
            raise BenchError(f"{module} ended with {process.returncode}: see above")
        figures |= json.loads(process.stdout)
    return figures
