"""The ports that main1 publishes on its agent for gateways."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest

from ansible_collections.backendai.cluster.plugins.module_utils._gateway.model import Gateway
from ansible_collections.backendai.cluster.plugins.module_utils._model.facts import AgentFacts
from ansible_collections.backendai.cluster.plugins.module_utils._model.network import Underlay
from ansible_collections.backendai.cluster.plugins.module_utils._model.plan import SessionPlan
from ansible_collections.backendai.cluster.plugins.module_utils._model.session import App, PublishedPort
from ansible_collections.backendai.cluster.plugins.plugin_utils._placement.place import Placement, Unschedulable
from ansible_collections.backendai.cluster.plugins.plugin_utils._planner.cluster_state import ClusterState
from ansible_collections.backendai.cluster.plugins.plugin_utils._planner.decision import (
    Decision,
    decide,
    is_feasible,
)
from ansible_collections.backendai.cluster.plugins.plugin_utils._planner.published_ports import (
    allocate_published_ports,
)
from ansible_collections.backendai.cluster.plugins.plugin_utils._planner.session_network import PlanningError
from ansible_collections.backendai.cluster.plugins.plugin_utils._planner.session_plan import make_plan
from ansible_collections.backendai.cluster.plugins.plugin_utils._request.run_options import NetworkPools
from tests.unit.builders import (
    NOW,
    POOLS,
    SESSION_ID,
    USER,
    agent_facts,
    bare_plan,
    bare_session,
    encrypted_underlay,
    readings,
    spec,
)

GATEWAYS = ("198.51.100.7", "2001:db8::7")
OPEN = dataclasses.replace(POOLS, gateways=GATEWAYS)
APPS = (App("jupyter", 8888), App("board", 6006, "tcp"))
LISTED = [{"name": "jupyter", "port": 8888}, {"name": "board", "port": 6006, "protocol": "tcp"}]


def published(
    agent: AgentFacts | None = None, pools: NetworkPools = OPEN, own_ssh_port: int | None = None
) -> tuple[PublishedPort, ...]:
    """Return the published ports of a main1 with both apps, by default on an ordinary agent."""
    return allocate_published_ports(APPS, agent or agent_facts("agent1"), pools, SESSION_ID, own_ssh_port)


def only(first: int, last: int) -> NetworkPools:
    return dataclasses.replace(OPEN, first_published_port=first, last_published_port=last)


def at(underlay: Underlay) -> AgentFacts:
    return agent_facts("agent1", underlay=underlay)


def planned(driver: str = "vxlan", pools: NetworkPools = OPEN, **changes: Any) -> SessionPlan:
    """Return the plan of a session with both apps, main1 and one sub on agent2 and one on agent1."""
    agents = [agent_facts(name) for name in ("agent1", "agent2")]
    session_spec = spec(cluster_size=3, cluster_mode="multi-node", apps=LISTED, network_driver=driver, **changes)
    return make_plan(session_spec, Placement(("agent2", "agent2", "agent1")), agents, pools, SESSION_ID, USER, NOW)


def test_nothing_is_published_where_no_gateway_could_reach_it() -> None:
    assert published(pools=POOLS) == ()
    assert published(agent_facts("agent1", underlay=None), POOLS) == ()


def test_the_way_to_main1s_sshd_comes_first_and_its_apps_in_their_order() -> None:
    ways = published()
    assert [(port.name, port.protocol, port.port) for port in ways] == [
        ("ssh", "tcp", 22),
        ("jupyter", "http", 8888),
        ("board", "tcp", 6006),
    ]
    assert {port.address for port in ways} == {"192.0.2.1"}


def test_ports_are_of_the_pool_and_differ() -> None:
    ports = [port.host_port for port in published()]
    assert len(set(ports)) == 3
    assert all(30000 <= port <= 31000 for port in ports)
    assert ports == [port.host_port for port in published()]


def test_ports_that_are_in_use_are_avoided() -> None:
    busy = agent_facts("agent1", tcp_ports=[30000, 30002])
    assert sorted(port.host_port for port in published(busy, only(30000, 30004))) == [30001, 30003, 30004]


@pytest.mark.parametrize("taken", [[], [30000], [30000, 30001]])
def test_an_exhausted_port_pool_is_reported_with_the_agent(taken: list[int]) -> None:
    with pytest.raises(PlanningError) as refused:
        published(agent_facts("agent1", tcp_ports=taken), only(30000, 30001))
    assert (
        str(refused.value)
        == "session_published_port_pool: 30000-30001 has fewer free ports on agent1 than the 3 that are needed"
    )


def test_reserved_ports_are_named_when_none_is_left() -> None:
    busy = agent_facts("agent1", tcp_ports=[30000, 30001], reserved_ports={SESSION_ID: [30001, 8888]})
    with pytest.raises(PlanningError) as refused:
        published(busy, only(30000, 30001))
    assert str(refused.value) == (
        "session_published_port_pool: 30000-30001 has fewer free ports on agent1 than the 3 that are needed;"
        " ended sessions keep 1 until all"
        " gateways have confirmed that their routes are gone: make every gateway of the inventory reachable, or"
        " remove it there, and run schedule_sessions"
    )


def test_a_reserved_port_of_an_app_on_the_agents_network_is_named() -> None:
    busy = agent_facts("agent1", tcp_ports=[8888], reserved_ports={SESSION_ID: [8888]})
    with pytest.raises(PlanningError) as refused:
        published(busy, own_ssh_port=30000)
    assert str(refused.value).startswith(
        "session_apps: an ended session keeps the port 8888 of jupyter on agent1 until all gateways have confirmed that"
        " its route is gone: "
    )


@pytest.mark.parametrize("own_ssh_port", [None, 30000])
def test_an_agent_without_an_address_is_reported(own_ssh_port: int | None) -> None:
    with pytest.raises(PlanningError) as refused:
        published(agent_facts("agent1", underlay=None), own_ssh_port=own_ssh_port)
    assert str(refused.value) == "agent_underlay_address: no address of agent1 is known that gateways could reach"


@pytest.mark.parametrize(
    ("agent", "address"),
    [
        (at(Underlay("192.0.2.1", "eth0", 1500)), "192.0.2.1"),
        (at(Underlay("2001:db8::1", "eth0", 1500)), "2001:db8::1"),
        (at(encrypted_underlay(1)), "192.0.2.1"),
        (at(encrypted_underlay(1, "2001:db8::1")), "2001:db8::1"),
    ],
    ids=["IPv4", "IPv6", "encrypted over IPv4", "encrypted over IPv6"],
)
def test_gateways_come_to_the_address_that_is_no_secret_of_the_agents(agent: AgentFacts, address: str) -> None:
    assert {port.address for port in published(agent)} == {address}


def test_on_the_agents_own_network_everything_is_reached_where_it_listens() -> None:
    assert published(own_ssh_port=30123) == (
        PublishedPort("ssh", "tcp", 30123, "192.0.2.1", 30123),
        PublishedPort("jupyter", "http", 8888, "192.0.2.1", 8888),
        PublishedPort("board", "tcp", 6006, "192.0.2.1", 6006),
    )


def test_published_apps_have_the_origins_of_all_gateways() -> None:
    sites = (Gateway("door", "a.b", 443, 31001, 32000), Gateway("door", "", 443, 31001, 32000))
    apps = ({"name": "web", "port": 80}, {"name": "code", "port": 81, "path": "none"})
    wanted = spec(apps=[*apps, {"name": "db", "port": 82, "protocol": "tcp"}])
    pools, agents = dataclasses.replace(OPEN, sites=sites), [agent_facts("agent1")]
    made = make_plan(wanted, Placement(("agent1",)), agents, pools, SESSION_ID, USER, NOW)
    by_host = {name: f"https://train-llm--{name}.a.b" for name in ("web", "code")}
    assert {port.name: port.origins for port in made.published} == {
        "ssh": (),
        "web": (by_host["web"], "https://door"),
        "code": (by_host["code"],),
        "db": (),
    }


def test_on_the_agents_own_network_no_port_of_the_pool_is_needed() -> None:
    busy = agent_facts("agent1", tcp_ports=[30000])
    assert len(published(busy, only(30000, 30000), own_ssh_port=30123)) == 3


@pytest.mark.parametrize(
    ("busy", "own_ssh_port", "taken"),
    [
        ([8888], 30123, "8888 of jupyter"),
        ([22, 6006], 30123, "6006 of board"),
        ([6006, 8888], 30123, "8888 of jupyter"),
    ],
    ids=["the first", "the last", "both"],
)
def test_on_the_agents_own_network_a_port_that_is_in_use_there_is_refused(
    busy: list[int], own_ssh_port: int, taken: str
) -> None:
    with pytest.raises(PlanningError) as refused:
        published(agent_facts("agent1", tcp_ports=busy), own_ssh_port=own_ssh_port)
    assert str(refused.value) == f"session_apps: the port {taken} is in use on agent1 itself"


def test_on_a_network_of_their_own_apps_listen_where_they_like() -> None:
    ways = published(agent_facts("agent1", tcp_ports=[8888, 6006]))
    assert [port.port for port in ways] == [22, 8888, 6006]


def test_without_gateways_no_app_ports_are_published() -> None:
    assert published(agent_facts("agent1", tcp_ports=[8888]), POOLS, own_ssh_port=8888) == ()


# ---- published ports in plans


def test_the_agent_of_main1_publishes_and_that_of_subs_nothing() -> None:
    session_plan = planned()
    assert [port.name for port in session_plan.published_on("agent2")] == ["ssh", "jupyter", "board"]
    assert {port.address for port in session_plan.published} == {"192.0.2.2"}
    assert session_plan.published_on("agent1") == ()
    assert session_plan.gateways == GATEWAYS
    assert session_plan.tcp_ports("agent2") == [port.host_port for port in session_plan.published]
    assert session_plan.tcp_ports("agent1") == []


def test_without_gateways_a_plan_publishes_nothing() -> None:
    session_plan = planned(pools=POOLS)
    assert (session_plan.published, session_plan.gateways, session_plan.tcp_ports("agent2")) == ((), (), [])


def test_on_the_host_network_each_port_is_listed_once() -> None:
    session_plan = planned("host")
    main, sub, other = session_plan.kernels
    assert [port.host_port for port in session_plan.published] == [main.ssh_port, 8888, 6006]
    assert session_plan.tcp_ports("agent2") == [main.ssh_port, sub.ssh_port, 8888, 6006]
    assert session_plan.tcp_ports("agent1") == [other.ssh_port]


def test_a_plan_with_published_ports_comes_back_from_json() -> None:
    session_plan = planned()
    assert SessionPlan.from_dict(json.loads(json.dumps(session_plan.to_dict()))) == session_plan


def test_a_plan_of_an_older_version_publishes_nothing() -> None:
    data = planned(pools=POOLS).to_dict()
    del data["published"], data["gateways"]
    session_plan = SessionPlan.from_dict(json.loads(json.dumps(data)))
    assert (session_plan.published, session_plan.gateways) == ((), ())
    assert session_plan == planned(pools=POOLS)


def test_sessions_that_are_planned_together_publish_at_different_ports() -> None:
    def started(name: str, cluster_state: ClusterState) -> SessionPlan:
        decision = decide(spec(name=name), cluster_state, only(30000, 30001), SESSION_ID, USER, NOW)
        assert isinstance(decision, Decision)
        return decision.plan

    cluster_state = readings(agent1=agent_facts("agent1"))
    first = started("first", cluster_state)
    second = started("second", cluster_state.with_plan(first))
    assert sorted(port.host_port for port in (*first.published, *second.published)) == [30000, 30001]
    full = cluster_state.with_plan(first).with_plan(second)
    assert decide(spec(name="third"), full, only(30000, 30001), SESSION_ID, USER, NOW) == Unschedulable(
        "no room; session_published_port_pool: 30000-30001 has fewer free ports on agent1 than the 1 that are needed",
        {},
    )


# ---- agents without enough ports are passed over

APP_OPTIONS = [{"name": f"a{number}", "port": 9000 + number} for number in range(3)]
POOL = only(30000, 30007)
FOUR = "session_published_port_pool: 30000-30007 has fewer free ports on {} than the 4 that are needed"


def decided(cluster_state: ClusterState, pools: NetworkPools = POOL, **changes: Any) -> Decision | Unschedulable:
    return decide(spec(**{"apps": APP_OPTIONS, **changes}), cluster_state, pools, SESSION_ID, USER, NOW)


@pytest.mark.parametrize("selection", ["concentrated", "dispersed", "roundrobin"])
def test_who_takes_all_ports_of_an_agent_does_not_keep_others_from_starting_elsewhere(selection: str) -> None:
    # agent1 is chosen first, as it has the least free cores.
    agents = {"agent1": agent_facts("agent1", cpu=4, tcp_ports=[*range(30000, 30008)]), "agent2": agent_facts("agent2")}
    decision = decided(readings(**agents), agent_selection=selection)
    assert isinstance(decision, Decision)
    assert decision.plan.agents == ["agent2"]


def test_agents_without_ports_and_those_with_a_session_of_the_name_are_passed_over_alike() -> None:
    namesake = agent_facts("agent1", sessions=[bare_session(bare_plan("train-llm", 1.0, {}))])
    busy = agent_facts("agent2", tcp_ports=[*range(30000, 30008)])
    decision = decided(readings("agent3", agent1=namesake, agent2=busy))
    assert isinstance(decision, Decision)
    assert decision.plan.agents == ["agent3"]
    refusal = Unschedulable(f"no room; {FOUR.format('agent2')}", {})
    assert decided(readings(agent1=namesake, agent2=busy)) == refusal


def test_as_many_free_ports_as_are_needed_are_enough() -> None:
    assert isinstance(decided(readings(agent1=agent_facts("agent1", tcp_ports=[*range(30000, 30004)]))), Decision)


def test_without_ports_on_any_agent_there_is_no_room_and_the_reason_names_them() -> None:
    busy = {name: agent_facts(name, tcp_ports=[*range(30000, 30005)]) for name in ("agent1", "agent2", "agent3")}
    assert decided(readings(**busy)) == Unschedulable(f"no room; {FOUR.format('agent1')}, as on agent2, agent3", {})


def test_an_agent_without_ports_is_named_where_the_others_have_no_room() -> None:
    agents = {
        "agent1": agent_facts("agent1", tcp_ports=[*range(30000, 30005)]),
        "agent2": agent_facts("agent2", cpu=2, allocated={"cpu": 2}),
    }
    refusal = decided(readings(**agents))
    assert isinstance(refusal, Unschedulable)
    assert refusal.reason.startswith("no room for 1 of 1 containers on one agent: short of cpu")
    assert refusal.reason.endswith(f"; {FOUR.format('agent1')}")


def test_a_pool_that_is_too_small_whatever_runs_is_an_error() -> None:
    cluster_state = readings("agent1")
    sentence = "session_published_port_pool: 30000-30002 has fewer ports than the 4 that are needed"
    with pytest.raises(PlanningError, match=f"^{sentence}$"):
        decided(cluster_state, only(30000, 30002))
    assert not is_feasible(spec(apps=APP_OPTIONS), cluster_state, only(30000, 30002), SESSION_ID)


def test_a_session_that_needs_ports_of_other_sessions_is_feasible_and_one_of_other_software_not() -> None:
    endpoints = (PublishedPort("ssh", "tcp", 22, "192.0.2.1", port) for port in range(30000, 30008))
    holder = dataclasses.replace(bare_plan("holder", NOW, {"agent1": [{}]}), published=tuple(endpoints))
    busy = agent_facts("agent1", tcp_ports=[*range(30000, 30008)])
    held = dataclasses.replace(busy, sessions=(bare_session(holder),))
    wanted = spec(apps=APP_OPTIONS)
    assert is_feasible(wanted, readings(recorded=[holder], agent1=held), POOL, SESSION_ID)
    assert not is_feasible(wanted, readings(agent1=busy), POOL, SESSION_ID)
    # Those without ports are chosen first, as they have the least free cores.
    others = {
        f"agent{number}": agent_facts(f"agent{number}", 4, tcp_ports=[*busy.tcp_ports]) for number in range(1, 10)
    }
    assert is_feasible(wanted, readings("agenta", **others), POOL, SESSION_ID)


SHARED: dict[str, Any] = {"network_driver": "host", "cluster_mode": "multi-node", "cluster_size": 2}


def sharing(**busy: list[int]) -> ClusterState:
    agents = {name: agent_facts(name, cpu=1, tcp_ports=ports, allow_host_network=True) for name, ports in busy.items()}
    return readings(**agents)


def test_on_a_host_network_an_agent_where_the_port_of_an_app_is_in_use_does_not_get_main1() -> None:
    decision = decided(sharing(agent1=[9001], agent2=[], agent3=[]), **SHARED)
    assert isinstance(decision, Decision)
    assert decision.plan.agents == ["agent2", "agent3"]


def test_on_a_host_network_there_is_no_room_where_the_port_of_an_app_is_in_use_everywhere() -> None:
    refusal = decided(sharing(agent1=[9001], agent2=[9002]), **SHARED)
    assert isinstance(refusal, Unschedulable)
    assert refusal.reason.endswith("; session_apps: the port 9001 of a1 is in use on agent1 itself")
    assert refusal.reason.startswith("no room for 1 of 2 containers on one agent: short of cpu")


def test_on_a_host_network_it_is_feasible_where_some_agent_for_main1_has_its_ports_free() -> None:
    asked = spec(apps=APP_OPTIONS, **SHARED)
    for second, feasible in (([], True), ([9002], False)):
        state = sharing(agent1=[9001], agent2=second, agent3=[9000])
        assert is_feasible(asked, state, POOL, SESSION_ID) is feasible
        assert isinstance(decided(state, **SHARED), Decision) is feasible
