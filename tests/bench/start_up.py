"""What the entrypoint adds to the start of a container: from its first process to its mark that it is ready.

A bare container with Docker's init is ready when its first process runs, so this is what a session costs over it.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from pathlib import Path

from tests.bench.measured import BenchError
from tests.integration import laboratory

NAME = "bench-start"
AGENTS = {"agent1": "engine 20.10", "agent3": "engine 26.1"}
IMAGES = (laboratory.PYTHON, laboratory.BUSYBOX)
WANTED = 0.15
"""Seconds that a start may cost over a bare container."""

SCRIPT = """
set -eu
docker stop --time 1 {container} >/dev/null
docker start {container} >/dev/null
pid=$(docker inspect --format '{{{{.State.Pid}}}}' {container})
mark=/proc/$pid/root/var/lib/backendai/ready
sleep 3
# Field 22 of stat: ticks of a hundredth of a second since the host's start, after a name without spaces.
ticks=$(cut -d ' ' -f 22 /proc/$pid/stat)
echo "$(stat --format %.Y $mark) $(awk '{{ print $1 }}' /proc/uptime) $(date +%s.%N) $ticks"
"""


def start_ups(image: str, rounds: int, folder: Path) -> dict[str, list[float]]:
    """Return the seconds from first process to mark by agent, of a session's containers that are started again."""
    asked = {
        "session_name": NAME,
        "session_image": image,
        "session_cluster_mode": "multi-node",
        "session_cluster_size": len(AGENTS),
        "session_agent_selection": "dispersed",
        "session_designated_agents": list(AGENTS),
        "session_resources": {"cpu": 1, "mem": "128m"},
    }
    run = laboratory.play("create_session", folder, asked)
    if run.code:
        raise BenchError(run.output)
    try:
        there = {one["agent"]: one["container"] for one in run.record["kernels"]}
        return {agent: [_once(agent, container) for _ in range(rounds)] for agent, container in there.items()}
    finally:
        laboratory.play("terminate_session", folder, {"session_name": NAME})


def _once(agent: str, container: str) -> float:
    ready, uptime, now, ticks = map(float, laboratory.on(agent, SCRIPT.format(container=container)).split())
    # The kernel tells its start in whole seconds only: uptime and clock, read together, say it better.
    return ready - (now - uptime + ticks / 100)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="how often each container is started (5)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        for image in IMAGES:
            for agent, seconds in start_ups(image, options.rounds, Path(folder)).items():
                middle = statistics.median(seconds)
                row = f"{image:<16} {AGENTS[agent]:<13} {middle:.3f} s ({min(seconds):.3f} to {max(seconds):.3f})"
                sys.stdout.write(f"{row}, {middle / WANTED:.2f} of what it may cost\n")


if __name__ == "__main__":
    main()
