"""The compared paths between two agents, each for the time of its measurement, and attaching a container to each."""

from __future__ import annotations

import contextlib
import dataclasses
import shlex
from collections.abc import Iterator

from tests.bench import lab
from tests.bench.timing import BenchError

# The agent that sends, and the one that receives.
NEAR, FAR = "agent1", "agent2"

# What follows the options of `docker run`.
SLEEP = f"{lab.BUSYBOX} /bin/busybox sleep 3600"

OVERLAY, OVERLAY_CONTAINER = "bench-overlay", "bench-swarm"
# Docker's default port for overlays is that of our tunnels, and both exist at the same time.
SWARM_PORT = 4790
# What its members send each other besides.
SWARM_TCP, SWARM_UDP = (2377, 7946), (7946,)

# What is made to measure attaching.
ATTACHED, TUNNEL = "bench-attach", "bench-vx"
SUBNET, PEER, PEER_MAC, VNI = "10.127.255.0/29", "10.127.255.3", "02:00:0a:7f:ff:03", 4095


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
def session(name: str) -> Iterator[NetworkPath]:
    """Create a session of two containers, one on each agent."""
    request = {
        "session_image": lab.BUSYBOX,
        "session_cluster_size": 2,
        "session_cluster_mode": "multi-node",
        "session_agent_selection": "dispersed",
        "session_designated_agents": [NEAR, FAR],
        "session_resources": {"cpu": 1, "mem": "64m"},
    }
    with lab.session(name, request) as record:
        kernels = {kernel["agent"]: kernel for kernel in record["kernels"]}
        near, far = (_pid(agent, kernels[agent]["container"]) for agent in (NEAR, FAR))
        yield NetworkPath(near, far, kernels[FAR]["address"])


@contextlib.contextmanager
def swarm() -> Iterator[NetworkPath]:
    """Create a swarm of the two agents, with an overlay and a container on each."""
    leave_swarm()
    before = {agent: lab.run_on(agent, "docker network ls --format '{{.Name}}'").split() for agent in (NEAR, FAR)}
    near, far = lab.underlay_address(NEAR), lab.underlay_address(FAR)
    try:
        lab.run_on(NEAR, f"docker swarm init --advertise-addr {near} --data-path-port {SWARM_PORT}")
        token = lab.run_on(NEAR, "docker swarm join-token --quiet worker")
        lab.run_on(FAR, f"docker swarm join --token {token} --advertise-addr {far} {near}:2377")
        make_overlay(OVERLAY)
        for agent in (NEAR, FAR):
            options = f"--detach --label {lab.LABEL}=swarm --name {OVERLAY_CONTAINER} --network {OVERLAY}"
            lab.run_on(agent, f"docker run {options} {SLEEP}")
        form = f'{{{{(index .NetworkSettings.Networks "{OVERLAY}").IPAddress}}}}'
        address = lab.run_on(FAR, f"docker inspect --format '{form}' {OVERLAY_CONTAINER}")
        yield NetworkPath(_pid(NEAR, OVERLAY_CONTAINER), _pid(FAR, OVERLAY_CONTAINER), address)
    finally:
        leave_swarm()
        for agent, names in before.items():
            if "docker_gwbridge" not in names:
                lab.run_on(agent, "docker network rm docker_gwbridge || true")


def make_overlay(name: str) -> None:
    """Create an attachable overlay; the other agent learns of it with its first container there."""
    lab.run_on(NEAR, f"docker network create --driver overlay --attachable --label {lab.LABEL}=swarm {name}")


def leave_swarm() -> None:
    """Remove the benchmark's swarm, also that of an earlier run. Raises :class:`BenchError` for another one."""
    state = "docker info --format '{{.Swarm.LocalNodeState}}'"
    members = [agent for agent in (FAR, NEAR) if lab.run_on(agent, state) != "inactive"]
    containers = f"docker ps --all --quiet --filter label={lab.LABEL}=swarm"
    networks = f"docker network ls --quiet --filter label={lab.LABEL}=swarm"
    if members and not any(lab.run_on(agent, f"{containers}; {networks}") for agent in members):
        where = " and ".join(members)
        raise BenchError(f"{where} is in a swarm already: run `docker swarm leave --force` there if it is not needed")
    for agent in members:
        remove = f"{containers} | xargs --no-run-if-empty docker rm --force >/dev/null"
        lab.run_on(agent, f"{remove}; docker swarm leave --force")


def _pid(agent: str, container: str) -> int:
    """Return the id of a container's first process."""
    return int(lab.run_on(agent, f"docker inspect --format '{{{{.State.Pid}}}}' {shlex.quote(container)}"))


def attach_to_session_network() -> tuple[float, float]:
    """Return the seconds until a new container runs on a new network, and until a running one has joined it."""
    local, peer = lab.underlay_address(FAR), lab.underlay_address(NEAR)
    tunnel = (
        f"ip link add {TUNNEL} mtu 1450 type vxlan id {VNI} local {local} dstport 4789 nolearning proxy && "
        f"ip link set dev {TUNNEL} addrgenmode none && ip link set dev {TUNNEL} up && "
        f"ip neigh replace {PEER} lladdr {PEER_MAC} nud permanent dev {TUNNEL} && "
        f"bridge fdb replace {PEER_MAC} dev {TUNNEL} dst {peer} self permanent"
    )
    return _attach(tunnel, "backendai-default", "add_macvlan", f"ip link del {TUNNEL}")


def attach_to_swarm() -> tuple[float, float]:
    """Return the same for a Swarm overlay that is new on this agent."""
    make_overlay(ATTACHED)
    try:
        return _attach("true", ATTACHED, f"docker network connect {ATTACHED}", "true")
    finally:
        lab.run_on(NEAR, f"docker network rm {ATTACHED}")


def _attach(make: str, network: str, join: str, undo: str) -> tuple[float, float]:
    """Time both on the far agent; the first container of a session's network has to join it, too."""
    container = f"--label {lab.LABEL}=attach {SLEEP}"
    first = f"docker run --detach --name {ATTACHED}-1 --network {network} {container}"
    # Leftovers of an earlier run are removed first, and those of this one at the end, even if it fails.
    clean = f"{{ docker rm --force {ATTACHED}-1 {ATTACHED}-2; {undo}; }} >/dev/null 2>&1"
    script = f"""
        {clean}
        trap '{clean}' EXIT
        set -e
        now() {{ date +%s.%N; }}
        add_macvlan() {{
            pid=$(docker inspect --format '{{{{.State.Pid}}}}' $1)
            ip link add link {TUNNEL} name cluster0 mtu 1450 netns $pid type macvlan mode bridge
            inside="nsenter --net=/proc/$pid/ns/net ip"
            $inside addr add {SUBNET} dev cluster0 && $inside link set dev cluster0 up
        }}
        docker run --detach --name {ATTACHED}-2 {container} >/dev/null
        began=$(now)
        {{ {make} && {first}; }} >/dev/null
        {f"{join} {ATTACHED}-1" if join == "add_macvlan" else "true"}
        started=$(now)
        {join} {ATTACHED}-2
        joined=$(now)
        set +e
        echo $began $started $joined
        exit 0
    """
    started_at, started, joined = map(float, lab.run_on(FAR, "sh -s", script).split())
    return started - started_at, joined - started
