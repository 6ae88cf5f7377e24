"""Sessions with the network driver host."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest

from ansible_collections.backendai.cluster.plugins.module_utils._model.environment import (
    build_environment,
    session_environment,
)
from ansible_collections.backendai.cluster.plugins.module_utils._model.facts import AgentFacts
from ansible_collections.backendai.cluster.plugins.module_utils._model.network import Network
from ansible_collections.backendai.cluster.plugins.module_utils._model.plan import SessionPlan
from ansible_collections.backendai.cluster.plugins.module_utils._model.validation import ValidationError
from ansible_collections.backendai.cluster.plugins.module_utils._session.contents import known_hosts, ssh_ports_file
from ansible_collections.backendai.cluster.plugins.plugin_utils._placement.place import Unschedulable
from ansible_collections.backendai.cluster.plugins.plugin_utils._planner.cluster_state import ClusterState
from ansible_collections.backendai.cluster.plugins.plugin_utils._planner.decision import (
    Decision,
    decide,
    is_feasible,
)
from ansible_collections.backendai.cluster.plugins.plugin_utils._planner.session_network import PlanningError
from ansible_collections.backendai.cluster.plugins.plugin_utils._report.record import session_record
from ansible_collections.backendai.cluster.plugins.plugin_utils._request.run_options import NetworkPools
from tests.unit.builders import (
    NOW,
    POOLS,
    SESSION_ID,
    USER,
    agent_facts,
    plan,
    public_keys,
    readings,
    spec,
)

TWO_AND_TWO = {"agent1": 2, "agent2": 2}
ASKED = spec(cluster_mode="multi-node", cluster_size=4, agent_selection="dispersed", network_driver="host")


def shared(agents: list[AgentFacts] | None = None, counts: dict[str, int] | None = None, **changes: Any) -> SessionPlan:
    """Return the plan of a session on the host network, by default with two containers on each of two agents."""
    return plan(counts or TWO_AND_TWO, agents, network_driver="host", **changes)


def sharing(*names: str, **changes: Any) -> dict[str, AgentFacts]:
    """Return the facts of agents that allow the host network."""
    return {name: agent_facts(name, allow_host_network=True, **changes) for name in names}


def decided(read: ClusterState, pools: NetworkPools = POOLS, **changes: Any) -> Decision | Unschedulable:
    return decide(dataclasses.replace(ASKED, **changes), read, pools, SESSION_ID, USER, NOW)


def planned(read: ClusterState, pools: NetworkPools = POOLS, **changes: Any) -> SessionPlan:
    decision = decided(read, pools, **changes)
    assert isinstance(decision, Decision)
    return decision.plan


def test_containers_have_the_addresses_of_their_agents_and_a_port_each() -> None:
    session_plan = shared()
    assert [kernel.address for kernel in session_plan.kernels] == ["192.0.2.1", "192.0.2.1", "192.0.2.2", "192.0.2.2"]
    assert [kernel.mac for kernel in session_plan.kernels] == [None] * 4
    assert len({(kernel.agent, kernel.ssh_port) for kernel in session_plan.kernels}) == 4
    assert all(30000 <= kernel.ssh_port <= 32767 for kernel in session_plan.kernels)
    assert session_plan.host_ports("agent1") == [kernel.ssh_port for kernel in session_plan.kernels[:2]]
    assert sorted(session_plan.underlays) == ["agent1", "agent2"]


def test_the_network_is_the_agents_own() -> None:
    wide = agent_facts("agent2", underlay={"address": "192.0.2.2", "interface": "ib0", "mtu": 9000})
    session_plan = shared([agent_facts("agent1"), wide])
    assert session_plan.network == Network("host", "host", None, 1500, None)
    record = session_record(session_plan, "RUNNING")
    assert record["network"] == {"driver": "host", "name": "host", "subnet": None, "mtu": 1500, "vni": None}
    assert session_plan.lines()[1] == "network host, mtu 1500"
    assert session_plan.lines()[2].startswith(f"main1 on agent1: 192.0.2.1:{session_plan.kernels[0].ssh_port}, ")


def test_a_plan_comes_back_from_json() -> None:
    session_plan = shared()
    assert SessionPlan.from_dict(json.loads(json.dumps(session_plan.to_dict()))) == session_plan


def test_on_one_agent_the_network_is_a_private_bridge() -> None:
    session_plan = shared(counts={"agent1": 3})
    assert session_plan.network is not None
    assert session_plan.network.driver == "bridge"
    assert [kernel.ssh_port for kernel in session_plan.kernels] == [22] * 3
    assert (session_plan.host_ports("agent1"), ssh_ports_file(session_plan.kernels)) == ([], "")


def test_ports_that_are_in_use_are_avoided() -> None:
    busy = frozenset(range(30000, 30010))
    pools = dataclasses.replace(POOLS, first_host_port=30000, last_host_port=30011)
    agents = sharing("agent1", "agent2", tcp_ports=sorted(busy))
    session_plan = planned(readings(**agents), pools)
    assert [sorted(session_plan.host_ports(name)) for name in session_plan.agents] == [[30010, 30011]] * 2


def test_sessions_that_are_planned_together_get_different_ports() -> None:
    first = planned(readings(**sharing("agent1", "agent2")))
    second = planned(readings(**sharing("agent1", "agent2")).with_plan(first), name="other")
    for agent in first.agents:
        assert len({*first.host_ports(agent), *second.host_ports(agent)}) == 4


def test_a_pool_without_ports_is_named() -> None:
    pools = dataclasses.replace(POOLS, first_host_port=30000, last_host_port=30000)
    refusal = decided(readings(**sharing("agent1", "agent2", cpu=2)), pools)
    assert isinstance(refusal, Unschedulable)
    assert refusal.reason.endswith("; session_host_port_pool: 30000-30000 has no port left on agent1")


@pytest.mark.parametrize(
    ("underlay", "sentence"),
    [
        (None, "agent_underlay_address: no address of agent2 is known that its peers could reach"),
        (
            {"address": "192.0.2.2", "interface": "tun0", "mtu": 1279},
            "agent_underlay_address: tun0 of agent2 has an MTU of 1279, the network driver host needs at least 1280",
        ),
        (
            {"address": "2001:db8::2", "interface": "eth0", "mtu": 1500},
            (
                "agent_underlay_address: agent1 has 192.0.2.1 and agent2 has 2001:db8::2, the network driver host needs"
                " addresses of one kind"
            ),
        ),
    ],
    ids=["none", "small", "two kinds"],
)
def test_an_underlay_that_will_not_do_is_named(underlay: dict[str, Any] | None, sentence: str) -> None:
    with pytest.raises(PlanningError) as refused:
        shared([agent_facts("agent1"), agent_facts("agent2", underlay=underlay)])
    assert str(refused.value) == sentence


def test_the_smallest_mtu_that_frameworks_know_is_enough() -> None:
    small = {"address": "192.0.2.2", "interface": "tun0", "mtu": 1280}
    session_plan = shared([agent_facts("agent1"), agent_facts("agent2", underlay=small)])
    assert session_plan.network is not None
    assert session_plan.network.mtu == 1280


def test_underlays_over_ipv6_are_refused() -> None:
    agents = [
        agent_facts(f"agent{number}", underlay={"address": f"fd00::{number}", "interface": "eth0", "mtu": 1500})
        for number in (1, 2)
    ]
    sentence = r"^agent_underlay_address: agent1 has fd00::1, the network driver host needs IPv4$"
    with pytest.raises(PlanningError, match=sentence):
        shared(agents)


def test_only_agents_that_share_their_network_are_taken() -> None:
    session_plan = planned(readings("agent1", **sharing("agent2", "agent3")))
    assert sorted(session_plan.agents) == ["agent2", "agent3"]


def test_it_is_refused_where_no_agent_shares_its_network() -> None:
    sentence = (
        r"^session_network_driver: 'host' needs agent_allow_host_network: true, and none of agent1, agent2 has it\.$"
    )
    with pytest.raises(ValidationError, match=sentence):
        decided(readings("agent1", "agent2"))
    assert not is_feasible(ASKED, readings("agent1", "agent2"), POOLS, SESSION_ID)


@pytest.mark.parametrize("changes", [{"cluster_mode": "single-node"}, {"cluster_size": 1}], ids=["single-node", "one"])
def test_a_session_that_cannot_be_spread_needs_no_permission(changes: dict[str, Any]) -> None:
    decision = decide(dataclasses.replace(ASKED, **changes), readings("agent1", "agent2"), POOLS, SESSION_ID, USER, NOW)
    assert isinstance(decision, Decision)
    assert decision.plan.network is None or decision.plan.network.driver == "bridge"


def test_known_hosts_have_the_form_that_ssh_looks_for_with_a_port() -> None:
    session_plan = shared()
    main = session_plan.kernels[0]
    first = known_hosts(session_plan.kernels, public_keys(session_plan)).splitlines()[0]
    assert first == f"main1,[main1]:{main.ssh_port},[192.0.2.1]:{main.ssh_port} ssh-ed25519 HOST-main1"


def test_containers_get_the_address_and_port_of_each_other() -> None:
    session_plan = shared()
    assert ssh_ports_file(session_plan.kernels).splitlines() == [
        f"{kernel.hostname} {kernel.address} {kernel.ssh_port}" for kernel in session_plan.kernels
    ]


@pytest.mark.parametrize("name", ["NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME"])
def test_frameworks_get_the_interface_of_the_underlay(name: str) -> None:
    ib = {"address": "192.0.2.2", "interface": "ib0", "mtu": 1500}
    session_plan = shared([agent_facts("agent1"), agent_facts("agent2", underlay=ib)])
    rows = [
        build_environment({}, session_environment(session_plan, kernel), session_plan.interface_on(kernel.agent))[name]
        for kernel in session_plan.kernels
    ]
    assert rows == ["eth0", "eth0", "ib0", "ib0"]
    assert (
        build_environment({name: "ib1"}, session_environment(session_plan, session_plan.kernels[0]), "eth0")[name]
        == "ib1"
    )


def test_on_a_session_network_the_interface_is_the_same_everywhere() -> None:
    assert [plan().interface_on(agent) for agent in TWO_AND_TWO] == ["cluster0", "cluster0"]
