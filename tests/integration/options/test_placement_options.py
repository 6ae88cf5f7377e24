"""Options that decide where sessions run, and when: agents as other programs than the collection's see them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.integration.inventories import inventory_options
from tests.integration.laboratory import AGENTS, BUSYBOX, run_on, run_on_all
from tests.integration.session_requests import SMALL, THREE
from tests.integration.sessions import Sessions

pytestmark = pytest.mark.queue

#: An image that only its name says to be of a registry; nobody answers there.
REGISTRY, IMAGE = "registry.invalid", "registry.invalid/busybox:1"
RACKS: dict[str, dict[str, Any]] = {
    "agent1": {"agent_topology": ["rack1"], "agent_labels": ["ssd"]},
    "agent2": {"agent_topology": ["rack2"]},
    "agent3": {"agent_topology": ["rack2"]},
}
GROUPS: dict[str, dict[str, Any]] = {
    "agent1": {"agent_schedulable": False},
    "agent2": {"agent_max_containers": 1, "agent_reserved": {"mem": "2g"}},
    "agent3": {"agent_resource_group": "blue"},
}


@pytest.fixture
def racks(tmp_path: Path) -> list[str]:
    """The options of an inventory with a label, and agents in two racks."""
    levels = {"agent_topology_levels": ["rack"]}
    return inventory_options(tmp_path, **{agent: {**variables, **levels} for agent, variables in RACKS.items()})


@pytest.fixture
def groups(tmp_path: Path) -> list[str]:
    """The options of an inventory in which each agent has settings of its own."""
    return inventory_options(tmp_path, **GROUPS)


def agents_of(name: str) -> list[str]:
    """Return the agent of each container of a session."""
    listed = run_on_all(f"docker ps --quiet --filter name='^backendai-{name}-'")
    return [agent for agent, text in zip(AGENTS, listed, strict=True) for _container in text.split()]


def test_a_label_and_a_rack_leave_only_the_agents_that_have_them(sessions: Sessions, racks: list[str]) -> None:
    """Without either, three containers that are to be dispersed are on three agents."""
    for name, options, agents in (
        ("label", {"agent_labels": ["ssd"]}, {"agent1"}),
        ("rack", {"topology": "within rack"}, {"agent2", "agent3"}),
    ):
        sessions.start(*racks, **{**THREE, "name": f"{sessions.name}-{name}", **options})
        assert {*agents_of(f"{sessions.name}-{name}")} == agents


def test_a_group_of_agents_takes_its_sessions_and_preferred_agents_may_be_replaced(
    sessions: Sessions, groups: list[str]
) -> None:
    sessions.start(*groups, **{**THREE, "name": f"{sessions.name}-group", "resource_group": "blue"})
    assert agents_of(f"{sessions.name}-group") == ["agent3"] * 3
    # It accepts no new sessions.
    wanted = {"designated_agents": ["agent1"], **SMALL}
    waiting = sessions.create(*groups, **wanted, name=f"{sessions.name}-strict")
    assert waiting.record["status"] == "PENDING", waiting.output
    assert sessions.terminate(name=f"{sessions.name}-strict").code == 0
    name = f"{sessions.name}-preferred"
    sessions.start(*groups, **wanted, designated_agents_mode="preferred", name=name)
    assert agents_of(name) == ["agent2"]
    # It may have one container, and has it.
    more = sessions.create(*groups, **{**SMALL, "designated_agents": ["agent2"]})
    assert more.record["status"] == "PENDING", more.output
    assert agents_of(sessions.name) == []


def test_what_is_reserved_for_the_host_is_not_offered(sessions: Sessions, groups: list[str], tmp_path: Path) -> None:
    path, offered = tmp_path / "agents.json", []
    for options in ([], groups):
        assert sessions.run("list_agents", *options, "-e", f"agent_list_path={path}").code == 0
        offered.append({row["name"]: row["total"]["mem"] for row in json.loads(path.read_text())["agents"]})
    assert offered[0]["agent2"] - offered[1]["agent2"] == (2 << 30) - (512 << 20)
    assert offered[0]["agent3"] == offered[1]["agent3"]


def test_images_of_a_registry_that_is_to_be_asked_are_not_used_without_its_answer(agent1_sessions: Sessions) -> None:
    request = {**SMALL, "designated_agents": ["agent1"], "image": IMAGE}
    run_on("agent1", f"docker tag {BUSYBOX} {IMAGE}")
    try:
        asked = agent1_sessions.create("-e", json.dumps({"agent_registry_check": [REGISTRY]}), **request)
        assert asked.code != 0
        assert f"whether this session may use it is not known: its registry {REGISTRY}" in asked.text
        agent1_sessions.start(**request)
        assert agent1_sessions.terminate().code == 0
    finally:
        run_on("agent1", f"docker rmi {IMAGE}")


def test_patience_decides_who_may_pass_and_the_policy_who_is_next(agent1_sessions: Sessions) -> None:
    """agent1 has two devices; the first session has one of them, the next two, the last one."""
    sessions = agent1_sessions
    first, large, small = (f"{sessions.name}-{name}" for name in ("first", "large", "small"))

    def request(name: str, size: int) -> dict[str, Any]:
        resources = {"cpu": 1, "mem": "64m", "lab.device": 1}
        return {"name": name, "cluster_size": size, "resources": resources, "designated_agents": ["agent1"]}

    sessions.start(**request(first, 1))
    assert sessions.create(**request(large, 2)).record["status"] == "PENDING"
    # There is room, but no later session may start before the one that waits.
    behind = sessions.create(**request(small, 1), queue_patience=0)
    assert behind.record["status"] == "PENDING", behind.output
    assert f"it waits behind {large}" in behind.text
    # The oldest would be the next one otherwise, and would leave no room.
    assert sessions.terminate(name=first, queue_policy="lifo").code == 0
    assert (agents_of(small), agents_of(large)) == (["agent1"], [])
