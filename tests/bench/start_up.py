"""The start-up time added by the entrypoint: a container of a session and a bare one are started in turns.

A bare container with Docker's init first writes its marker file. The start is measured from the first process
that the engine creates, before it sets up the network, to the marker file. In the place of the agent, the script itself
lets the container of the session begin, as soon as its entrypoint waits for that.
"""

from __future__ import annotations

from typing import Any

from tests.bench import lab
from tests.bench.timing import BenchError, rounds
from tests.integration.internals import SESSIONS

NAME = f"{lab.PREFIX}start"
IMAGES = {"python": lab.PYTHON, "busybox": lab.BUSYBOX}
# An agent of each engine in the lab.
ENGINES = {"engine_20": "agent1", "engine_26": "agent3"}

SCRIPT = """
set -eu
docker stop --time 1 {container} >/dev/null
{begin}
docker start {container} >/dev/null
pid=$(docker inspect --format '{{{{.State.Pid}}}}' {container})
sleep 2
# Field 22 of stat: ticks of a hundredth of a second since the host's start, after a name without spaces.
ticks=$(cut -d ' ' -f 22 /proc/$pid/stat)
echo "$(stat --format %.Y /proc/$pid/root{mark}) $(awk '{{ print $1 }}' /proc/uptime) $(date +%s.%N) $ticks"
"""

# Waits until the entrypoint reads.
BEGIN = f"timeout 20 sh -c 'echo begin > {SESSIONS}/{{session}}/{{hostname}}/gate' > /dev/null 2>&1 &"

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
        (kernel,) = record["kernels"]
        begin = BEGIN.format(session=record["id"], hostname=kernel["hostname"])
        try:
            lab.run_on(agent, BARE.format(image=image))
            return [
                _start(agent, kernel["container"], "/var/lib/backendai/ready", begin) - _start(agent, NAME, "/ready")
                for _number in rounds(count)
            ]
        finally:
            lab.run_on(agent, f"docker rm --force {NAME}")


def _start(agent: str, container: str, mark: str, begin: str = "") -> float:
    """Restart a container; return the seconds from its first process to its marker file.

    ``begin`` is a line that lets it begin. Raises :class:`BenchError` if it has not, with the file of an earlier start.
    """
    output = lab.run_on(agent, SCRIPT.format(container=container, mark=mark, begin=begin))
    ready, uptime, now, ticks = map(float, output.split())
    # The kernel reports its boot time only in whole seconds; uptime and clock, read together, are more precise.
    seconds = ready - (now - uptime + ticks / 100)
    if seconds < 0:
        raise BenchError(f"{container} on {agent} was not done two seconds after its start")
    return seconds
