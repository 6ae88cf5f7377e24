"""The reason why a session does not fit, as text and as figures."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.backendai.cluster.plugins.plugin_utils._placement.place import Group, Unschedulable, place
from ansible_collections.backendai.cluster.plugins.plugin_utils._placement.unschedulable import join_names
from tests.unit.builders import GIB, agent_facts, bare_plan, bare_session

ONE_CORE = {"cpu": 1, "mem": GIB}
GPU = {**ONE_CORE, "cuda.device": 1}


def no_room(
    agents: dict[str, dict[str, Any]], *groups: Group, single_node: bool = False, plans: Any = None
) -> Unschedulable:
    """Return why these groups do not fit on these agents."""
    facts = [agent_facts(name, **described) for name, described in agents.items()]
    placed = place(facts, groups, single_node=single_node, selection="concentrated", plans=plans)
    assert isinstance(placed, Unschedulable)
    return placed


@pytest.mark.parametrize(
    ("agents", "request_of_one", "size", "single_node", "expected"),
    [
        (
            {"agent1": {"cpu": 2}, "agent2": {"cpu": 2}},
            ONE_CORE,
            8,
            False,
            Unschedulable(
                "no room for 4 of 8 containers on 2 agents: short of cpu 4",
                {"cpu": 4},
                {"main": 4},
            ),
        ),
        (
            {"agent1": {"cpu": 2}, "agent2": {"cpu": 4}},
            ONE_CORE,
            6,
            True,
            Unschedulable(
                "no room for 2 of 6 containers on one agent: short of cpu 2",
                {"cpu": 2},
                {"main": 2},
            ),
        ),
        (
            {"agent1": {"cpu": 8, "mem": 2 * GIB}},
            ONE_CORE,
            4,
            True,
            Unschedulable(
                "no room for 2 of 4 containers on one agent: short of mem 2g",
                {"mem": 2 * GIB},
                {"main": 2},
            ),
        ),
        (
            {"agent1": {"cpu": 2, "mem": 2 * GIB}},
            ONE_CORE,
            3,
            True,
            Unschedulable(
                "no room for 1 of 3 containers on one agent: short of cpu 1, mem 1g",
                {"cpu": 1, "mem": GIB},
                {"main": 1},
            ),
        ),
        (
            {"agent1": {"max_containers": 2}, "agent2": {"max_containers": 1}},
            ONE_CORE,
            4,
            False,
            Unschedulable(
                "no room for 1 of 4 containers on 2 agents: the limit of containers per agent is reached",
                {},
                {"main": 1},
            ),
        ),
        (
            {"agent1": {"cpu": 4, "capacity": {"cpu": 32, "mem": 16 * GIB}}, "agent2": {"cpu": 2}},
            {"cpu": 6, "mem": GIB},
            1,
            True,
            Unschedulable(
                "no room for 1 of 1 containers on 2 agents: short of cpu 6; one container requests 6 cores and no agent"
                " has more than 4 online",
                {"cpu": 6},
                {"main": 1},
            ),
        ),
        (
            {"agent1": {}},
            {**ONE_CORE, "cuda.device": 2},
            2,
            True,
            Unschedulable(
                "no room for 2 of 2 containers on one agent: short of cuda.device 4",
                {"cuda.device": 4},
                {"main": 2},
            ),
        ),
    ],
    ids=["cores", "cores of one agent", "memory", "both", "container limit", "too wide", "accelerators"],
)
def test_no_room_names_what_is_short_and_by_how_much(
    agents: dict[str, dict[str, Any]],
    request_of_one: dict[str, int],
    size: int,
    single_node: bool,
    expected: Unschedulable,
) -> None:
    assert no_room(agents, Group("main", request_of_one, size), single_node=single_node) == expected


def test_the_last_ranks_of_containers_that_are_alike_have_no_place() -> None:
    result = no_room({"agent1": {"cpu": 3}}, Group("main", ONE_CORE, 1), Group("sub", ONE_CORE, 4))
    assert result.reason == "no room for 2 of 5 containers on one agent: short of cpu 2"
    assert result.unplaced == {"sub": 2}


def test_unlike_containers_without_a_place_are_named() -> None:
    agents = {name: {"capacity": {"cpu": 8, "mem": 16 * GIB, "cuda.device": 1}} for name in ("agent1", "agent2")}
    result = no_room(agents, Group("main", ONE_CORE, 1), Group("sub", GPU, 3), Group("ps", {"cpu": 9, "mem": GIB}, 1))
    assert result == Unschedulable(
        "no room for 2 of 5 containers (sub3, ps1) on 2 agents: short of cuda.device 1, cpu 9; one container requests 9"
        " cores and no agent has more than 8 online",
        {"cuda.device": 1, "cpu": 9},
        {"sub": 1, "ps": 1},
    )


def test_on_one_agent_only_those_bind_that_could_hold_the_most() -> None:
    agents = {"agent1": {"cpu": 2}, "agent2": {"mem": 3 * GIB}}
    result = no_room(agents, Group("main", ONE_CORE, 4), single_node=True)
    assert result.shortfall == {"mem": GIB}


@pytest.mark.parametrize("single_node", [True, False])
def test_the_first_roles_are_placed_where_as_many_of_others_could_be(single_node: bool) -> None:
    agents = {"agent1": {"cpu": 2}}
    result = no_room(agents, Group("main", {"cpu": 2}, 1), Group("sub", {"cpu": 1}, 1), single_node=single_node)
    assert result.reason == "no room for 1 of 2 containers (sub1) on one agent: short of cpu 1"
    assert result.unplaced == {"sub": 1}


def test_the_sessions_that_make_room_are_named() -> None:
    plans = [bare_plan(f"job{age}", age, {"agent1": [{"cpu": 1}]}) for age in range(4)]
    agents = {
        "agent1": {
            "cpu": 4,
            "allocated": {"cpu": 4},
            "sessions": [*map(bare_session, plans)],
        }
    }
    result = no_room(agents, Group("main", {"cpu": 2}, 1), plans={plan.id: plan for plan in plans})
    assert result.blocking_sessions == ("job0", "job1")
    assert (
        result.reason
        == "no room for 1 of 1 containers on one agent: short of cpu 2; it fits when these end: job0, job1"
    )


def test_a_phrase_names_a_few_and_counts_the_others() -> None:
    assert join_names(["a", "b", "c", "d"]) == "a, b, c, d"
    assert join_names(["a", "b", "c", "d", "e", "f"]) == "a, b, c, d and 2 more"
