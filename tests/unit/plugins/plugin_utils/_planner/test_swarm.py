"""Sessions on a Docker Swarm overlay: eligible agents, the manager, and obstacles."""

from __future__ import annotations

import dataclasses
import ipaddress
from typing import Any

import pytest

from ansible_collections.backendai.cluster.plugins.module_utils._model.addressing import upper_half
from ansible_collections.backendai.cluster.plugins.module_utils._model.facts import AgentFacts, Swarm
from ansible_collections.backendai.cluster.plugins.module_utils._model.network import Underlay
from ansible_collections.backendai.cluster.plugins.module_utils._model.plan import SessionPlan
from ansible_collections.backendai.cluster.plugins.plugin_utils._lifecycle.termination import end_session
from ansible_collections.backendai.cluster.plugins.plugin_utils._placement.place import Unschedulable
from ansible_collections.backendai.cluster.plugins.plugin_utils._planner.cluster_state import ClusterState
from ansible_collections.backendai.cluster.plugins.plugin_utils._planner.decision import Decision, decide
from ansible_collections.backendai.cluster.plugins.plugin_utils._planner.session_network import (
    PlanningError,
    find_swarm_managers,
)
from ansible_collections.backendai.cluster.plugins.plugin_utils._request.run_options import NetworkPools
from tests.unit.builders import (
    NOW,
    POOLS,
    SESSION_ID,
    USER,
    agent_facts,
    held_session,
    public_keys,
    readings,
    requested,
    spec,
)

SWARM = {"network_driver": "swarm", "cluster_mode": "multi-node", "cluster_size": 3}


def node(name: str, *manages: str, port: int = 4789) -> dict[str, Any]:
    """Return an agent's swarm facts; its own node and those that it manages are named after agents."""
    return {
        "node": f"node-{name}",
        "nodes": [f"node-{member}" for member in manages],
        "port": port if manages else 0,
    }


def members(*names: str, **changes: Any) -> dict[str, AgentFacts]:
    """Return the agents of a swarm, the first as its manager, each with capacity for one container."""
    return {
        name: agent_facts(name, 1, swarm=node(name, *(names if name == names[0] else ())), **changes) for name in names
    }


def decided(cluster_state: ClusterState, pools: NetworkPools = POOLS, **changes: Any) -> SessionPlan:
    """Return the plan of a session with three containers over a swarm."""
    decision = decide(spec(**{**SWARM, **changes}), cluster_state, pools, SESSION_ID, USER, NOW)
    assert isinstance(decision, Decision)
    return decision.plan


def test_the_first_manager_by_name_makes_the_networks_of_its_swarm() -> None:
    both = ("agent1", "agent2", "agent3")
    agents = [
        agent_facts("agent3", swarm=node("agent3", *both)),
        agent_facts("agent1", swarm=node("agent1")),
        agent_facts("agent2", swarm=node("agent2", *both)),
        agent_facts("agent4", swarm=node("agent4", "agent4", "agent5")),
        agent_facts("agent5", swarm=node("agent5")),
        agent_facts("agent6", swarm=node("agent6")),
        agent_facts("agent7"),
    ]
    assert find_swarm_managers(agents) == {**dict.fromkeys(both, "agent2"), "agent4": "agent4", "agent5": "agent4"}


def test_a_node_that_is_not_ready_is_left_out() -> None:
    agents = [agent_facts("agent1", swarm=node("agent1", "agent1")), agent_facts("agent2", swarm=node("agent2"))]
    assert find_swarm_managers(agents) == {"agent1": "agent1"}


def test_a_session_over_a_swarm_has_an_overlay_that_its_manager_makes() -> None:
    session_plan = decided(readings(**members("agent1", "agent2", "agent3")))
    assert session_plan.network is not None
    assert dataclasses.asdict(session_plan.network) == {
        "driver": "swarm",
        "name": "backendai-train-llm",
        "subnet": session_plan.network.subnet,
        "mtu": 1450,
        "bridge": None,
        "vni": None,
        "port": None,
        "link": None,
        "swarm_manager": "agent1",
    }
    assert (session_plan.underlays, session_plan.agents) == ({}, ["agent1", "agent2", "agent3"])
    assert [kernel.mac for kernel in session_plan.kernels] == [None] * 3
    assert session_plan.interface_on("agent1") == ""
    assert SessionPlan.from_dict(session_plan.to_dict()) == session_plan


@pytest.mark.parametrize("size", [2, 3, 4, 5, 13, 14, 15])
def test_the_upper_half_of_the_subnet_is_reserved_for_swarm(size: int) -> None:
    names = [f"agent{number}" for number in range(1, 10)] + [f"agent{letter}" for letter in "abcdef"]
    session_plan = decided(readings(**members(*names[:size])), cluster_size=size)
    assert session_plan.network is not None
    assert session_plan.network.subnet is not None
    half = ipaddress.IPv4Network(upper_half(session_plan.network.subnet))
    addresses = [ipaddress.IPv4Address(kernel.address or "") for kernel in session_plan.kernels]
    assert not any(address in half for address in addresses)
    assert half.broadcast_address == ipaddress.IPv4Network(session_plan.network.subnet).broadcast_address
    assert half.num_addresses - 1 >= size


def test_a_manager_without_a_container_takes_part_as_the_last_one() -> None:
    cluster_state = readings(**members("agent1", "agent2", "agent3"))
    session_plan = decided(cluster_state, cluster_size=2, designated_agents=["agent2", "agent3"])
    assert session_plan.agents == ["agent2", "agent3", "agent1"]
    assert session_plan.kernels_on("agent1") == []
    assert session_plan.cluster_mode == "multi-node"
    facts = cluster_state.with_plan(session_plan).facts["agent1"]
    assert (facts.sessions[0].id, facts.containers, facts.allocated) == (SESSION_ID, 0, {})


def test_a_subnet_that_only_the_manager_uses_is_taken() -> None:
    data = members("agent1", "agent2", "agent3")
    data["agent1"] = dataclasses.replace(data["agent1"], networks=("10.128.0.0/28",))
    pools = dataclasses.replace(POOLS, network="10.128.0.0/27")
    session_plan = decided(readings(**data), pools, cluster_size=2, designated_agents=["agent2", "agent3"])
    assert session_plan.network is not None
    assert session_plan.network.subnet in ("10.128.0.16/29", "10.128.0.24/29")


def test_agents_outside_of_the_swarm_hold_nothing() -> None:
    cluster_state = readings("agent4", "agent5", **members("agent1", "agent2", "agent3"))
    assert decided(cluster_state).agents == ["agent1", "agent2", "agent3"]


def test_swarms_do_not_mix() -> None:
    cluster_state = readings(**members("agent1", "agent2"), **members("agent3", "agent4"))
    decision = decide(spec(**SWARM), cluster_state, POOLS, SESSION_ID, USER, NOW)
    assert isinstance(decision, Unschedulable)
    session_plan = decided(readings(**members("agent1", "agent2"), **members("agent3", "agent4", "agent5")))
    assert (session_plan.agents, session_plan.network and session_plan.network.swarm_manager) == (
        ["agent3", "agent4", "agent5"],
        "agent3",
    )


def test_one_agent_needs_no_overlay() -> None:
    data = members("agent1", "agent2")
    data["agent2"] = agent_facts("agent2", 8, swarm=data["agent2"].swarm)
    session_plan = decided(readings(**data))
    assert session_plan.network is not None
    assert (session_plan.network.driver, session_plan.network.swarm_manager, session_plan.agents) == (
        "bridge",
        None,
        ["agent2"],
    )


@pytest.mark.parametrize(
    "options", [{"cluster_mode": "single-node"}, {"cluster_size": 1}], ids=["on one agent", "a session of one"]
)
def test_a_session_on_one_agent_needs_no_swarm(options: dict[str, Any]) -> None:
    assert decided(readings("agent1", "agent2"), **options).agents == ["agent1"]


ASKED = "session_network_driver: swarm was requested"
WAY_OUT = "; make them nodes of one swarm, or choose vxlan"


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (
            {"agent1": agent_facts("agent1"), "agent2": agent_facts("agent2")},
            f"{ASKED}, and agent1, agent2 are in no swarm{WAY_OUT}",
        ),
        (
            {name: agent_facts(name, swarm=node(name)) for name in ("agent1", "agent2")},
            f"{ASKED}, and no agent that can be used manages the swarm of agent1, agent2{WAY_OUT}",
        ),
        (
            {"agent1": agent_facts("agent1"), "agent2": agent_facts("agent2", swarm=node("agent2"))},
            f"{ASKED}, and agent1 is in no swarm and no agent that can be used manages the swarm of agent2{WAY_OUT}",
        ),
    ],
    ids=["no swarm", "no manager", "neither"],
)
def test_where_no_agent_can_use_a_swarm_one_sentence_says_why(data: dict[str, Any], sentence: str) -> None:
    with pytest.raises(PlanningError) as raised:
        decided(readings(**data))
    assert str(raised.value) == sentence


def test_designated_agents_outside_of_the_swarm_are_named() -> None:
    cluster_state = readings("agent4", "agent5", **members("agent1", "agent2", "agent3"))
    with pytest.raises(PlanningError, match="and agent4, agent5 are in no swarm;"):
        decided(cluster_state, designated_agents=["agent4", "agent5"])


@pytest.mark.parametrize("port", [4789, 7789])
def test_tunnels_at_the_port_of_the_swarm_are_in_its_way(port: int) -> None:
    data = members("agent1", "agent2", "agent3")
    manager = node("agent1", *data, port=port)
    data["agent1"] = agent_facts("agent1", 1, swarm=manager)
    data["agent3"] = agent_facts("agent3", 1, swarm=node("agent3"), tunnel_ports=[4789])
    if port == 7789:
        assert decided(readings(**data)).agents == ["agent1", "agent2", "agent3"]
        return
    with pytest.raises(PlanningError) as raised:
        decided(readings(**data))
    assert str(raised.value) == (
        "session_network_driver: swarm was requested, its UDP port is 4789, and sessions with a VXLAN at that port run"
        " on agent3: end them first, or choose vxlan"
    )


@pytest.mark.parametrize(("swarm_port", "refused"), [(4789, True), (4790, False)])
def test_a_tunnel_avoids_the_port_that_the_manager_of_the_swarm_reports(swarm_port: int, refused: bool) -> None:
    data = members("agent1", "agent2", "agent3")
    data["agent1"] = agent_facts("agent1", 1, swarm=node("agent1", *data, port=swarm_port), schedulable=False)
    options: dict[str, Any] = {"network_driver": "vxlan", "cluster_size": 2}
    if not refused:
        assert decided(readings(**data), **options).agents == ["agent2", "agent3"]
        return
    with pytest.raises(PlanningError, match="session_vxlan_port: 4789 is used on agent2 by Docker Swarm"):
        decided(readings(**data), **options)


def test_the_port_of_a_swarm_that_no_agent_manages_is_docker_s_default() -> None:
    data = {name: agent_facts(name, 1, swarm=node(name)) for name in ("agent1", "agent2")}
    with pytest.raises(PlanningError, match="session_vxlan_port: 4789 is used on agent1 by Docker Swarm"):
        decided(readings(**data), network_driver="vxlan", cluster_size=2)


def test_an_overlay_is_refused_where_agents_encrypt() -> None:
    data = members("agent1", "agent2", "agent3", underlay=Underlay("192.0.2.1", "bai-wg", 1420, public_key="key"))
    with pytest.raises(PlanningError) as raised:
        decided(readings(**data))
    assert str(raised.value) == (
        f"{ASKED}, and agent1 has agent_underlay_encryption, which an overlay does not use: choose vxlan"
    )


def test_an_underlay_too_small_for_an_overlay_is_refused() -> None:
    data = members("agent1", "agent2", "agent3")
    data["agent2"] = dataclasses.replace(data["agent2"], underlay=Underlay("192.0.2.2", "eth0", 1300))
    with pytest.raises(PlanningError, match="eth0 of agent2 has an MTU of 1300, an overlay needs at least 1330"):
        decided(readings(**data))


def test_a_session_is_committed_only_when_its_manager_has_committed_too() -> None:
    cluster_state = readings(**members("agent1", "agent2", "agent3"))
    options: dict[str, Any] = {"cluster_size": 2, "designated_agents": ["agent2", "agent3"]}
    session_plan = decided(cluster_state, **options)
    for committed, keys in ((True, public_keys(session_plan)), (False, {})):
        parts = {name: held_session(session_plan, name) for name in session_plan.agents}
        parts["agent1"] = dataclasses.replace(parts["agent1"], committed=committed)
        data = {name: dataclasses.replace(cluster_state.facts[name], sessions=(part,)) for name, part in parts.items()}
        decision = decide(
            spec(**{**SWARM, **options}), readings(recorded=[session_plan], **data), POOLS, session_plan.id, USER, NOW
        )
        assert isinstance(decision, Decision)
        assert (decision.existing, decision.plan, set(decision.public_keys)) == (True, session_plan, set(keys))


def test_the_swarm_manager_releases_the_session_last() -> None:
    session_plan = decided(readings(**members("agent1", "agent2", "agent3")))
    agents = {name: agent_facts(name, sessions=[held_session(session_plan, name)]) for name in session_plan.agents}
    entry = requested(id=session_plan.id, name=session_plan.name, state="RUNNING", plan=session_plan)
    end = end_session(session_plan.name, "", [entry], ClusterState(agents, {}), force=False, now=NOW)
    assert end.agents == ("agent2", "agent3", "agent1")


def test_facts_tell_the_place_in_a_swarm() -> None:
    facts = agent_facts("agent1", swarm=node("agent1", "agent1"))
    assert facts.swarm == Swarm("node-agent1", ("node-agent1",), 4789)
    assert agent_facts("agent1").swarm is None
