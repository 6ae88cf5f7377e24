"""Measures the time to attach a container to a session's network and to a Docker Swarm overlay."""

from __future__ import annotations

from tests.bench import lab
from tests.bench.paths import FAR, NEAR, SLEEP, make_overlay
from tests.bench.workload import LABEL

NAME = "bench-attach"
SUBNET, PEER, PEER_MAC, VNI = "10.127.255.0/29", "10.127.255.3", "02:00:0a:7f:ff:03", 4095


def attach_to_session_network() -> tuple[float, float]:
    """Return the seconds until a new container runs on a new network, and until a running one has joined it."""
    options = {
        "bridge.name": "bench-attach",
        "bridge.inhibit_ipv4": "true",
        "container_iface_prefix": "cluster",
        "driver.mtu": "1450",
    }
    words = " ".join(f"--opt com.docker.network.{option}={value}" for option, value in options.items())
    network = f"docker network create --internal --label {LABEL}=attach --subnet {SUBNET} {words} {NAME}"
    local, peer = lab.underlay_address(FAR), lab.underlay_address(NEAR)
    link = (
        f"ip link add bench-vx mtu 1450 type vxlan id {VNI} local {local} dstport 4789 nolearning proxy && "
        "ip link set dev bench-vx addrgenmode none master bench-attach && ip link set dev bench-vx up && "
        f"ip neigh replace {PEER} lladdr {PEER_MAC} nud permanent dev bench-vx && "
        f"bridge fdb replace {PEER_MAC} dev bench-vx dst {peer} self permanent"
    )
    undo = f"ip link del bench-vx; docker network rm {NAME}"
    return _attach(f"{network} && {link}", "backendai-default", undo)


def attach_to_swarm() -> tuple[float, float]:
    """Return the same for a Swarm overlay that is new on this agent."""
    make_overlay(NAME)
    try:
        return _attach("true", "", "true")
    finally:
        lab.run_on(NEAR, f"docker network rm {NAME}")


def _attach(make: str, default: str, undo: str) -> tuple[float, float]:
    """Time both on the far agent. Overlays connect containers to a second network automatically, ours explicitly."""
    container = f"--label {LABEL}=attach {SLEEP}"
    join = f"docker network connect {default} {NAME}-1 && " if default else ""
    create = f"docker create --name {NAME}-1 --network {NAME} {container}"
    # Leftovers of an earlier run are removed first, and those of this one at the end, even if it fails.
    clean = f"{{ docker rm --force {NAME}-1 {NAME}-2; {undo}; }} >/dev/null 2>&1"
    script = f"""
        {clean}
        trap '{clean}' EXIT
        set -e
        now() {{ date +%s.%N; }}
        docker run --detach --name {NAME}-2 {container} >/dev/null
        began=$(now)
        {{ {make} && {create} && {join}docker start {NAME}-1; }} >/dev/null
        started=$(now)
        docker network connect {NAME} {NAME}-2
        joined=$(now)
        set +e
        echo $began $started $joined
        exit 0
    """
    started_at, started, joined = map(float, lab.run_on(FAR, "sh -s", script).split())
    return started - started_at, joined - started
