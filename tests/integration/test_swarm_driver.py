"""The network driver ``swarm``: an overlay of an existing Docker Swarm, which these tests create."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.integration.containers import LOGIN, all_can_log_in, parse_environment
from tests.integration.internals import DEFAULT_NETWORK
from tests.integration.laboratory import AGENTS, address, agent_state, in_parallel, run_in, run_on, run_on_all
from tests.integration.session_requests import THREE
from tests.integration.sessions import Sessions, StartedSession
from tests.integration.waiting import wait_until

pytestmark = [pytest.mark.network, pytest.mark.long]

MANAGER, *WORKERS = AGENTS
SWARM = {**THREE, "network_driver": "swarm"}
ON_WORKERS = {**SWARM, "cluster_size": 2, "designated_agents": WORKERS}
COUNT_GWBRIDGE_CONTAINERS = "docker network inspect --format '{{len .Containers}}' docker_gwbridge"
# An engine that has left a swarm creates no gateway bridge for the next swarm before it is restarted.
LEAVE = "docker swarm leave --force; sleep 1; docker network rm docker_gwbridge; systemctl restart docker"


@pytest.fixture(scope="module")
def swarm() -> Iterator[list[str]]:
    """The agents as nodes of a swarm, the first of them its manager; afterwards their state is restored."""
    before = agent_state()
    try:
        run_on(MANAGER, f"docker swarm init --advertise-addr {address(MANAGER)}")
        token = run_on(MANAGER, "docker swarm join-token --quiet worker").strip()
        run_on_all(f"docker swarm join --token {token} {address(MANAGER)}:2377", WORKERS)
        wait_until(
            lambda: (
                [joined.strip() for joined in run_on_all(COUNT_GWBRIDGE_CONTAINERS, check=False)] == ["1"] * len(AGENTS)
            )
        )
        yield list(AGENTS)
    finally:
        run_on_all(LEAVE, check=False)
    assert agent_state() == before


@pytest.fixture(scope="module")
def three(swarm: list[str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[StartedSession]:
    """Three containers on three agents with two engine versions, connected by an overlay."""
    request = {**SWARM, "designated_agents": swarm, "env": {"GLOO_SOCKET_IFNAME": "chosen"}}
    with Sessions(tmp_path_factory.mktemp("three")) as sessions:
        session = sessions.start(**request)
        rerun = session.create_again()
        assert (rerun.code, rerun.changed) == (0, 0), rerun.output
        yield session


def networks(agent: str) -> set[str]:
    """Return the names of an agent's networks; for a Swarm manager, also of overlays without a container there."""
    return set(run_on(agent, "docker network ls --format '{{.Name}}'").split())


def test_missing_swarm_is_an_error_and_nothing_is_created(sessions: Sessions) -> None:
    run = sessions.create(**SWARM)
    assert run.code != 0
    assert "session_network_driver: swarm was requested, and agent1, agent2, agent3 are in no swarm;" in run.text
    assert run.record["status"] == "ERROR"
    assert agent_state() == sessions.initial_state


def test_an_overlay_joins_containers_on_three_agents(three: StartedSession) -> None:
    network = three.record["network"]
    assert sorted(kernel["agent"] for kernel in three.kernels) == list(AGENTS)
    assert (network["driver"], network["mtu"], network["vni"]) == ("swarm", 1450, None)
    look = "docker network inspect --format '{{.Driver}} {{.Internal}} {{.Attachable}}' " + network["name"]
    assert {run_on(agent, look).strip() for agent in AGENTS} == {"overlay true true"}


def test_every_container_logs_in_to_every_other_by_name(three: StartedSession) -> None:
    kernels = three.kernels
    pairs = [(source, target["hostname"]) for source in kernels for target in kernels]
    outputs = in_parallel(*[partial(run_in, source, *LOGIN, name, "hostname") for source, name in pairs])
    assert [hostname.strip() for hostname in outputs] == [name for _source, name in pairs]


def test_logins_get_the_session_interface(three: StartedSession) -> None:
    main, *others = three.kernels
    for kernel in (main, *others):
        environment = parse_environment(run_in(main, "ssh", kernel["hostname"], "env"))
        assert environment["GLOO_SOCKET_IFNAME"] == "chosen"
        name = environment["NCCL_SOCKET_IFNAME"]
        look = f"ip -o -4 addr show dev {name}; cat /sys/class/net/{name}/mtu"
        shown = run_in(kernel, "/opt/backendai/bin/busybox", "sh", "-c", look).split()
        assert shown[3].partition("/")[0] == kernel["address"]
        assert shown[-1] == "1450"


def test_the_default_route_stays_on_the_agents_default_network(three: StartedSession) -> None:
    for kernel in three.kernels:
        route = run_in(kernel, "/opt/backendai/bin/busybox", "ip", "route", "show", "default").split()
        on_default = f"docker network inspect --format '{{{{(index .IPAM.Config 0).Gateway}}}}' {DEFAULT_NETWORK}"
        assert route[2] == run_on(kernel["agent"], on_default).strip()
        assert "NCCL_SOCKET_IFNAME" not in run_in(kernel, "env")


def test_restarted_engines_restore_the_session(three: StartedSession) -> None:
    run_on_all("systemctl restart docker", WORKERS)
    seconds = wait_until(lambda: all_can_log_in(three.kernels))
    print(f"restored {seconds:.1f} s after the engines were up")


def test_swarm_manager_may_run_no_container(sessions: Sessions, three: StartedSession) -> None:
    run = sessions.create(**ON_WORKERS, command="true")
    assert run.code == 0, run.output
    assert sorted(kernel["agent"] for kernel in run.record["kernels"]) == WORKERS
    ours, other = (record["network"]["name"] for record in (run.record, three.record))
    assert {ours, other} <= networks(MANAGER)
    # The session has ended: the next run removes it with its overlay, but not the other one.
    assert sessions.run("schedule_sessions").code == 0
    assert sessions.list_by_name() == {}
    assert networks(MANAGER) & {ours, other} == {other}
    assert agent_state() == sessions.initial_state


@pytest.mark.usefixtures("swarm")
def test_failed_start_leaves_no_overlay(sessions: Sessions, tmp_path: Path) -> None:
    broken = tmp_path / "environment.j2"
    broken.write_text("{{ 'main' if kernel.rank == 0 else kernel.nothing }}")
    run = sessions.create(**SWARM, environment_template=str(broken))
    assert run.code != 0
    assert run.record["status"] == "ERROR"
    assert "nothing" in run.text
    assert agent_state() == sessions.initial_state


def test_a_tunnel_needs_another_port_than_the_swarm(sessions: Sessions, three: StartedSession) -> None:
    refused = sessions.create(**{**SWARM, "network_driver": "vxlan"})
    assert refused.code != 0
    assert "session_vxlan_port: 4789 is used on agent1 by Docker Swarm" in refused.text
    assert agent_state() == sessions.initial_state
    run = sessions.create(**{**SWARM, "network_driver": "vxlan"}, vxlan_port=7789)
    assert run.code == 0, run.output
    # Both networks work at the same time.
    assert all_can_log_in(run.record["kernels"])
    assert all_can_log_in(three.kernels)
