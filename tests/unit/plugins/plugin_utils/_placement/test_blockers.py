"""Blocking sessions, compared with trying all."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.backendai.cluster.plugins.module_utils._model.facts import AgentFacts
from ansible_collections.backendai.cluster.plugins.module_utils._model.held_session import HeldSession
from ansible_collections.backendai.cluster.plugins.plugin_utils._placement import blockers
from ansible_collections.backendai.cluster.plugins.plugin_utils._placement import heterogeneous as search
from ansible_collections.backendai.cluster.plugins.plugin_utils._placement.place import (
    Group,
    Placement,
    Unschedulable,
    place,
)
from tests.unit.brute_force import mixed_groups, uniform_groups
from tests.unit.builders import agent_facts, bare_session

any_groups = st.one_of(uniform_groups, mixed_groups)
CAPACITY = {"cpu": 4, "mem": 6, "gpu": 2}
kernels: st.SearchStrategy[list[tuple[str, dict[str, int]]]] = st.lists(
    st.tuples(
        st.sampled_from("abc"),
        st.fixed_dictionaries({"cpu": st.integers(1, 2), "mem": st.integers(0, 2)}, optional={"gpu": st.just(1)}),
    ),
    min_size=1,
    max_size=3,
)
Sessions = list[tuple[int, list[tuple[str, dict[str, int]]]]]
sessions_of_a_cluster: st.SearchStrategy[Sessions] = st.lists(
    st.tuples(st.integers(0, 9), kernels), min_size=1, max_size=5
)


def cluster(sessions: Sessions, ended: Collection[str] = (), limit: int = 0) -> list[AgentFacts]:
    """Return three agents that hold these sessions (``s0`` is the first), without those that have ended."""
    running = [
        bare_session(
            f"s{number}", age, {name: [request for agent, request in kernels if agent == name] for name in "abc"}
        )
        for number, (age, kernels) in enumerate(sessions)
        if f"s{number}" not in ended
    ]
    return [_agent(name, running, limit) for name in "abc"]


def _agent(name: str, running: Sequence[HeldSession], limit: int) -> AgentFacts:
    requests = [kernel.resources for session in running for kernel in session.plan.kernels_on(name)]
    taken = {slot: sum(request.get(slot, 0) for request in requests) for slot in CAPACITY}
    on_it = [session for session in running if name in session.plan.agents]
    changes: dict[str, Any] = {
        "allocated": taken,
        "containers": len(requests),
        "max_containers": limit,
        "sessions": on_it,
    }
    return agent_facts(name, 4, capacity=CAPACITY, **changes)


@given(sessions_of_a_cluster, any_groups, st.booleans(), st.sampled_from([0, 0, 3]))
def test_room_comes_when_these_end_and_not_when_one_of_them_goes_on(
    sessions: Sessions, groups: list[Group], single_node: bool, limit: int
) -> None:
    def fits_without(ended: Collection[str]) -> bool:
        agents = cluster(sessions, ended, limit)
        return isinstance(place(agents, groups, single_node=single_node, selection="concentrated"), Placement)

    placed = place(cluster(sessions, (), limit), groups, single_node=single_node, selection="concentrated")
    if isinstance(placed, Placement):
        return
    ages = {f"s{number}": (age, f"s{number}") for number, (age, _kernels) in enumerate(sessions)}
    if not placed.blocking_sessions:
        assert not fits_without(ages)
        return
    assert fits_without(placed.blocking_sessions)
    assert not any(fits_without(set(placed.blocking_sessions) - {name}) for name in placed.blocking_sessions)
    assert list(placed.blocking_sessions) == sorted(placed.blocking_sessions, key=ages.__getitem__)
    alone = [name for name in sorted(ages, key=ages.__getitem__) if fits_without([name])]
    assert len(placed.blocking_sessions) > 1 if not alone else placed.blocking_sessions == (alone[0],)


def full(ages: dict[str, int], cpu: int = 4) -> list[AgentFacts]:
    """Return one agent that is full with sessions of one core each."""
    sessions = [bare_session(name, age, {"a": [{"cpu": 1}]}) for name, age in ages.items()]
    return [agent_facts("a", cpu, allocated={"cpu": cpu}, containers=len(ages), sessions=sessions)]


def test_of_sessions_that_make_room_alone_the_oldest_is_named() -> None:
    result = place(
        full({"new": 3, "old": 1, "mid": 2}), [Group("main", {"cpu": 1}, 1)], single_node=True, selection="concentrated"
    )
    assert isinstance(result, Unschedulable)
    assert result.blocking_sessions == ("old",)


def test_what_is_taken_beyond_the_capacity_has_to_end_too() -> None:
    agents = full({"old": 1, "mid": 2, "new": 3, "newer": 4}, cpu=4)
    lowered = [
        agent_facts(
            "a",
            4,
            capacity={"cpu": 3},
            allocated={"cpu": 4},
            sessions=[
                bare_session(name, age, {"a": [{"cpu": 1}]}) for age, name in enumerate(("old", "mid", "new", "newer"))
            ],
        )
    ]
    for candidates, names in ((agents, ("old",)), (lowered, ("old", "mid"))):
        result = place(candidates, [Group("main", {"cpu": 1}, 1)], single_node=True, selection="concentrated")
        assert isinstance(result, Unschedulable)
        assert result.blocking_sessions == names


def test_nothing_is_named_where_even_empty_agents_would_not_do() -> None:
    result = place(full({"old": 1}), [Group("main", {"cpu": 1}, 9)], single_node=False, selection="concentrated")
    assert isinstance(result, Unschedulable)
    assert result.blocking_sessions == ()


UNLIKE = [Group("main", {"cpu": 1}, 1), Group("sub", {"cpu": 1, "mem": 1}, 2)]


@pytest.mark.parametrize("limit", ["STEPS", "MAX_PACKINGS"])
def test_nothing_is_named_when_finding_out_would_take_too_long(monkeypatch: pytest.MonkeyPatch, limit: str) -> None:
    agents = full({f"s{number}": number for number in range(4)})
    assert _makes_room(agents) == ("s0", "s1", "s2")
    monkeypatch.setattr(blockers, limit, 0)
    assert _makes_room(agents) == ()


def test_nothing_is_named_when_it_is_not_proven_that_there_is_no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    # There are nine free cores for nine, but three on each agent, so that two cores do not fit beside three.
    agents = [
        agent_facts(
            name, 4, capacity={"cpu": 4}, allocated={"cpu": 1}, sessions=[bare_session(name, 1, {name: [{"cpu": 1}]})]
        )
        for name in "abc"
    ]
    groups = [Group("main", {"cpu": 3}, 1), Group("sub", {"cpu": 2}, 3)]
    proven = place(agents, groups, single_node=False, selection="concentrated")
    assert isinstance(proven, Unschedulable)
    assert (proven.reason[:13], proven.blocking_sessions) == ("no room for 1", ("a",))
    monkeypatch.setattr(search, "STEPS", 0)
    found = place(agents, groups, single_node=False, selection="concentrated")
    assert isinstance(found, Unschedulable)
    assert (found.reason[:19], found.blocking_sessions) == ("no room found for 1", ())


def test_enough_sessions_are_named_however_few_the_trials(monkeypatch: pytest.MonkeyPatch) -> None:
    agents = full({f"s{number}": number for number in range(8)}, cpu=8)
    for trials in range(2, 12):
        monkeypatch.setattr(blockers, "MAX_PACKINGS", trials)
        assert _makes_room(agents)[:3] == ("s0", "s1", "s2")


def _makes_room(agents: list[AgentFacts]) -> tuple[str, ...]:
    result = place(agents, UNLIKE, single_node=False, selection="concentrated")
    assert isinstance(result, Unschedulable)
    return result.blocking_sessions
