"""Compare a training of three processes: on three agents, on one, and on three over a Docker Swarm overlay, in turns.

It needs the image of extensions/images/distributed-cpu on all agents: ``python3 -m tests.lab distributed``.
"""

from __future__ import annotations

import contextlib
import os
import shlex
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

from tests.bench import lab, sessions
from tests.bench.leftovers import clean_lab
from tests.bench.paths import OVERLAY_CONTAINER, SWARM_PORT, swarm_containers
from tests.bench.timing import rounds
from tests.lab.distributed_image import TAG

STEPS, PORT = 10, 29500
PROGRAM = Path(__file__).with_name("training_program.py")
SIZE = len(lab.AGENTS)
PLACES = {
    "three": {"session_cluster_mode": "multi-node", "session_agent_selection": "dispersed"},
    "one": {"session_cluster_mode": "single-node"},
}
#: By figure: the value of what is printed, and the places that are compared.
RATIOS = {
    "training_reduce_of_swarm": (0, "three", "swarm"),
    "training_steps_of_swarm": (1, "three", "swarm"),
    "training_steps_of_one_agent": (1, "three", "one"),
}

#: A container by its agent and its name, and what its environment has for the program.
Process = tuple[str, str, Mapping[str, object]]


@contextlib.contextmanager
def session(place: str) -> Iterator[list[Process]]:
    """Create a session, and yield its containers; the master is found by the session's own variables."""
    request = {"session_image": TAG, "session_cluster_size": SIZE, "session_resources": {"cpu": 1, "mem": "2g"}}
    with sessions.session(f"{sessions.PREFIX}{place}", {**request, **PLACES[place]}) as record:
        yield [(kernel["agent"], kernel["container"], {}) for kernel in record["kernels"]]


@contextlib.contextmanager
def swarm() -> Iterator[list[Process]]:
    """Run containers of the same image on an overlay."""
    with swarm_containers(lab.AGENTS, f"--memory 2g {TAG} sleep 3600"):
        master = lab.run_on(lab.AGENTS[0], f"docker exec {OVERLAY_CONTAINER} hostname -i").split()[0]
        variables = {"MASTER_ADDR": master, "MASTER_PORT": PORT, "GLOO_SOCKET_IFNAME": "eth0"}
        yield [(agent, OVERLAY_CONTAINER, variables) for agent in lab.AGENTS]


def run(processes: Sequence[Process]) -> list[float]:
    """Run the program in containers, and return what the first one prints."""
    source = PROGRAM.read_text()
    lines = []
    for rank, (agent, container, variables) in enumerate(processes):
        values = {**variables, "RANK": rank, "WORLD_SIZE": len(processes)}
        options = " ".join(f"--env {name}={value}" for name, value in values.items())
        lines.append((agent, f"docker exec --interactive {options} {shlex.quote(container)} python3 - {STEPS}"))
    printed = lab.in_parallel([partial(lab.run_on, agent, line, source) for agent, line in lines])
    return [float(value) for value in printed[0].split()]


def release_cores(processes: Sequence[Process]) -> None:
    """Let containers use all cores: sessions on several agents of the lab may have the same core."""
    cores = f"0-{(os.cpu_count() or 1) - 1}"
    for agent, container, _variables in processes:
        lab.run_on(agent, f"docker update --cpuset-cpus {cores} {shlex.quote(container)}")


def measure(count: int) -> dict[str, list[float]]:
    """Return the ratios of each round, in which all places have their turn."""
    figures: dict[str, list[float]] = {name: [] for name in RATIOS}
    ports = [{"protocol": "udp", "ports": [SWARM_PORT]}]
    with clean_lab(), lab.firewall(allow=ports), contextlib.ExitStack() as stack:
        places = {place: stack.enter_context(session(place)) for place in PLACES}
        places["swarm"] = stack.enter_context(swarm())
        for processes in places.values():
            release_cores(processes)
        for number in rounds(count):
            order = list(places) if number % 2 else list(reversed(places))
            rates = {place: run(places[place]) for place in order}
            for name, (value, ours, theirs) in RATIOS.items():
                figures[name].append(rates[ours][value] / rates[theirs][value])
    return figures
