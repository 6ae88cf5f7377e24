"""Blocking sessions, compared with trying all."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.backendai.cluster.plugins.module_utils._model.devices import Device, GpuRequest
from ansible_collections.backendai.cluster.plugins.module_utils._model.facts import AgentFacts
from ansible_collections.backendai.cluster.plugins.module_utils._model.plan import SessionPlan
from ansible_collections.backendai.cluster.plugins.plugin_utils._placement import blockers
from ansible_collections.backendai.cluster.plugins.plugin_utils._placement.blockers import SessionUsage
from ansible_collections.backendai.cluster.plugins.plugin_utils._placement.place import (
    Group,
    Placement,
    Unschedulable,
    place,
)
from tests.unit.brute_force import mixed_groups, uniform_groups
from tests.unit.builders import agent_facts, bare_plan, bare_session

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


def planned(sessions: Sessions) -> dict[str, SessionPlan]:
    """Return the plans of these sessions by id (``s0`` is the first)."""
    plans = [
        bare_plan(f"s{number}", age, {name: [request for agent, request in kernels if agent == name] for name in "abc"})
        for number, (age, kernels) in enumerate(sessions)
    ]
    return {plan.id: plan for plan in plans}


def cluster(sessions: Sessions, ended: Collection[str] = (), limit: int = 0) -> list[AgentFacts]:
    """Return three agents that hold these sessions, without those that have ended."""
    running = [plan for plan in planned(sessions).values() if plan.name not in ended]
    return [_agent(name, running, limit) for name in "abc"]


def _agent(name: str, running: Sequence[SessionPlan], limit: int) -> AgentFacts:
    requests = [kernel.resources for plan in running for kernel in plan.kernels_on(name)]
    taken = {slot: sum(request.get(slot, 0) for request in requests) for slot in CAPACITY}
    on_it = [bare_session(plan) for plan in running if name in plan.agents]
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

    placed = place(
        cluster(sessions, (), limit),
        groups,
        single_node=single_node,
        selection="concentrated",
        plans=planned(sessions),
    )
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


def full(ages: dict[str, int], cpu: int = 4) -> tuple[list[AgentFacts], dict[str, SessionPlan]]:
    """Return one agent that is full with sessions of one core each, and their plans."""
    plans = [bare_plan(name, age, {"a": [{"cpu": 1}]}) for name, age in ages.items()]
    sessions = [*map(bare_session, plans)]
    agent = agent_facts("a", cpu, allocated={"cpu": cpu}, containers=len(ages), sessions=sessions)
    return [agent], {plan.id: plan for plan in plans}


def blocking(
    agents: list[AgentFacts], plans: dict[str, SessionPlan], groups: list[Group], *, single_node: bool = False
) -> tuple[str, ...]:
    result = place(agents, groups, single_node=single_node, selection="concentrated", plans=plans)
    assert isinstance(result, Unschedulable)
    return result.blocking_sessions


ONE = [Group("main", {"cpu": 1}, 1)]


def test_of_sessions_that_make_room_alone_the_oldest_is_named() -> None:
    assert blocking(*full({"new": 3, "old": 1, "mid": 2}), ONE, single_node=True) == ("old",)


def test_sessions_without_a_record_and_expired_claims_are_not_named() -> None:
    agents, plans = full({"new": 3, "old": 1, "mid": 2})
    known = {session_id: plan for session_id, plan in plans.items() if plan.name != "old"}
    assert blocking(agents, known, ONE) == ("mid",)
    assert blocking(agents, {}, ONE) == ()
    sessions = tuple(dataclasses.replace(held, expired=held.name == "mid") for held in agents[0].sessions)
    assert blocking([dataclasses.replace(agents[0], sessions=sessions)], known, ONE) == ("new",)


def test_gpus_that_a_request_does_not_accept_are_not_freed() -> None:
    plan = bare_plan("old", 1, {"a": [{"cpu": 1, "cuda.device": 1}]})
    devices = [Device("cuda.device", "GPU-1", 0, free=False, model="A100")]
    capacity = {"cpu": 4, "cuda.device": 1}
    agent = agent_facts("a", allocated=capacity, capacity=capacity, devices=devices, sessions=[bare_session(plan)])
    accepted = agent.with_gpus(GpuRequest("H100"))
    assert SessionUsage.of(agent, plan).slots == {"cpu": 1, "cuda.device": 1}
    assert SessionUsage.of(accepted, plan).slots == {"cpu": 1}


def test_what_is_taken_beyond_the_capacity_has_to_end_too() -> None:
    agents, plans = full({"old": 1, "mid": 2, "new": 3, "newer": 4}, cpu=4)
    lowered = [dataclasses.replace(agents[0], capacity={"cpu": 3})]
    assert blocking(agents, plans, ONE, single_node=True) == ("old",)
    assert blocking(lowered, plans, ONE, single_node=True) == ("old", "mid")


def test_nothing_is_named_where_even_empty_agents_would_not_do() -> None:
    assert blocking(*full({"old": 1}), [Group("main", {"cpu": 1}, 9)]) == ()


UNLIKE = [Group("main", {"cpu": 1}, 1), Group("sub", {"cpu": 1, "mem": 1}, 2)]


def test_nothing_is_named_that_is_not_among_the_oldest_sessions(monkeypatch: pytest.MonkeyPatch) -> None:
    agents, plans = full({f"s{number}": number for number in range(4)})
    assert blocking(agents, plans, UNLIKE) == ("s0", "s1", "s2")
    monkeypatch.setattr(blockers, "MAX_SESSIONS", 2)
    assert blocking(agents, plans, UNLIKE) == ()


def test_sessions_are_named_so_that_unlike_containers_are_placed_and_not_only_counted() -> None:
    # There are nine free cores for nine, but three on each agent, so that two cores do not fit beside three.
    plans = [bare_plan(name, 1, {name: [{"cpu": 1}]}) for name in "abc"]
    agents = [
        agent_facts(plan.name, 4, capacity={"cpu": 4}, allocated={"cpu": 1}, sessions=[bare_session(plan)])
        for plan in plans
    ]
    groups = [Group("main", {"cpu": 3}, 1), Group("sub", {"cpu": 2}, 3)]
    refused = place(
        agents, groups, single_node=False, selection="concentrated", plans={plan.id: plan for plan in plans}
    )
    assert isinstance(refused, Unschedulable)
    assert (refused.reason[:19], refused.blocking_sessions) == ("no room found for 1", ("a",))


@pytest.mark.parametrize("limit", ["MAX_TRIALS", "MAX_SHAPES"])
def test_nothing_is_named_when_finding_out_would_take_too_long(monkeypatch: pytest.MonkeyPatch, limit: str) -> None:
    agents, plans = full({f"s{number}": number for number in range(4)})
    monkeypatch.setattr(blockers, limit, 0)
    assert blocking(agents, plans, UNLIKE) == ()


def test_enough_sessions_are_named_however_few_the_trials(monkeypatch: pytest.MonkeyPatch) -> None:
    agents, plans = full({f"s{number}": number for number in range(8)}, cpu=8)
    for trials in range(2, 12):
        monkeypatch.setattr(blockers, "MAX_TRIALS", trials)
        assert blocking(agents, plans, UNLIKE)[:3] == ("s0", "s1", "s2")
