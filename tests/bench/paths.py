"""The compared paths between two agents, each created for the time of its measurement."""

from __future__ import annotations

import contextlib
import dataclasses
import shlex
from collections.abc import Iterator, Mapping, Sequence

from tests.bench import lab, sessions
from tests.bench.errors import BenchError
from tests.bench.workload import LABEL

# The agent that sends, and the one that receives.
NEAR, FAR = "agent1", "agent2"

# What follows the options of `docker run`.
SLEEP = f"{lab.BUSYBOX} /bin/busybox sleep 3600"

OVERLAY, OVERLAY_CONTAINER = "bench-overlay", "bench-swarm"
# Docker's default port for overlays is that of our tunnels, and both exist at the same time.
SWARM_PORT = 4790
WIREGUARD = {"agent_underlay_encryption": "wireguard"}


@dataclasses.dataclass(frozen=True)
class NetworkPath:
    """Processes in the network namespaces of both ends (0: the agent's own), and the address of the far end."""

    near: int
    far: int
    address: str


def underlay() -> NetworkPath:
    """Return the path over the agents' own network."""
    return NetworkPath(0, 0, lab.underlay_address(FAR))


@contextlib.contextmanager
def session(name: str, variables: Mapping[str, object]) -> Iterator[NetworkPath]:
    """Create a session of two containers, one on each agent; ``variables`` are passed to the playbooks too."""
    request = {
        "session_image": lab.BUSYBOX,
        "session_cluster_size": 2,
        "session_cluster_mode": "multi-node",
        "session_agent_selection": "dispersed",
        "session_designated_agents": [NEAR, FAR],
        "session_resources": {"cpu": 1, "mem": "64m"},
    }
    try:
        record = sessions.create(name, {**request, **variables}).record
        kernels = {kernel["agent"]: kernel for kernel in record["kernels"]}
        near, far = (_pid(agent, kernels[agent]["container"]) for agent in (NEAR, FAR))
        yield NetworkPath(near, far, kernels[FAR]["address"])
    finally:
        sessions.terminate(name, variables)


@contextlib.contextmanager
def encrypted_session(name: str, variables: Mapping[str, object]) -> Iterator[NetworkPath]:
    """Provision the agents with WireGuard and ``variables`` for a while, and create a session over it."""
    try:
        lab.run_playbook("provision_agents", {**variables, **WIREGUARD})
        with session(name, WIREGUARD) as path:
            yield path
    finally:
        lab.run_playbook("provision_agents", {**variables, "agent_underlay_encryption": ""})


@contextlib.contextmanager
def swarm() -> Iterator[NetworkPath]:
    """Create a swarm of the two agents, with an overlay and a container on each."""
    with swarm_containers((NEAR, FAR), SLEEP):
        form = f'{{{{(index .NetworkSettings.Networks "{OVERLAY}").IPAddress}}}}'
        address = lab.run_on(FAR, f"docker inspect --format '{form}' {OVERLAY_CONTAINER}")
        yield NetworkPath(_pid(NEAR, OVERLAY_CONTAINER), _pid(FAR, OVERLAY_CONTAINER), address)


@contextlib.contextmanager
def swarm_containers(agents: Sequence[str], image_and_command: str) -> Iterator[None]:
    """Create a swarm of agents, with an overlay and on each a container of the same name; the first one manages it."""
    leave_swarm(agents)
    manager, *workers = agents
    before = {agent: lab.run_on(agent, "docker network ls --format '{{.Name}}'").split() for agent in agents}
    addresses = {agent: lab.underlay_address(agent) for agent in agents}
    join = f"{addresses[manager]}:2377"
    try:
        lab.run_on(manager, f"docker swarm init --advertise-addr {addresses[manager]} --data-path-port {SWARM_PORT}")
        token = lab.run_on(manager, "docker swarm join-token --quiet worker")
        for agent in workers:
            lab.run_on(agent, f"docker swarm join --token {token} --advertise-addr {addresses[agent]} {join}")
        make_overlay(OVERLAY)
        for agent in agents:
            options = f"--detach --label {LABEL}=swarm --name {OVERLAY_CONTAINER} --network {OVERLAY}"
            lab.run_on(agent, f"docker run {options} {image_and_command}")
        yield
    finally:
        leave_swarm(agents)
        for agent, names in before.items():
            if "docker_gwbridge" not in names:
                lab.run_on(agent, "docker network rm docker_gwbridge || true")


def make_overlay(name: str) -> None:
    """Create an attachable overlay; the other agent learns of it with its first container there."""
    lab.run_on(NEAR, f"docker network create --driver overlay --attachable --label {LABEL}=swarm {name}")


def leave_swarm(agents: Sequence[str]) -> None:
    """Remove the benchmark's swarm, also that of an earlier run. Raises :class:`BenchError` for another one."""
    state = "docker info --format '{{.Swarm.LocalNodeState}}'"
    members = [agent for agent in reversed(agents) if lab.run_on(agent, state) != "inactive"]
    containers = f"docker ps --all --quiet --filter label={LABEL}=swarm"
    networks = f"docker network ls --quiet --filter label={LABEL}=swarm"
    if members and not any(lab.run_on(agent, f"{containers}; {networks}") for agent in members):
        where = " and ".join(members)
        raise BenchError(f"{where} is in a swarm already: run `docker swarm leave --force` there if it is not needed")
    for agent in members:
        remove = f"{containers} | xargs --no-run-if-empty docker rm --force >/dev/null"
        lab.run_on(agent, f"{remove}; docker swarm leave --force")


def _pid(agent: str, container: str) -> int:
    """Return the id of a container's first process."""
    return int(lab.run_on(agent, f"docker inspect --format '{{{{.State.Pid}}}}' {shlex.quote(container)}"))
