"""Placement by topology, compared with an exhaustive search, and with an independent solver."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.backendai.cluster.plugins.module_utils._model.facts import AgentFacts
from ansible_collections.backendai.cluster.plugins.plugin_utils._placement import topology as search
from ansible_collections.backendai.cluster.plugins.plugin_utils._placement.place import (
    Group,
    Placement,
    Topology,
    Unschedulable,
    place,
)
from tests.bench.mixed import make
from tests.bench.nodes import cluster, equal_containers
from tests.unit.brute_force import (
    SELECTIONS,
    agent_descriptions,
    build_agents,
    can_hold,
    complete_placements,
    gpu_groups,
    list_requests,
    mixed_groups,
    uniform_groups,
)
from tests.unit.builders import GIB, agent_facts
from tests.unit.optimum import fewest_domains

PACK, SPREAD = Topology(2), Topology(2, spread=True)
WITHIN = (Topology(1, within=True), Topology(2, within=True))
# The solver's own measure of its work, so that its answers do not depend on the machine.
SOLVER_SECONDS = 1.0
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


@given(agent_descriptions, any_paths, any_groups, st.sampled_from(SELECTIONS), any_topology)
def test_a_session_has_the_fewest_or_most_domains_and_of_these_the_fewest_or_most_agents(
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
        assert placed.lower_bound == len(placed.agents)


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


@given(agent_descriptions, any_paths, any_groups, st.sampled_from(SELECTIONS), any_topology)
def test_without_steps_to_search_a_placement_is_allowed_and_has_a_lower_bound(
    described: Described, paths: Paths, groups: list[Group], selection: str, wanted: Topology
) -> None:
    agents = located(described, paths)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(search, "STEPS", 0)
        placed = place(agents, groups, single_node=False, selection=selection, topology=wanted)
    if isinstance(placed, Placement):
        assert_valid(agents, groups, placed)
        best = lowest(agents, groups, wanted, selection)
        assert cost(agents, placed.agents, wanted, selection) >= best
        assert placed.lower_bound <= abs(best[-1])
        assert not wanted.within or {*cost(agents, placed.agents, wanted, selection)[:-1]} == {1}


def rack(at: int) -> tuple[str, str, str]:
    """Return the domains of an agent: 4 in a rack, 4 racks in a leaf, 4 leaves in a fabric."""
    return f"fabric{at // 64}", f"leaf{at // 16}", f"rack{at // 4}"


def case_of(number: int) -> tuple[list[AgentFacts], list[Group]]:
    """Return agents in racks, and equal containers, or every fourth time unlike ones. Later ones have more agents."""
    rng = random.Random(number)
    agents = cluster(rng.choice((24, 40, 80) if number < 30 else (80, 200)), rng.choice((0.2, 0.5, 0.8)), rng)
    groups = equal_containers(rng.choice((8, 16, 24, 32)), rng.choice((1, 2, 4)))
    if number % 4 == 3:
        groups = [
            dataclasses.replace(group, count=min(group.count, 4)) for group in make(f"ordinary-{number}").groups[:3]
        ]
    return [dataclasses.replace(agent, topology=rack(at)) for at, agent in enumerate(agents)], groups


def test_larger_sessions_are_in_the_domains_of_the_optimum(full: bool) -> None:
    decisions = 500 if full else 8
    gaps, refused, solved, number = [], [], 0, 0
    while solved < decisions:
        (agents, groups), wanted, number = case_of(number), Topology(3, spread=number % 3 == 1), number + 1
        placed = place(agents, groups, single_node=False, selection="concentrated", topology=wanted)
        if isinstance(placed, Placement) and len(placed.agents) == 1:
            continue
        optimum = fewest_domains(agents, groups, wanted, SOLVER_SECONDS)
        if not optimum.proven:
            continue
        solved += 1
        if isinstance(placed, Unschedulable):
            refused += [number] if optimum.cost else []
            continue
        found = cost(agents, placed.agents, wanted, "concentrated")
        assert optimum.cost is not None
        assert found >= optimum.cost, number
        assert placed.lower_bound <= optimum.cost[-1], number
        gaps += [(number, found, optimum.cost)] if found > optimum.cost else []
    print(f"{solved} decisions by topology, {len(gaps)} beyond the optimum: {gaps}; refused: {refused}")
    assert (gaps, refused) == ([], [])
