"""Measure the planner, without a lab: how good its placements are, how fast they come, how much memory facts take."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PARTS = ("tests.bench.replay", "tests.bench.decisions", "tests.bench.memory")
"""What is measured, each in a process of its own."""


def main() -> int:
    """Run every part; the exit code says only whether everything worked."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT / ".venv" / "collections")}
    print(
        f"machine: {os.cpu_count()} cores, load average {os.getloadavg()[0]:.1f} before; times are of CPU, on one core"
    )
    for part in PARTS:
        print(flush=True)
        ended = subprocess.run([sys.executable, "-m", part, *sys.argv[1:]], cwd=ROOT, env=environment, check=False)
        if ended.returncode:
            return ended.returncode
    return 0


if __name__ == "__main__":
    sys.exit(main())
