"""Placement, compared with an exhaustive search: exact for one shape, allowed and without wrong claims for several."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.backendai.cluster.plugins.module_utils._model.facts import AgentFacts
from ansible_collections.backendai.cluster.plugins.module_utils._model.held_session import HeldSession
from ansible_collections.backendai.cluster.plugins.plugin_utils._placement import mixed
from ansible_collections.backendai.cluster.plugins.plugin_utils._placement.place import (
    Group,
    Placement,
    Unschedulable,
    place,
)
from tests.unit.brute_force import (
    SELECTIONS,
    agent_descriptions,
    build_agents,
    can_hold,
    complete_placements,
    gpu_groups,
    list_requests,
    mixed_groups,
    placements,
    uniform_groups,
)
from tests.unit.builders import GIB, agent_facts, bare_plan, bare_session

ONE_CORE = {"cpu": 1, "mem": GIB}
MODES = pytest.mark.parametrize("single_node", [True, False], ids=["single-node", "multi-node"])
mixed_shapes = st.one_of(mixed_groups, gpu_groups)
any_groups = st.one_of(uniform_groups, mixed_shapes)
Described = list[dict[str, int]]


def alike(size: int, request: dict[str, int] | None = None) -> list[Group]:
    """Return the groups of a session of equal containers."""
    needed = request or ONE_CORE
    return [Group("main", needed, 1), *([Group("sub", needed, size - 1)] if size > 1 else [])]


def last_used(agent: str, when: float) -> list[HeldSession]:
    """Return the sessions of an agent, the latest one created at that time."""
    return [bare_session(bare_plan(f"old-{agent}", when, {"elsewhere": [{}]}))]


@given(agent_descriptions, uniform_groups, st.booleans(), st.sampled_from(SELECTIONS))
def test_a_session_of_one_shape_is_placed_within_capacity_whenever_possible(
    described: Described, groups: list[Group], single_node: bool, selection: str
) -> None:
    agents = build_agents(described)
    placed = place(agents, groups, single_node=single_node, selection=selection)
    possible = any(True for _used in complete_placements(agents, groups, single_node=single_node))
    if isinstance(placed, Unschedulable):
        assert not possible
    else:
        assert possible
        assert_within_capacity(agents, groups, placed)


@given(agent_descriptions, mixed_shapes, st.booleans(), st.sampled_from(SELECTIONS))
def test_unlike_roles_are_placed_within_capacity_and_on_one_agent_wherever_one_holds_them(
    described: Described, groups: list[Group], single_node: bool, selection: str
) -> None:
    agents = build_agents(described)
    placed = place(agents, groups, single_node=single_node, selection=selection)
    one_holds_all = any(can_hold(agent, list_requests(groups)) for agent in agents)
    if isinstance(placed, Placement):
        assert_within_capacity(agents, groups, placed)
    else:
        assert not one_holds_all
    if isinstance(placed, Placement) and (single_node or selection != "dispersed"):
        assert (len(placed.agents) == 1) == one_holds_all


@given(agent_descriptions, mixed_shapes, st.booleans())
def test_no_room_for_unlike_roles_is_claimed_only_as_far_as_it_is_so(
    described: Described, groups: list[Group], single_node: bool
) -> None:
    agents = build_agents(described)
    placed = place(agents, groups, single_node=single_node, selection="concentrated")
    if isinstance(placed, Placement):
        return
    one_agent = [[agent] for agent in agents] if single_node else [agents]
    most = max(sum(map(sum, way)) for some in one_agent for way in placements(some, groups))
    size, found = sum(group.count for group in groups), sum(placed.unplaced.values())
    words = placed.reason.split()
    proven = int(words[5] if "at least" in placed.reason else words[3] if words[2] == "for" else 0)
    assert proven <= size - most <= found


def test_fractions_are_summed_in_a_way_that_is_the_same_on_every_version_of_python(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # From 3.12 on, sum() compensates for rounding.
    def whole(numbers: Iterable[int]) -> int:
        listed = list(numbers)
        assert {type(number) for number in listed} <= {int}
        return sum(listed)

    monkeypatch.setattr(mixed, "sum", whole, raising=False)
    agents = [agent_facts(f"agent{at}", 4 + at, (9 - at) * GIB) for at in range(4)]
    groups = [Group(f"role{at}-", {"cpu": 1 + at, "mem": (4 - at) * GIB}, 2) for at in range(3)]
    assert isinstance(place(agents, groups, single_node=False, selection="concentrated"), Placement)


def assert_within_capacity(agents: Sequence[AgentFacts], groups: Sequence[Group], placed: Placement) -> None:
    """Check that every container is placed, and that no agent exceeds its capacity."""
    requests = list_requests(groups)
    assert len(placed.hosts) == len(requests)
    for agent in agents:
        assert can_hold(
            agent, [request for request, host in zip(requests, placed.hosts, strict=True) if host == agent.name]
        )


@given(agent_descriptions, uniform_groups)
def test_concentrated_uses_the_tightest_set_of_fewest_agents(described: Described, groups: list[Group]) -> None:
    agents = build_agents(described)
    assert_first_of_the_fewest(agents, groups, "concentrated", tightness)


@given(agent_descriptions, uniform_groups)
def test_roundrobin_takes_as_few_agents_and_of_those_sets_the_oldest(described: Described, groups: list[Group]) -> None:
    agents = build_agents(described)
    assert_first_of_the_fewest(agents, groups, "roundrobin", lambda agent: (agent.latest_session, *tightness(agent)))


def tightness(agent: AgentFacts) -> tuple[Any, ...]:
    """Return the free capacity of an agent, the scarcest slot first."""
    return agent.free["gpu"], agent.free["cpu"], agent.free["mem"], agent.name


def assert_first_of_the_fewest(
    agents: list[AgentFacts], groups: list[Group], selection: str, order: Callable[[AgentFacts], tuple[Any, ...]]
) -> None:
    """Check that no sufficient set of agents is smaller, and that no equally small one comes earlier in the order."""
    by_name = {agent.name: agent for agent in agents}
    sets = [sorted(order(by_name[name]) for name in used) for used in complete_placements(agents, groups)]
    placed = place(agents, groups, single_node=False, selection=selection)
    chosen = sorted(order(by_name[name]) for name in placed.agents) if isinstance(placed, Placement) else None
    assert chosen == min(sets, key=lambda names: (len(names), names), default=None)


@given(agent_descriptions, uniform_groups)
def test_dispersed_uses_as_many_agents_as_can_take_part(described: Described, groups: list[Group]) -> None:
    agents = build_agents(described)
    most = max((len(used) for used in complete_placements(agents, groups)), default=0)
    placed = place(agents, groups, single_node=False, selection="dispersed")
    assert (len(placed.agents) if isinstance(placed, Placement) else 0) == most


@given(agent_descriptions, uniform_groups)
def test_dispersed_fills_agents_evenly(described: Described, groups: list[Group]) -> None:
    agents = build_agents(described)
    placed = place(agents, groups, single_node=False, selection="dispersed")
    if isinstance(placed, Placement):
        counts = {name: placed.hosts.count(name) for name in placed.agents}
        more = [
            agent.name for agent in agents if can_hold(agent, [groups[0].request] * (counts.get(agent.name, 0) + 1))
        ]
        assert all(counts[name] >= max(counts.values()) - 1 for name in more if name in counts)


@given(agent_descriptions, any_groups, st.booleans(), st.sampled_from(SELECTIONS), st.randoms(use_true_random=False))
def test_the_order_in_which_agents_are_listed_changes_nothing(
    described: Described, groups: list[Group], single_node: bool, selection: str, random: Any
) -> None:
    agents = build_agents(described)
    shuffled = random.sample(agents, len(agents))
    assert place(agents, groups, single_node=single_node, selection=selection) == place(
        shuffled, groups, single_node=single_node, selection=selection
    )


@given(agent_descriptions, uniform_groups, st.booleans())
def test_a_partial_placement_of_one_shape_is_as_large_as_possible(
    described: Described, groups: list[Group], single_node: bool
) -> None:
    agents = build_agents(described)
    placed = place(agents, groups, single_node=single_node, selection="concentrated")
    if isinstance(placed, Unschedulable):
        one_agent = [[agent] for agent in agents] if single_node else [agents]
        most = max(sum(map(sum, way)) for some in one_agent for way in placements(some, groups))
        size = sum(group.count for group in groups)
        assert sum(placed.unplaced.values()) == size - most
        assert placed.reason.startswith(f"no room for {size - most} of {size} containers ")


@given(agent_descriptions, any_groups, st.booleans())
def test_the_shortfall_is_what_the_containers_without_a_place_ask(
    described: Described, groups: list[Group], single_node: bool
) -> None:
    placed = place(build_agents(described), groups, single_node=single_node, selection="concentrated")
    if isinstance(placed, Placement):
        return
    requests = {group.role: group.request for group in groups}
    slots: dict[str, set[int]] = {}
    for slot in ("cpu", "mem", "gpu"):
        amounts = [count * requests[role].get(slot, 0) for role, count in placed.unplaced.items()]
        slots[slot] = {sum(part) for part in parts(amounts)}
    assert all(placed.shortfall[slot] in slots[slot] for slot in placed.shortfall)
    assert 0 not in placed.shortfall.values()
    if not any(agent["max_containers"] for agent in described):
        assert placed.shortfall


def parts(amounts: list[int]) -> list[list[int]]:
    """Return all sub-multisets of the amounts."""
    if not amounts:
        return [[]]
    others = parts(amounts[1:])
    return others + [[amounts[0], *tail] for tail in others]


@given(agent_descriptions, mixed_groups, st.sampled_from(SELECTIONS))
def test_the_agent_of_the_first_container_comes_first(
    described: Described, groups: list[Group], selection: str
) -> None:
    placed = place(build_agents(described), groups, single_node=False, selection=selection)
    if isinstance(placed, Placement):
        hosts = iter(placed.hosts)
        assert placed.agents[0] == placed.hosts[0]
        for group in groups:
            names = [next(hosts) for _container in range(group.count)]
            assert names == sorted(names, key=placed.agents.index)


@pytest.mark.parametrize("groups", [alike(2), [Group("main", ONE_CORE, 1), Group("gpu", {"cuda.device": 1}, 1)]])
@pytest.mark.parametrize("selection", SELECTIONS)
@MODES
def test_no_agents_at_all_is_no_room_that_says_so(selection: str, single_node: bool, groups: list[Group]) -> None:
    assert place([], groups, single_node=single_node, selection=selection) == Unschedulable(
        "no room for 2 of 2 containers: no agent that may hold them is schedulable",
        {},
        {group.role: 1 for group in groups},
    )


@pytest.mark.parametrize("selection", ["concentrated", "roundrobin"])
@MODES
def test_what_fits_on_one_agent_goes_on_one_agent(selection: str, single_node: bool) -> None:
    agents = [agent_facts("agent1", 2), agent_facts("agent2", 4), agent_facts("agent3", 2)]
    placed = place(agents, alike(4), single_node=single_node, selection=selection)
    assert placed == Placement(("agent2",) * 4)


def test_roundrobin_passes_over_the_roomiest_agent_where_older_ones_do() -> None:
    agents = [
        agent_facts("agent1", 4, sessions=last_used("agent1", 30.0)),
        agent_facts("agent2", 3, sessions=last_used("agent2", 10.0)),
        agent_facts("agent3", 3, sessions=last_used("agent3", 20.0)),
    ]
    placed = place(agents, alike(6), single_node=False, selection="roundrobin")
    assert placed == Placement(("agent2",) * 3 + ("agent3",) * 3)


@pytest.mark.parametrize(
    ("selection", "single_node", "hosts"),
    [
        ("concentrated", False, ("agent1", "agent1")),
        ("concentrated", True, ("agent1", "agent1")),
        ("roundrobin", False, ("agent2", "agent2")),
        ("roundrobin", True, ("agent2", "agent2")),
        ("dispersed", False, ("agent3", "agent2")),
        ("dispersed", True, ("agent3", "agent3")),
    ],
)
def test_each_selection_has_its_favourite(selection: str, single_node: bool, hosts: tuple[str, ...]) -> None:
    agents = [
        agent_facts("agent1", 4, sessions=last_used("agent1", 30.0)),
        agent_facts("agent2", 6, sessions=last_used("agent2", 10.0)),
        agent_facts("agent3", 8, sessions=last_used("agent3", 20.0)),
    ]
    placed = place(agents, alike(2), single_node=single_node, selection=selection)
    assert placed == Placement(hosts)


def test_dispersed_goes_on_with_the_others_when_one_agent_is_full() -> None:
    agents = [agent_facts("agent1", 1), agent_facts("agent2", 2), agent_facts("agent3", 5)]
    placed = place(agents, alike(7), single_node=False, selection="dispersed")
    assert placed == Placement(("agent3",) * 4 + ("agent2",) * 2 + ("agent1",))


def test_concentrated_reserves_accelerators_for_requests_that_need_them() -> None:
    plain, accelerated = (
        agent_facts("agent2", 8),
        agent_facts("agent1", 8, capacity={"cpu": 8, "mem": 16 * GIB, "cuda.device": 8}),
    )
    placed = place([accelerated, plain], alike(2), single_node=True, selection="concentrated")
    assert placed == Placement(("agent2", "agent2"))


def test_the_last_containers_go_where_the_least_room_is_left_over() -> None:
    agents = [agent_facts("agent1", 8), agent_facts("agent2", 6), agent_facts("agent3", 2)]
    placed = place(agents, alike(10), single_node=False, selection="concentrated")
    assert placed == Placement(("agent1",) * 8 + ("agent3",) * 2)


GPU_AGENT = {"cpu": 8, "mem": 16 * GIB, "cuda.device": 2}
MAIN_AND_GPUS = [Group("main", ONE_CORE, 1), Group("sub", {**ONE_CORE, "cuda.device": 1}, 4)]


def test_roles_that_ask_differently_share_agents() -> None:
    agents = [agent_facts(name, 8, capacity=GPU_AGENT) for name in ("agent1", "agent2", "agent3")]
    placed = place(agents, MAIN_AND_GPUS, single_node=False, selection="concentrated")
    assert placed == Placement(("agent1", "agent1", "agent1", "agent2", "agent2"))


def test_the_first_container_leads_wherever_it_has_its_place() -> None:
    agents = [
        agent_facts("agent1", 3, capacity={**GPU_AGENT, "cpu": 3, "cuda.device": 3}),
        agent_facts("agent2", 2, capacity={**GPU_AGENT, "cpu": 2, "cuda.device": 1}),
    ]
    placed = place(agents, MAIN_AND_GPUS, single_node=False, selection="concentrated")
    assert placed == Placement(("agent2", "agent2", "agent1", "agent1", "agent1"))


def test_dispersed_separates_roles_if_there_are_enough_agents() -> None:
    agents = [
        *(agent_facts(f"agent{number}", 8, capacity=GPU_AGENT) for number in range(1, 5)),
        agent_facts("agent5", 8),
    ]
    placed = place(agents, MAIN_AND_GPUS, single_node=False, selection="dispersed")
    assert placed == Placement(("agent5", "agent1", "agent2", "agent3", "agent4"))


def test_dispersed_fills_agents_that_hold_few_kinds_of_containers_too() -> None:
    agents = [
        agent_facts("agent1", 8, capacity={**GPU_AGENT, "cuda.device": 4}),
        agent_facts("agent2"),
        agent_facts("agent3"),
    ]
    placed = place(agents, MAIN_AND_GPUS, single_node=False, selection="dispersed")
    assert placed == Placement(("agent2", *("agent1",) * 4))


def test_dispersed_goes_without_evenness_where_everything_fits_only_so() -> None:
    agents = [agent_facts("agent1", 6), agent_facts("agent2", 4)]
    groups = [Group("main", {"cpu": 2}, 1), Group("sub", {"cpu": 2}, 1), Group("wide", {"cpu": 3}, 2)]
    placed = place(agents, groups, single_node=False, selection="dispersed")
    assert placed == Placement(("agent2", "agent2", "agent1", "agent1"))


def test_others_make_room_for_what_has_no_place() -> None:
    # The largest containers first, on the roomiest agent, would leave 2 and 2 free cores for one with 3.
    agents = [agent_facts("agent1", 7), agent_facts("agent2", 7)]
    groups = [Group("main", {"cpu": 5}, 1), Group("sub", {"cpu": 3}, 2), Group("ps", {"cpu": 2}, 1)]
    placed = place(agents, groups[1:], single_node=False, selection="concentrated")
    assert isinstance(placed, Placement)
    refused = place(agents, [*groups, Group("more", {"cpu": 1}, 2)], single_node=False, selection="concentrated")
    assert isinstance(refused, Unschedulable)


def test_the_first_agents_in_the_order_that_hold_the_same_are_taken() -> None:
    agents = [
        agent_facts("agent1", 8, sessions=last_used("agent1", 30.0)),
        agent_facts("agent2", 7, sessions=last_used("agent2", 20.0)),
        agent_facts("agent3", 6, sessions=last_used("agent3", 10.0)),
    ]
    groups = [Group("main", {"cpu": 6}, 1), Group("sub", {"cpu": 5}, 1)]
    placed = place(agents, groups, single_node=False, selection="roundrobin")
    assert placed == Placement(("agent3", "agent2"))


def test_roles_that_ask_the_same_are_placed_as_if_they_were_one() -> None:
    agents = [agent_facts("agent1", 2), agent_facts("agent2", 2)]
    groups = [Group("main", ONE_CORE, 1), Group("worker", {**ONE_CORE, "shmem": GIB}, 2)]
    placed = place(agents, groups, single_node=False, selection="concentrated")
    assert placed == Placement(("agent1", "agent1", "agent2"))
