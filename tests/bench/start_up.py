"""The start-up time added by the entrypoint: a container of a session and a bare one are started in turns.

A bare container with Docker's init first writes its marker file. The start is measured from the first process
that the engine creates, before it sets up the network, to the marker file. In the place of the agent, the script itself
says that the network is complete.
"""

from __future__ import annotations

from typing import Any

from tests.bench import lab
from tests.bench.timing import rounds

NAME = f"{lab.PREFIX}start"
IMAGES = {"python": lab.PYTHON, "busybox": lab.BUSYBOX}
# An agent of each engine in the lab.
ENGINES = {"engine_20": "agent1", "engine_26": "agent3"}

SCRIPT = """
set -eu
docker stop --time 1 {container} >/dev/null
docker start {container} >/dev/null
pid=$(docker inspect --format '{{{{.State.Pid}}}}' {container})
nsenter --target="$pid" --net ip link set dev eth0 alias ready
sleep 2
# Field 22 of stat: ticks of a hundredth of a second since the host's start, after a name without spaces.
ticks=$(cut -d ' ' -f 22 /proc/$pid/stat)
echo "$(stat --format %.Y /proc/$pid/root{mark}) $(awk '{{ print $1 }}' /proc/uptime) $(date +%s.%N) $ticks"
"""

BARE = (
    f"docker run --detach --init --label {lab.LABEL}=start --name {NAME} --network backendai-default --memory 128m"
    " {image} sh -c ': > /ready; exec sleep 100000'"
)


def measure(count: int) -> dict[str, list[float]]:
    """Return, for each image and engine, the additional seconds of a start over a bare container, in each round."""
    with lab.clean_lab():
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
    with lab.session(NAME, variables) as record:
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
    """Restart a container; return the seconds from its first process to its marker file."""
    output = lab.run_on(agent, SCRIPT.format(container=container, mark=mark))
    ready, uptime, now, ticks = map(float, output.split())
    # The kernel reports its boot time only in whole seconds; uptime and clock, read together, are more precise.
    return ready - (now - uptime + ticks / 100)
