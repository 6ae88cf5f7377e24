"""The list of agents: status, what is free, and the largest sessions that would start now."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.backendai.cluster.plugins.module_utils._model.devices import Device
from ansible_collections.backendai.cluster.plugins.module_utils._model.storage import StorageService
from ansible_collections.backendai.cluster.plugins.plugin_utils._placement.demand import Group
from ansible_collections.backendai.cluster.plugins.plugin_utils._placement.place import Placement, place
from ansible_collections.backendai.cluster.plugins.plugin_utils._planner.cluster_state import (
    ClusterState,
    InventoryAgent,
)
from ansible_collections.backendai.cluster.plugins.plugin_utils._report.agents import agents_report, render_agents
from tests.unit.builders import GIB, NOW, agent_facts

CORDON = {"reason": "disk", "by": "carol", "since": NOW}


def report(*agents: Any, unavailable: Any = (), away: Any = (), inventory: Any = ()) -> dict[str, Any]:
    facts = {agent.name: agent for agent in agents}
    return agents_report(ClusterState(facts, dict(unavailable), inventory=dict(inventory), unreachable=away))


@pytest.mark.parametrize(
    ("changes", "status", "problem"),
    [
        ({}, "ready", ""),
        ({"schedulable": False, "cordon": CORDON}, "cordoned", "cordoned by carol (disk)"),
        (
            {"schedulable": False, "cordon": {**CORDON, "sessions_end_at": NOW}},
            "drained",
            "cordoned by carol (disk), its sessions end by 2027-01-15 08:00 UTC",
        ),
        ({"schedulable": False, "obstacles": ["it is sick."]}, "unusable", "it is sick."),
        ({"schedulable": False}, "unusable", "agent_schedulable is false"),
    ],
)
def test_an_agent_says_whether_it_takes_new_sessions_and_why_not(
    changes: dict[str, Any], status: str, problem: str
) -> None:
    (row,) = report(agent_facts("agent1", **changes))["agents"]
    assert (row["status"], row["problem"]) == (status, problem)


def test_agents_without_facts_are_unreachable_or_unusable() -> None:
    listed = report(unavailable={"agent1": "no route to host", "agent2": "Docker is down"}, away=["agent1"])
    assert [(row["name"], row["status"], row["problem"]) for row in listed["agents"]] == [
        ("agent1", "unreachable", "no route to host"),
        ("agent2", "unusable", "Docker is down"),
    ]
    assert listed["groups"] == []


def test_agents_without_facts_have_the_group_and_labels_of_the_inventory() -> None:
    known = {"agent1": InventoryAgent("gpu", frozenset({"ssd", "a100"})), "agent2": InventoryAgent()}
    rows = report(unavailable={"agent1": "no route to host", "agent2": "it is off"}, inventory=known)["agents"]
    assert [(row["resource_group"], row["labels"]) for row in rows] == [("gpu", ["a100", "ssd"]), (None, [])]


def test_amounts_are_those_of_the_facts() -> None:
    agent = agent_facts("agent1", 8, 16 * GIB, allocated={"cpu": 3}, containers=2, labels=["ssd", "a100"])
    (row,) = report(agent)["agents"]
    assert row == {
        "name": "agent1",
        "resource_group": "default",
        "status": "ready",
        "problem": "",
        "total": {"cpu": 8, "mem": 16 * GIB},
        "free": {"cpu": 5, "mem": 16 * GIB},
        "containers": 2,
        "labels": ["a100", "ssd"],
        "gpus": [],
        "topology": [],
        "closed_storage": [],
    }


def test_an_agent_names_the_storage_that_is_closed_to_containers_and_its_mount() -> None:
    closed = StorageService("NFS", "192.0.2.7", "/mnt/data", ("111", "2049"), ("111",))
    listed = report(agent_facts("agent1", closed_storage=(closed,)))
    (row,) = listed["agents"]
    assert row["closed_storage"] == [
        {
            "kind": "NFS",
            "address": "192.0.2.7",
            "mount": "/mnt/data",
            "tcp": ["111", "2049"],
            "udp": ["111"],
            "description": "NFS of 192.0.2.7 (tcp 111, 2049; udp 111), mounted at /mnt/data",
        }
    ]
    assert render_agents(listed)[-1] == (
        "Containers on agent1 do not reach NFS of 192.0.2.7 (tcp 111, 2049; udp 111), mounted at /mnt/data;"
        " agent_open_storage opens it."
    )
    same = report(*(agent_facts(f"agent{number}", closed_storage=(closed,)) for number in range(1, 6)))
    (line,) = [line for line in render_agents(same) if "NFS" in line]
    assert line.startswith("Containers on agent1, agent2, agent3 and 2 more do not reach NFS of 192.0.2.7 ")


def test_the_table_shows_where_agents_are_if_that_is_known() -> None:
    agents = [agent_facts("agent1", topology=["leaf1", "rack2"]), agent_facts("agent2")]
    lines = render_agents(report(*agents))
    assert [line.split()[2] for line in lines[:3]] == ["TOPOLOGY", "leaf1/rack2", "-"]


def test_an_agent_names_its_gpus() -> None:
    devices = [Device("cuda.device", f"GPU-{at}", model="NVIDIA H100", memory=80 * GIB) for at in range(2)]
    agent = agent_facts("agent1", 8, GIB, capacity={"cpu": 8, "cuda.device": 2}, devices=devices)
    listed = report(agent)
    (row,) = listed["agents"]
    assert row["gpus"] == [{"slot": "cuda.device", "model": "NVIDIA H100", "memory": 80 * GIB, "count": 2}]
    assert "cpu 8/8, cuda.device 2/2 (NVIDIA H100)" in render_agents(listed)[1]


def test_groups_count_only_agents_that_take_new_sessions() -> None:
    groups = report(
        agent_facts("agent1", 8, 4 * GIB),
        agent_facts("agent2", 2, 4 * GIB),
        agent_facts("agent3", 64, schedulable=False),
        agent_facts("agent4", 4, 8 * GIB, resource_group="gpu", capacity={"cpu": 4, "mem": 8 * GIB, "cuda.device": 2}),
    )["groups"]
    default, gpu = groups
    assert (default["total"]["cpu"], default["free"]["cpu"]) == (74, 10)
    assert [(entry["containers"], entry["on_one_agent"]) for entry in default["largest_sessions"]] == [(6, 4)]
    assert [(entry["resources"], entry["containers"]) for entry in gpu["largest_sessions"]] == [
        ({"cpu": 1, "mem": GIB}, 4),
        ({"cpu": 1, "mem": GIB, "cuda.device": 1}, 2),
    ]


@pytest.mark.parametrize("more", [0, 1])
def test_the_largest_session_is_that_of_the_planner(more: int) -> None:
    agents = [agent_facts("agent1", 8, 5 * GIB), agent_facts("agent2", 3), agent_facts("agent3", 9, max_containers=4)]
    (largest,) = report(*agents)["groups"][0]["largest_sessions"]
    for count, single in ((largest["containers"], False), (largest["on_one_agent"], True)):
        groups = [Group("main", largest["resources"], count + more)]
        placed = place(agents, groups, single_node=single, selection="concentrated")
        assert isinstance(placed, Placement) == (more == 0)


def test_memory_is_shown_for_people() -> None:
    of_a_host = 24_159_804 << 10
    agents = [agent_facts("agent1", 8, of_a_host, allocated={"mem": of_a_host - (42 << 20)})]
    (_head, line, *_groups) = render_agents(report(*agents))
    assert "mem 0.04/23.04 GiB" in line


def test_a_group_without_agents_in_service_starts_nothing() -> None:
    (group,) = report(agent_facts("agent1", schedulable=False))["groups"]
    assert [(entry["containers"], entry["on_one_agent"]) for entry in group["largest_sessions"]] == [(0, 0)]


def test_the_table_has_a_line_for_each_agent_and_kind_of_container() -> None:
    agents = [agent_facts("agent1", 8, 16 * GIB, allocated={"cpu": 3}), agent_facts("agent2", schedulable=False)]
    assert render_agents(report(*agents, unavailable={"agent3": "no route to host"}, away=["agent3"])) == [
        "NAME    GROUP    STATUS       CONTAINERS  FREE",
        "agent1  default  ready        0           cpu 5/8, mem 16/16 GiB",
        "agent2  default  unusable     0           cpu 8/8, mem 16/16 GiB  agent_schedulable is false",
        "agent3  -        unreachable  -           no route to host",
        "Group default: 5 containers with cpu 1, mem 1g would start now, 5 of them on one agent.",
    ]
