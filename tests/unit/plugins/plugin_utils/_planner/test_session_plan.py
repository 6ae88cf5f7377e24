"""Plans of sessions."""

from __future__ import annotations

import json
import uuid
from dataclasses import replace
from typing import Any

import pytest

from ansible_collections.backendai.cluster.plugins.module_utils._model.facts import AgentFacts
from ansible_collections.backendai.cluster.plugins.module_utils._model.plan import SessionPlan
from ansible_collections.backendai.cluster.plugins.plugin_utils._placement.place import Placement
from ansible_collections.backendai.cluster.plugins.plugin_utils._planner.session_network import PlanningError
from ansible_collections.backendai.cluster.plugins.plugin_utils._planner.session_plan import make_plan
from ansible_collections.backendai.cluster.plugins.plugin_utils._request.run_options import NetworkPools
from tests.unit.builders import GIB, IMAGE, NOW, POOLS, SESSION_ID, USER, agent_facts, encrypted_underlay, plan, spec

TWO_AND_TWO = {"agent1": 2, "agent2": 2}


def refusal(agents: list[AgentFacts], pools: NetworkPools = POOLS) -> str:
    """Return the error message for a session with one container on each of those agents."""
    session_spec = spec(cluster_size=len(agents), cluster_mode="multi-node")
    placement = Placement(tuple(agent.name for agent in agents))
    with pytest.raises(PlanningError) as refused:
        make_plan(session_spec, placement, agents, pools, SESSION_ID, USER, NOW)
    return str(refused.value)


@pytest.mark.parametrize("counts", [{"agent1": 1}, {"agent1": 4}, TWO_AND_TWO], ids=["one", "bridge", "vxlan"])
def test_a_plan_comes_back_from_json(counts: dict[str, int]) -> None:
    session_plan = plan(counts, mounts=[{"source": "/mnt", "target": "/data", "read_only": True}])
    assert SessionPlan.from_dict(json.loads(json.dumps(session_plan.to_dict()))) == session_plan


def test_a_plan_has_its_user_command_and_failure_policy() -> None:
    session_plan = plan({"agent1": 1}, command="date", failure_policy="terminate", resource_group="gpu")
    assert (session_plan.user, session_plan.created_at, session_plan.resource_group) == (USER, NOW, "gpu")
    assert (session_plan.command, session_plan.failure_policy) == ("date", "terminate")


def test_containers_of_roles_have_what_their_role_says() -> None:
    worker = {"replicas": 2, "image": "other:1", "resources": {"cpu": 4}}
    session_plan = plan({"agent1": 2, "agent2": 2}, cluster_size=1, roles={"worker": worker, "main": {}, "ps": {}})
    assert [
        (kernel.rank, kernel.hostname, kernel.index, kernel.image, kernel.resources["cpu"], kernel.agent)
        for kernel in session_plan.kernels
    ] == [
        (0, "main1", 1, IMAGE, 1, "agent1"),
        (1, "worker1", 1, "other:1", 4, "agent1"),
        (2, "worker2", 2, "other:1", 4, "agent2"),
        (3, "ps1", 1, IMAGE, 1, "agent2"),
    ]
    assert session_plan.images == [IMAGE, "other:1"]
    assert session_plan.kernels[0].id == SESSION_ID
    assert session_plan.lines()[0] == f"session train-llm: multi-node, 4 containers of {IMAGE}, other:1"


def test_the_agent_of_each_container_is_that_of_its_rank() -> None:
    hosts = ("agent2", "agent1", "agent2")
    session_spec = spec(cluster_size=3, cluster_mode="multi-node")
    facts = [agent_facts("agent1"), agent_facts("agent2"), agent_facts("agent3", underlay=None)]
    session_plan = make_plan(session_spec, Placement(hosts), facts, POOLS, SESSION_ID, USER, NOW)
    assert tuple(kernel.agent for kernel in session_plan.kernels) == hosts
    assert session_plan.agents == list(session_plan.underlays) == ["agent2", "agent1"]


def test_the_same_input_gives_the_same_plan() -> None:
    assert plan(TWO_AND_TWO) == plan(TWO_AND_TWO)


def test_containers_are_named_and_numbered_in_rank_order() -> None:
    session_plan = plan({"agent2": 3, "agent1": 1})
    assert [
        (kernel.rank, kernel.role, kernel.index, kernel.hostname, kernel.agent, kernel.container)
        for kernel in session_plan.kernels
    ] == [
        (0, "main", 1, "main1", "agent2", "backendai-train-llm-main1"),
        (1, "sub", 1, "sub1", "agent2", "backendai-train-llm-sub1"),
        (2, "sub", 2, "sub2", "agent2", "backendai-train-llm-sub2"),
        (3, "sub", 3, "sub3", "agent1", "backendai-train-llm-sub3"),
    ]
    assert session_plan.agents == ["agent2", "agent1"]
    assert [kernel.hostname for kernel in session_plan.kernels_on("agent2")] == ["main1", "sub1", "sub2"]
    assert session_plan.kernels_on("agent3") == []


def test_main1_has_the_session_id_and_other_ids_are_unique() -> None:
    ids = [kernel.id for kernel in plan(TWO_AND_TWO).kernels]
    assert ids[0] == SESSION_ID
    assert len({uuid.UUID(value) for value in ids}) == 4


@pytest.mark.parametrize(
    ("counts", "mode", "in_effect"),
    [
        ({"agent1": 1}, "single-node", "single-node"),
        ({"agent1": 4}, "single-node", "single-node"),
        ({"agent1": 1}, "multi-node", "single-node"),
        ({"agent1": 4}, "multi-node", "single-node"),
        (TWO_AND_TWO, "multi-node", "multi-node"),
    ],
)
def test_the_mode_in_effect_follows_the_number_of_agents(counts: dict[str, int], mode: str, in_effect: str) -> None:
    session_plan = plan(counts, cluster_mode=mode)
    assert (session_plan.requested_cluster_mode, session_plan.cluster_mode) == (mode, in_effect)


def test_a_session_of_one_has_no_network() -> None:
    session_plan = plan({"agent1": 1})
    assert session_plan.network is None
    assert session_plan.underlays == {}
    assert (session_plan.kernels[0].address, session_plan.kernels[0].mac) == (None, None)


def test_a_session_on_one_agent_has_a_private_bridge_and_no_tunnel() -> None:
    session_plan = plan({"agent1": 4}, [agent_facts("agent1", underlay=None)])
    assert session_plan.network is not None
    assert (session_plan.network.driver, session_plan.network.mtu) == ("bridge", 1500)
    assert (session_plan.network.vni, session_plan.network.port, session_plan.network.link) == (None, None, None)
    assert session_plan.underlays == {}


def test_a_session_over_agents_has_a_tunnel_with_room_for_its_headers() -> None:
    slow: dict[str, Any] = {"underlay": {"address": "192.0.2.2", "interface": "tun0", "mtu": 1400}}
    session_plan = plan(TWO_AND_TWO, [agent_facts("agent1"), agent_facts("agent2", **slow)])
    assert session_plan.network is not None
    assert (session_plan.network.driver, session_plan.network.name, session_plan.network.mtu) == (
        "vxlan",
        "backendai-train-llm",
        1350,
    )
    assert session_plan.network.vni is not None
    assert 4096 <= session_plan.network.vni <= 16777215
    assert session_plan.network.port == 4789
    assert {name: underlay.address for name, underlay in session_plan.underlays.items()} == {
        "agent1": "192.0.2.1",
        "agent2": "192.0.2.2",
    }


def test_a_plan_knows_the_addresses_of_all_agents_that_were_read() -> None:
    session_plan = plan(
        {"agent1": 1}, [agent_facts("agent1"), agent_facts("agent2", addresses=["192.0.2.3", "fd00::2"])]
    )
    assert session_plan.agent_addresses == ("192.0.2.1/32", "192.0.2.3/32", "fd00::2/128")
    assert SessionPlan.from_dict(json.loads(json.dumps(session_plan.to_dict()))) == session_plan


def test_names_of_interfaces_fit_into_the_15_characters_of_the_kernel() -> None:
    wide, narrow = plan(TWO_AND_TWO).network, plan({"agent1": 4}).network
    assert wide is not None
    assert narrow is not None
    assert (wide.bridge, narrow.link) == (None, None)
    assert len(wide.link or "") == len(narrow.bridge or "") == 14


def test_addresses_and_macs_are_distinct_and_in_rank_order() -> None:
    session_plan = plan(TWO_AND_TWO)
    assert session_plan.network is not None
    last_bytes = [int((kernel.address or "").rpartition(".")[2]) for kernel in session_plan.kernels]
    assert [number - last_bytes[0] for number in last_bytes] == [0, 1, 2, 3]
    assert len({kernel.mac for kernel in session_plan.kernels}) == 4


def test_what_any_chosen_agent_uses_is_avoided() -> None:
    first = plan(TWO_AND_TWO).network
    assert first is not None
    busy = agent_facts("agent2", networks=[first.subnet], vnis=[first.vni])
    second = plan(TWO_AND_TWO, [agent_facts("agent1"), busy]).network
    assert second is not None
    assert (second.subnet, second.vni) != (first.subnet, first.vni)
    assert second.vni != first.vni
    assert second.subnet != first.subnet


@pytest.mark.parametrize(
    ("second", "pools", "sentence"),
    [
        (
            {"networks": ["10.0.0.0/8"]},
            POOLS,
            "session_network_pool: 10.128.0.0/9 has no subnet left for 2 containers: agent2 uses 10.0.0.0/8",
        ),
        (
            {"vnis": [7]},
            replace(POOLS, first_vni=7, last_vni=7),
            "session_vni_pool: 7-7 has no network identifier left",
        ),
        (
            {"udp_ports": {4789: "Docker Swarm"}},
            POOLS,
            "session_vxlan_port: 4789 is used on agent2 by Docker Swarm; choose another one for all sessions",
        ),
        (
            {"underlay": encrypted_underlay(2)},
            POOLS,
            "agent_underlay_encryption: agent2 has wireguard and agent1 has none; a tunnel needs it on both",
        ),
        (
            {"underlay": None},
            POOLS,
            "agent_underlay_address: no address of agent2 is known that its peers could reach",
        ),
        (
            {"underlay": {"address": "192.0.2.2", "interface": "tun0", "mtu": 1329}},
            POOLS,
            "agent_underlay_address: tun0 of agent2 has an MTU of 1329, a tunnel needs at least 1330",
        ),
        (
            {"underlay": {"address": "fd00::2", "interface": "tun0", "mtu": 1349}},
            POOLS,
            "agent_underlay_address: tun0 of agent2 has an MTU of 1349, a tunnel needs at least 1350",
        ),
    ],
    ids=["addresses", "identifiers", "port", "half encrypted", "no underlay", "small underlay", "small IPv6 underlay"],
)
def test_a_session_that_cannot_be_joined_is_refused(second: dict[str, Any], pools: NetworkPools, sentence: str) -> None:
    assert refusal([agent_facts("agent1"), agent_facts("agent2", **second)], pools) == sentence


def test_underlays_of_both_kinds_of_address_cannot_be_joined() -> None:
    six: dict[str, Any] = {"underlay": {"address": "fd00::2", "interface": "eth0", "mtu": 1500}}
    assert refusal([agent_facts("agent1"), agent_facts("agent2", **six)]) == (
        "agent_underlay_address: agent1 has 192.0.2.1 and agent2 has fd00::2, a tunnel needs addresses of one kind"
    )


def test_a_plan_is_shown_in_a_line_for_each_thing() -> None:
    session_plan = plan({"agent1": 1, "agent2": 1}, resources={"cpu": 2, "mem": 2 * GIB})
    assert session_plan.network is not None
    assert session_plan.lines() == [
        "session train-llm: multi-node, 2 containers of lab/python:1",
        f"network vxlan {session_plan.network.subnet}, mtu 1450, vni {session_plan.network.vni}",
        f"main1 on agent1: {session_plan.kernels[0].address}, cpu 2, mem 2g",
        f"sub1 on agent2: {session_plan.kernels[1].address}, cpu 2, mem 2g",
    ]


def test_a_plan_of_one_is_shown_without_network() -> None:
    assert plan({"agent1": 1}).lines() == [
        "session train-llm: single-node, 1 containers of lab/python:1",
        "main1 on agent1: -, cpu 1, mem 1g",
    ]


def test_session_networks_are_the_subnet_or_the_agents_addresses() -> None:
    joined = plan({"agent1": 1, "agent2": 1})
    assert joined.networks == (joined.network and joined.network.subnet)
    assert plan({"agent1": 1}).networks == ""
    sharing = [agent_facts(name, allow_host_network=True) for name in ("agent1", "agent2")]
    assert plan({"agent1": 2, "agent2": 1}, sharing, network_driver="host").networks == "192.0.2.1/32,192.0.2.2/32"
