"""The network driver ``swarm``: an overlay of a Docker Swarm that is there already. The swarm is made here, by hand."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.integration.containers import LOGIN, variables, whole
from tests.integration.internals import DEFAULT_NETWORK
from tests.integration.laboratory import AGENTS, address, at_once, everywhere, inside, on, remains
from tests.integration.session_requests import THREE
from tests.integration.sessions import Sessions, Started
from tests.integration.waiting import eventually

pytestmark = pytest.mark.network

MANAGER, *WORKERS = AGENTS
SWARM = {**THREE, "network_driver": "swarm"}
ON_WORKERS = {**SWARM, "cluster_size": 2, "designated_agents": WORKERS}
JOINED = "docker network inspect --format '{{len .Containers}}' docker_gwbridge"
# An engine that has left a swarm makes no way out of the next one's overlays before it is started anew.
LEAVE = "docker swarm leave --force; sleep 1; docker network rm docker_gwbridge; systemctl restart docker"


@pytest.fixture(scope="module")
def swarm() -> Iterator[list[str]]:
    """The agents, nodes of a swarm that the first of them manages; afterwards the agents are as they were before."""
    before = remains()
    try:
        on(MANAGER, f"docker swarm init --advertise-addr {address(MANAGER)}")
        token = on(MANAGER, "docker swarm join-token --quiet worker").strip()
        everywhere(f"docker swarm join --token {token} {address(MANAGER)}:2377", WORKERS)
        eventually(lambda: [joined.strip() for joined in everywhere(JOINED, check=False)] == ["1"] * len(AGENTS))
        yield list(AGENTS)
    finally:
        everywhere(LEAVE, check=False)
    assert remains() == before


@pytest.fixture(scope="module")
def three(swarm: list[str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Started]:
    """Three containers on three agents, of two engines, joined by an overlay."""
    asked = {**SWARM, "designated_agents": swarm, "env": {"GLOO_SOCKET_IFNAME": "chosen"}}
    with Sessions(tmp_path_factory.mktemp("three")) as made:
        session = made.start(**asked)
        again = session.again()
        assert (again.code, again.changed) == (0, 0), again.output
        yield session


def networks(agent: str) -> set[str]:
    """Return the names of an agent's networks; for a manager, also of overlays that it takes no part in."""
    return set(on(agent, "docker network ls --format '{{.Name}}'").split())


def test_without_a_swarm_nothing_is_made_and_one_sentence_says_so(sessions: Sessions) -> None:
    run = sessions.create(**SWARM)
    assert run.code != 0
    assert "session_network_driver: swarm was asked for, and agent1, agent2, agent3 are in no swarm;" in run.said
    assert run.record["status"] == "ERROR"
    assert remains() == sessions.before


def test_an_overlay_joins_containers_on_three_agents(three: Started) -> None:
    network = three.record["network"]
    assert sorted(kernel["agent"] for kernel in three.kernels) == list(AGENTS)
    assert (network["driver"], network["mtu"], network["vni"]) == ("swarm", 1450, None)
    look = "docker network inspect --format '{{.Driver}} {{.Internal}} {{.Attachable}}' " + network["name"]
    assert {on(agent, look).strip() for agent in AGENTS} == {"overlay true true"}


def test_every_container_logs_in_to_every_other_by_name(three: Started) -> None:
    kernels = three.kernels
    pairs = [(here, there["hostname"]) for here in kernels for there in kernels]
    said = at_once(*[partial(inside, here, *LOGIN, name, "hostname") for here, name in pairs])
    assert [hostname.strip() for hostname in said] == [name for _here, name in pairs]


def test_the_interface_with_the_sessions_address_is_named_to_whoever_logs_in(three: Started) -> None:
    main, *others = three.kernels
    for kernel in (main, *others):
        seen = variables(inside(main, "ssh", kernel["hostname"], "env"))
        assert seen["GLOO_SOCKET_IFNAME"] == "chosen"
        name = seen["NCCL_SOCKET_IFNAME"]
        look = f"ip -o -4 addr show dev {name}; cat /sys/class/net/{name}/mtu"
        shown = inside(kernel, "/opt/backendai/bin/busybox", "sh", "-c", look).split()
        assert shown[3].partition("/")[0] == kernel["address"]
        assert shown[-1] == "1450"


def test_the_default_route_stays_on_the_agents_default_network(three: Started) -> None:
    for kernel in three.kernels:
        route = inside(kernel, "/opt/backendai/bin/busybox", "ip", "route", "show", "default").split()
        on_default = f"docker network inspect --format '{{{{(index .IPAM.Config 0).Gateway}}}}' {DEFAULT_NETWORK}"
        assert route[2] == on(kernel["agent"], on_default).strip()
        assert "NCCL_SOCKET_IFNAME" not in inside(kernel, "env")


def test_agents_whose_engines_restart_are_whole_again_by_themselves(three: Started) -> None:
    everywhere("systemctl restart docker", WORKERS)
    seconds = eventually(lambda: whole(three.kernels))
    print(f"whole {seconds:.1f} s after the engines were up")


def test_who_manages_the_swarm_may_hold_no_container(sessions: Sessions, three: Started) -> None:
    run = sessions.create(**ON_WORKERS, command="true")
    assert run.code == 0, run.output
    assert sorted(kernel["agent"] for kernel in run.record["kernels"]) == WORKERS
    ours, other = (record["network"]["name"] for record in (run.record, three.record))
    assert {ours, other} <= networks(MANAGER)
    # It is over: the next run removes it, and its overlay with it; the other one stays.
    assert sessions.run("schedule_sessions").code == 0
    assert sessions.listed() == {}
    assert networks(MANAGER) & {ours, other} == {other}
    assert remains() == sessions.before


@pytest.mark.usefixtures("swarm")
def test_a_start_that_fails_leaves_no_overlay(sessions: Sessions, tmp_path: Path) -> None:
    broken = tmp_path / "environment.j2"
    broken.write_text("{{ 'main' if kernel.rank == 0 else kernel.nothing }}")
    run = sessions.create(**SWARM, environment_template=str(broken))
    assert run.code != 0
    assert run.record["status"] == "ERROR"
    assert "nothing" in run.said
    assert remains() == sessions.before


def test_a_tunnel_needs_another_port_than_the_swarm(sessions: Sessions, three: Started) -> None:
    refused = sessions.create(**{**SWARM, "network_driver": "vxlan"})
    assert refused.code != 0
    assert "session_vxlan_port: 4789 is used on agent1 by Docker Swarm" in refused.said
    assert remains() == sessions.before
    run = sessions.create(**{**SWARM, "network_driver": "vxlan"}, vxlan_port=7789)
    assert run.code == 0, run.output
    # Both at once: neither hears the other.
    assert whole(run.record["kernels"])
    assert whole(three.kernels)
