"""Measures the time to attach a container to a session's network and to a Docker Swarm overlay."""

from __future__ import annotations

from tests.bench import lab
from tests.bench.paths import FAR, NEAR, SLEEP, make_overlay
from tests.bench.workload import LABEL

NAME, TUNNEL = "bench-attach", "bench-vx"
SUBNET, PEER, PEER_MAC, VNI = "10.127.255.0/29", "10.127.255.3", "02:00:0a:7f:ff:03", 4095


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
    make_overlay(NAME)
    try:
        return _attach("true", NAME, f"docker network connect {NAME}", "true")
    finally:
        lab.run_on(NEAR, f"docker network rm {NAME}")


def _attach(make: str, network: str, join: str, undo: str) -> tuple[float, float]:
    """Time both on the far agent; the first container of a session's network has to join it, too."""
    container = f"--label {LABEL}=attach {SLEEP}"
    first = f"docker run --detach --name {NAME}-1 --network {network} {container}"
    # Leftovers of an earlier run are removed first, and those of this one at the end, even if it fails.
    clean = f"{{ docker rm --force {NAME}-1 {NAME}-2; {undo}; }} >/dev/null 2>&1"
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
        docker run --detach --name {NAME}-2 {container} >/dev/null
        began=$(now)
        {{ {make} && {first}; }} >/dev/null
        {f"{join} {NAME}-1" if join == "add_macvlan" else "true"}
        started=$(now)
        {join} {NAME}-2
        joined=$(now)
        set +e
        echo $began $started $joined
        exit 0
    """
    started_at, started, joined = map(float, lab.run_on(FAR, "sh -s", script).split())
    return started - started_at, joined - started
