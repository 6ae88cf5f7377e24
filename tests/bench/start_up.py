"""What the entrypoint adds to the start of a container: both are started again and again, ours and a bare one.

A bare container with Docker's init makes its mark as its first act. The time of a start counts from the first process
that the engine makes, before it sets up the network, to the mark.
"""

from __future__ import annotations

from typing import Any

from tests.bench import lab, sessions
from tests.bench.leftovers import clean_lab
from tests.bench.timing import rounds
from tests.bench.workload import LABEL

NAME = f"{sessions.PREFIX}start"
IMAGES = {"python": lab.PYTHON, "busybox": lab.BUSYBOX}
# An agent of each engine in the lab.
ENGINES = {"engine_20": "agent1", "engine_26": "agent3"}

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


def measure(count: int) -> dict[str, list[float]]:
    """Return, for each image and engine, the seconds that a start takes longer than a bare container's, each round."""
    with clean_lab():
        return {
            f"start_{name}_{engine}": _overheads(image, agent, count)
            for name, image in IMAGES.items()
            for engine, agent in ENGINES.items()
        }


def _overheads(image: str, agent: str, count: int) -> list[float]:
    variables: dict[str, Any] = {
        "session_image": image,
        "session_designated_agents": [agent],
        "session_resources": {"cpu": 1, "mem": "128m"},
    }
    with sessions.session(NAME, variables) as record:
        container = record["kernels"][0]["container"]
        try:
            lab.run_on(agent, BARE.format(image=image))
            return [
                _start(agent, container, "/var/lib/backendai/ready") - _start(agent, NAME, "/ready")
                for _number in rounds(count)
            ]
        finally:
            lab.run_on(agent, f"docker rm --force {NAME}")


def _start(agent: str, container: str, mark: str) -> float:
    """Return the seconds from a container's first process to its mark."""
    output = lab.run_on(agent, SCRIPT.format(container=container, mark=mark))
    ready, uptime, now, ticks = map(float, output.split())
    # The kernel reports its start in whole seconds only; uptime and clock, read together, are more exact.
    return ready - (now - uptime + ticks / 100)
