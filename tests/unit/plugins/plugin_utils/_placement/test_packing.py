"""Packings, frontiers and totals, compared with enumeration."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.backendai.cluster.plugins.plugin_utils._placement.packing import (
    Budget,
    BudgetExceededError,
    Frontier,
    Packing,
    ReachableCounts,
    distribute,
    frontier,
    largest_packing,
    lexicographically_first,
    prune_dominated,
    reachability_table,
    reachable_totals,
    sum_packings,
)

PLENTY = 1_000_000
COUNTS = (2, 1, 3)
asks: st.SearchStrategy[list[Packing]] = st.lists(
    st.tuples(st.just(1), st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=3
)
packings_of_agents: st.SearchStrategy[list[Frontier]] = st.lists(
    st.lists(st.tuples(*(st.integers(0, count) for count in COUNTS)), min_size=1, max_size=3).map(
        lambda some: tuple(sorted(set(some)))
    ),
    min_size=1,
    max_size=4,
)


def within(packing: Packing, other: Packing) -> bool:
    """Return whether the other packing has at least as many of each shape."""
    return all(count <= limit for count, limit in zip(packing, other, strict=True))


def every(counts: Packing) -> list[Packing]:
    """Return every packing up to these counts."""
    return list(itertools.product(*(range(count + 1) for count in counts)))


def can_hold(agent: Frontier) -> list[Packing]:
    """Return every packing that an agent of that frontier can hold."""
    return [packing for packing in every(COUNTS) if any(within(packing, maximal) for maximal in agent)]


def reached(agents: list[Frontier], *, none_empty: bool) -> set[Packing]:
    """Return all totals that these agents can hold together, by enumeration."""
    choices = [[packing for packing in can_hold(agent) if any(packing) or not none_empty] for agent in agents]
    sums = {tuple(map(sum, zip((0,) * len(COUNTS), *chosen, strict=True))) for chosen in itertools.product(*choices)}
    return {total for total in sums if within(total, COUNTS)}


def totals(*, none_empty: bool = True) -> ReachableCounts:
    """Return sets of totals up to the counts of these tests."""
    return ReachableCounts(COUNTS, Budget(PLENTY), none_empty=none_empty)


@given(st.tuples(*[st.integers(0, 7)] * 3), asks, st.lists(st.integers(0, 4), min_size=3, max_size=3))
def test_a_frontier_has_what_fits_and_is_within_no_other(free: Packing, asks: list[Packing], limits: list[int]) -> None:
    most_of_each = tuple(limits[: len(asks)])
    slots = list(zip(*asks, strict=True))
    fitting = [
        packing
        for packing in every(most_of_each)
        if all(sum(map(int.__mul__, packing, parts)) <= capacity for capacity, parts in zip(free, slots, strict=True))
    ]
    maximal = [
        packing for packing in fitting if not any(within(packing, other) and packing != other for other in fitting)
    ]
    assert frontier(free, asks, most_of_each, Budget(PLENTY)) == tuple(sorted(maximal))


@given(packings_of_agents, st.booleans())
def test_totals_are_what_agents_hold_together(agents: list[Frontier], none_empty: bool) -> None:
    space = totals(none_empty=none_empty)
    combined = space.nothing
    for agent in agents:
        combined = space.add_agent(combined, agent)
    expected = reached(agents, none_empty=none_empty)
    assert set(space.iter_totals(combined)) == expected
    assert {packing for packing in every(COUNTS) if space.contains(combined, packing)} == expected
    assert bool(combined & space.everything) == (COUNTS in expected)
    assert not space.contains(combined, (-1, 0, 0))


@given(packings_of_agents, st.booleans())
def test_an_agent_is_removed_from_a_total_as_it_is_added(agents: list[Frontier], none_empty: bool) -> None:
    space, held = totals(none_empty=none_empty), reached(agents[:1], none_empty=none_empty)
    for total in every(COUNTS):
        one = 1 << sum(count * stride for count, stride in zip(total, (1, 3, 6), strict=True))
        before = set(space.iter_totals(space.remove_agent(one, agents[0])))
        assert before == {origin for origin in every(COUNTS) if tuple(map(int.__sub__, total, origin)) in held}


@given(packings_of_agents)
def test_totals_that_are_part_of_another_one_are_left_out(agents: list[Frontier]) -> None:
    space = totals(none_empty=False)
    combined = reachable_totals(space, [(agent, 1) for agent in agents[:2]])
    expected = reached(agents[:2], none_empty=False)
    assert set(space.maximal(combined)) == {
        total for total in expected if not any(within(total, other) and total != other for other in expected)
    }


@given(packings_of_agents, st.booleans())
def test_the_table_tells_what_so_many_of_the_agents_from_there_on_complete(
    agents: list[Frontier], none_empty: bool
) -> None:
    space = totals(none_empty=none_empty)
    table = reachability_table(space, agents, 3)
    for position, size in itertools.product(range(len(agents) + 1), range(4)):
        sets = itertools.combinations(agents[position:], size)
        expected = {total for chosen in sets for total in reached(list(chosen), none_empty=none_empty)}
        assert set(space.iter_totals(table[position][size])) == {
            tuple(map(int.__sub__, COUNTS, total)) for total in expected
        }


@given(packings_of_agents, st.integers(1, 4))
def test_the_agents_that_matter_hold_whatever_as_many_of_all_can(agents: list[Frontier], limit: int) -> None:
    space = totals(none_empty=False)
    sizes = {agent: agents.count(agent) for agent in agents}
    kept = [agent for agent, often in prune_dominated(space, sizes, limit) for _one in range(often)]
    assert all(kept.count(agent) <= sizes[agent] for agent in kept)
    for size in range(1, limit + 1):
        table, all_of_them = reachability_table(space, kept, size), reachability_table(space, agents, size)
        assert table[0][size] | table[0][size - 1] == all_of_them[0][size] | all_of_them[0][size - 1]


@given(packings_of_agents, st.booleans(), st.booleans())
def test_the_first_set_that_holds_everything_is_found_and_filled(
    agents: list[Frontier], none_empty: bool, evenly: bool
) -> None:
    space = totals(none_empty=none_empty)
    sizes = [
        size for size, level in enumerate(reachability_table(space, agents, len(agents))[0]) if level & space.nothing
    ]
    if not sizes:
        assert COUNTS not in reached(agents, none_empty=False)
        return
    size = sizes[0]
    sets = itertools.combinations(range(len(agents)), size)
    first = next(chosen for chosen in sets if COUNTS in reached([agents[at] for at in chosen], none_empty=none_empty))
    positions = lexicographically_first(space, agents, reachability_table(space, agents, size), size)
    assert tuple(positions) == first
    filled = distribute(space, [agents[at] for at in positions], evenly=evenly)
    assert sum_packings(enumerate(filled), COUNTS) == COUNTS
    assert all(packing in can_hold(agents[at]) for at, packing in zip(positions, filled, strict=True))
    assert all(map(any, filled))


def test_no_agent_is_taken_twice() -> None:
    space = totals()
    agents: list[Frontier] = [((1, 1, 2),), ((2, 0, 0),), ((0, 1, 3),)]
    assert lexicographically_first(space, agents, reachability_table(space, agents, 2), 2) == [1, 2]


def test_agents_are_filled_one_after_the_other_or_evenly() -> None:
    space = totals()
    assert distribute(space, [((2, 1, 2),), ((2, 1, 2),)], evenly=False) == [(2, 1, 2), (0, 0, 1)]
    agents: list[Frontier] = [((2, 1, 3),), ((2, 1, 3),)]
    assert distribute(space, agents, evenly=True) == [(2, 1, 0), (0, 0, 3)]


def test_more_containers_come_before_more_of_the_first_shapes() -> None:
    assert largest_packing([(2, 0), (0, 3), (1, 2)]) == (1, 2)


@pytest.mark.parametrize("steps", [0, 3])
def test_what_takes_too_many_steps_is_given_up(steps: int) -> None:
    with pytest.raises(BudgetExceededError):
        frontier((4, 4), [(1, 1), (1, 2)], (2, 2), Budget(steps))


def test_sets_that_would_be_too_large_are_not_made() -> None:
    with pytest.raises(BudgetExceededError):
        ReachableCounts((1000,) * 5, Budget(PLENTY), none_empty=True)


def test_a_table_that_would_be_too_large_is_not_begun() -> None:
    budget = Budget(2000)
    space = ReachableCounts((99, 99), budget, none_empty=True)
    with pytest.raises(BudgetExceededError):
        reachability_table(space, [((99, 99),)] * 100, 100)
    assert budget.take(1000)


def test_a_budget_is_not_overdrawn() -> None:
    budget = Budget(3)
    assert budget.take(2)
    assert not budget.take(2)
    with pytest.raises(BudgetExceededError):
        budget.require(2)
    budget.spend(1)
    with pytest.raises(BudgetExceededError):
        budget.spend(1)
