"""What the entrypoint adds to the start of a container: both are started again and again, ours and a bare one.

A bare container with Docker's init makes its mark as its first act. The time of a start counts from the first process
that the engine makes, before it sets up the network, to the mark.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from pathlib import Path

from tests.bench.measured import BenchError
from tests.bench.setting import LABEL
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
sleep 2
# Field 22 of stat: ticks of a hundredth of a second since the host's start, after a name without spaces.
ticks=$(cut -d ' ' -f 22 /proc/$pid/stat)
echo "$(stat --format %.Y /proc/$pid/root{mark}) $(awk '{{ print $1 }}' /proc/uptime) $(date +%s.%N) $ticks"
"""

BARE = (
    f"docker run --detach --init --label {LABEL}=start --name {NAME} --network backendai-default --memory 128m"
    " {image} sh -c ': > /ready; exec sleep 100000'"
)


def start_ups(image: str, agent: str, rounds: int, folder: Path) -> list[tuple[float, float]]:
    """Return the seconds of each start of a session's container, and of a bare one right after it."""
    asked = {
        "session_name": NAME,
        "session_image": image,
        "session_designated_agents": [agent],
        "session_resources": {"cpu": 1, "mem": "128m"},
    }
    run = laboratory.play("create_session", folder, asked)
    if run.code:
        raise BenchError(run.output)
    try:
        laboratory.on(agent, BARE.format(image=image))
        ours = run.record["kernels"][0]["container"]
        return [
            (_once(agent, ours, "/var/lib/backendai/ready"), _once(agent, NAME, "/ready")) for _round in range(rounds)
        ]
    finally:
        laboratory.on(agent, f"docker rm --force {NAME}")
        laboratory.play("terminate_session", folder, {"session_name": NAME})


def _once(agent: str, container: str, mark: str) -> float:
    """Return the seconds from a container's first process to its mark."""
    said = laboratory.on(agent, SCRIPT.format(container=container, mark=mark))
    ready, uptime, now, ticks = map(float, said.split())
    # The kernel tells its start in whole seconds only: uptime and clock, read together, say it better.
    return ready - (now - uptime + ticks / 100)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="how often each container is started (5)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        for image in IMAGES:
            for agent, engine in AGENTS.items():
                rounds = start_ups(image, agent, options.rounds, Path(folder))
                ours, bare = (statistics.median(column) for column in zip(*rounds, strict=True))
                more = statistics.median(one - other for one, other in rounds)
                row = f"{image:<16} {engine:<13} {ours:.3f} s, bare {bare:.3f} s, {more:.3f} s more"
                sys.stdout.write(f"{row}: {more / WANTED:.2f} of what it may cost\n")


if __name__ == "__main__":
    main()
