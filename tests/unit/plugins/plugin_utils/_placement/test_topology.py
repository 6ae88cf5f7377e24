"""Placement by topology: it is allowed, the best for equal containers, and close to that for unlike ones."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.backendai.cluster.plugins.module_utils._model.facts import AgentFacts
from ansible_collections.backendai.cluster.plugins.plugin_utils._placement.place import (
    Group,
    Placement,
    Topology,
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
from tests.unit.builders import GIB, agent_facts

PACK, SPREAD = Topology(2), Topology(2, spread=True)
WITHIN = (Topology(1, within=True), Topology(2, within=True))
any_groups = st.one_of(uniform_groups, mixed_groups, gpu_groups)
any_paths = st.lists(st.tuples(st.sampled_from("xy"), st.sampled_from("12")), min_size=4, max_size=4)
any_topology = st.sampled_from([PACK, SPREAD, *WITHIN])
Described = list[dict[str, int]]
Paths = Sequence[tuple[str, ...]]


def located(described: Described, paths: Paths) -> list[AgentFacts]:
    return [
        dataclasses.replace(agent, topology=path) for agent, path in zip(build_agents(described), paths, strict=False)
    ]


def cost(agents: Sequence[AgentFacts], names: Sequence[str], wanted: Topology, selection: str) -> list[int]:
    """Return how many domains of each level some agents are in, and how many agents they are, the better the less."""
    paths = [agent.topology for agent in agents if agent.name in names]
    domains = [len({path[:level] for path in paths}) for level in range(1, wanted.levels + 1)]
    size = len({*names})
    return [*(-many if wanted.spread else many for many in domains), -size if selection == "dispersed" else size]


def lowest(agents: Sequence[AgentFacts], groups: Sequence[Group], wanted: Topology, selection: str) -> Any:
    """Return the lowest cost of all placements that are allowed, None without any."""
    sets = {*complete_placements(agents, groups)}
    if selection != "dispersed" and any(len(used) == 1 for used in sets):
        sets = {used for used in sets if len(used) == 1}
    costs = [cost(agents, used, wanted, selection) for used in sets]
    return min((some for some in costs if not wanted.within or {*some[:-1]} == {1}), default=None)


def assert_valid(agents: Sequence[AgentFacts], groups: Sequence[Group], placed: Placement) -> None:
    requests = list_requests(groups)
    assert len(placed.hosts) == len(requests)
    for agent in agents:
        held = [request for request, host in zip(requests, placed.hosts, strict=True) if host == agent.name]
        assert can_hold(agent, held)


@given(agent_descriptions, any_paths, uniform_groups, st.sampled_from(SELECTIONS), any_topology)
def test_equal_containers_are_placed_whenever_possible_and_on_the_fewest_or_most_domains_and_then_agents(
    described: Described, paths: Paths, groups: list[Group], selection: str, wanted: Topology
) -> None:
    agents = located(described, paths)
    placed = place(agents, groups, single_node=False, selection=selection, topology=wanted)
    best = lowest(agents, groups, wanted, selection)
    if isinstance(placed, Unschedulable):
        assert best is None
        assert placed.reason.startswith("no room for ")
    else:
        assert_valid(agents, groups, placed)
        assert cost(agents, placed.agents, wanted, selection) == best


@given(agent_descriptions, any_paths, any_groups, st.sampled_from(SELECTIONS), any_topology)
def test_a_placement_is_allowed_by_its_topology(
    described: Described, paths: Paths, groups: list[Group], selection: str, wanted: Topology
) -> None:
    agents = located(described, paths)
    placed = place(agents, groups, single_node=False, selection=selection, topology=wanted)
    if isinstance(placed, Placement):
        assert_valid(agents, groups, placed)
        assert not wanted.within or {*cost(agents, placed.agents, wanted, selection)[:-1]} == {1}
    elif wanted.within:
        assert "; this is in " in placed.reason


@given(agent_descriptions, any_paths, any_groups, st.sampled_from(SELECTIONS), st.sampled_from(WITHIN))
def test_no_room_in_one_domain_is_claimed_only_as_far_as_it_is_so(
    described: Described, paths: Paths, groups: list[Group], selection: str, wanted: Topology
) -> None:
    agents = located(described, paths)
    placed = place(agents, groups, single_node=False, selection=selection, topology=wanted)
    if isinstance(placed, Placement):
        return
    domains: dict[str, list[AgentFacts]] = {}
    for agent in agents:
        domains.setdefault("/".join(wanted.path(agent)), []).append(agent)
    most = {name: max(sum(map(sum, way)) for way in placements(some, groups)) for name, some in domains.items()}
    size, found = sum(group.count for group in groups), sum(placed.unplaced.values())
    words = placed.reason.split()
    proven = int(words[5] if "at least" in placed.reason else words[3] if words[2] == "for" else 0)
    named, *praise = placed.reason.split("; this is in ")[1].split(", ")
    assert proven <= size - max(most.values())
    assert size - most[named] <= found
    assert not praise or most[named] == max(most.values()) > 0


@pytest.mark.parametrize("seed", range(150))
def test_six_agents_of_three_levels_are_chosen_as_by_an_exhaustive_search(seed: int) -> None:
    rng = random.Random(seed)
    agents = [
        agent_facts(name, rng.randint(1, 6), 8 * GIB, topology=(rng.choice("ab"), rng.choice("cd"), rng.choice("ef")))
        for name in ("agent1", "agent2", "agent3", "agent4", "agent5", "agent6")
    ]
    requests = [{"cpu": rng.randint(1, 3), "mem": rng.randint(0, 3) * GIB} for _role in range(rng.randint(1, 2))]
    groups = [Group(f"role{at}", request, rng.randint(1, 3)) for at, request in enumerate(requests)]
    wanted = rng.choice([Topology(3), Topology(3, spread=True), Topology(rng.randint(1, 3), within=True)])
    selection = rng.choice(SELECTIONS)
    placed = place(agents, groups, single_node=False, selection=selection, topology=wanted)
    best = lowest(agents, groups, wanted, selection)
    found = cost(agents, placed.agents, wanted, selection) if isinstance(placed, Placement) else None
    assert found == best


def in_racks(rooms: Sequence[int], path: Sequence[tuple[str, ...]]) -> list[AgentFacts]:
    return [
        agent_facts(f"agent{at}", cpu=room, topology=domains)
        for at, (room, domains) in enumerate(zip(rooms, path, strict=True), 1)
    ]


def hosts_of(agents: Sequence[AgentFacts], size: int, wanted: Topology, selection: str = "concentrated") -> Any:
    placed = place(agents, [Group("main", {"cpu": 1}, size)], single_node=False, selection=selection, topology=wanted)
    return sorted(placed.agents) if isinstance(placed, Placement) else placed.reason


RACKS = [("x", "1"), ("x", "1"), ("x", "2"), ("y", "1"), ("y", "1"), ("y", "1")]


def test_one_rack_is_taken_rather_than_fewer_agents_of_two() -> None:
    agents = in_racks([4, 1, 4, 2, 2, 2], RACKS)
    assert hosts_of(agents, 6, PACK) == ["agent4", "agent5", "agent6"]
    assert hosts_of(agents, 8, PACK) == ["agent1", "agent3"]


def racks(rooms: Sequence[Sequence[int]]) -> list[AgentFacts]:
    """Return agents with that many cores in each rack of a fabric, named by rack and position."""
    return [
        agent_facts(f"agent{rack}-{at}", cpu=cores, topology=("fabric", f"rack{rack}"))
        for rack, each in enumerate(rooms)
        for at, cores in enumerate(each)
    ]


@pytest.mark.parametrize("wanted", [PACK, WITHIN[1]], ids=["pack", "within"])
def test_of_many_racks_that_hold_equal_containers_it_is_one_with_the_fewest_agents_and_then_the_tightest(
    wanted: Topology,
) -> None:
    assert hosts_of(racks([[3] * 8] * 17 + [[8, 8]]), 16, wanted) == ["agent17-0", "agent17-1"]
    assert hosts_of(racks([[7] * 4] * 20 + [[4, 4]] * 20), 8, wanted) == ["agent20-0", "agent20-1"]


def test_of_sets_of_racks_that_hold_equal_containers_it_is_the_first_with_the_fewest_agents() -> None:
    agents = racks([[3, 3], [1, 1, 1, 1, 1, 1], [5], [5], [6]])
    assert hosts_of(agents, 11, PACK) == ["agent2-0", "agent4-0"]
    assert hosts_of(agents, 12, PACK) == ["agent0-0", "agent0-1", "agent4-0"]
    assert hosts_of(agents, 12, PACK, "dispersed") == [
        *("agent0-0", "agent0-1"),
        *(f"agent1-{at}" for at in range(6)),
    ]


WIDE_AND_NARROW = [Group("main", {"cpu": 8, "mem": 2 * GIB}, 1), Group("sub", {"cpu": 1}, 4)]


def test_unlike_containers_are_in_the_one_domain_that_can_hold_each_of_them() -> None:
    agents = racks([[7] * 6] * 17 + [[8, 4]])
    for wanted in (PACK, WITHIN[1]):
        placed = place(agents, WIDE_AND_NARROW, single_node=False, selection="concentrated", topology=wanted)
        assert isinstance(placed, Placement)
        assert {*placed.agents} == {"agent17-0", "agent17-1"}


def test_unlike_containers_that_wait_hear_of_the_domain_with_the_fewest_unplaced() -> None:
    requests = [{"cpu": 8, "mem": 1}, {"cpu": 8, "mem": 2}, {"cpu": 1, "mem": 3}]
    groups = [Group(f"role{at}-", request, 1) for at, request in enumerate(requests)]
    agents = racks([[7] * 6, [8, 8]])
    placed = place(agents, groups, single_node=False, selection="concentrated", topology=WITHIN[1])
    assert placed == Unschedulable(
        "no room for 1 of 3 containers (role2-1) on 2 agents: short of cpu 1; this is in fabric/rack1, where most of"
        " them fit",
        {"cpu": 1},
        {"role2-": 1},
    )


def test_what_is_proven_of_one_domain_is_not_claimed_of_another() -> None:
    # In the second rack, sums only say that one has no place: three have.
    requests = [{"cpu": 8, "mem": mem * GIB} for mem in (9, 10, 1, 2)]
    groups = [Group(f"role{at}-", request, 1) for at, request in enumerate(requests)]
    small = [agent_facts(f"agent{at}", 8, 4 * GIB, topology=("fabric", "rack0")) for at in range(2)]
    large = agent_facts("agent2", 15, 64 * GIB, online_cpus=list(range(8)), topology=("fabric", "rack1"))
    placed = place([*small, large], groups, single_node=False, selection="concentrated", topology=WITHIN[1])
    assert isinstance(placed, Unschedulable)
    assert placed.reason == (
        "no room for at least 1 of 4 containers, found for all but 2 (role0-1, role1-1) on 2 agents: short of cpu 16,"
        " mem 19g; this is in fabric/rack0"
    )


def test_many_domains_come_before_few_agents_and_then_the_roomiest_of_each() -> None:
    agents = in_racks([4, 1, 4, 2, 2, 2], RACKS)
    assert hosts_of(agents, 6, SPREAD) == ["agent1", "agent3", "agent4"]
    assert hosts_of(agents, 11, SPREAD) == ["agent1", "agent3", "agent4", "agent5"]
    assert hosts_of(agents, 11, SPREAD, "dispersed") == [f"agent{at}" for at in range(1, 7)]


def test_without_a_domain_that_holds_it_a_session_waits_and_hears_of_the_roomiest() -> None:
    agents = in_racks([4, 1, 4, 2, 2, 2], RACKS)
    assert hosts_of(agents, 7, WITHIN[1]) == (
        "no room for 1 of 7 containers on 3 agents: short of cpu 1; this is in y/1, where most of them fit"
    )
    assert hosts_of(agents, 7, WITHIN[0]) == ["agent1", "agent3"]


@given(
    agent_descriptions, any_paths, any_groups, st.sampled_from(SELECTIONS), any_topology,
    st.randoms(use_true_random=False),
)  # fmt: skip
def test_the_order_in_which_agents_are_listed_changes_nothing(
    described: Described, paths: Paths, groups: list[Group], selection: str, wanted: Topology, random: Any
) -> None:
    agents = located(described, paths)
    shuffled = random.sample(agents, len(agents))
    assert place(agents, groups, single_node=False, selection=selection, topology=wanted) == place(
        shuffled, groups, single_node=False, selection=selection, topology=wanted
    )
