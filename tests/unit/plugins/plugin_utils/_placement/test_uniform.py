"""Placement of containers of one shape in large clusters."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.backendai.cluster.plugins.module_utils._model.facts import AgentFacts
from ansible_collections.backendai.cluster.plugins.plugin_utils._placement.uniform import (
    concentrate,
    disperse,
    fewest_reaching,
)
from tests.unit.builders import agent_facts

rooms_of_agents = st.lists(st.integers(0, 9), min_size=1, max_size=30)


@given(rooms_of_agents, st.integers(0, 200))
def test_the_fewest_amounts_that_reach_a_total_are_the_largest(rooms: list[int], total: int) -> None:
    chosen = fewest_reaching(Counter(rooms), total)
    assert chosen == sorted(sorted(rooms, reverse=True)[: len(chosen)])
    assert sum(chosen) >= min(total, sum(rooms))
    assert sum(chosen[1:]) < total or not chosen


def by_name(agent: AgentFacts) -> tuple[str]:
    """Return the order of these tests."""
    return (agent.name,)


def agents_for(rooms: list[int]) -> list[AgentFacts]:
    """Return an agent for each of the rooms."""
    return [agent_facts(f"{position:02}") for position in range(len(rooms))]


@given(rooms_of_agents, st.data())
def test_the_first_of_the_smallest_sets_is_chosen(rooms: list[int], data: st.DataObject) -> None:
    size = data.draw(st.integers(1, max(1, sum(rooms))))
    if sum(rooms) < size:
        return
    chosen = concentrate(agents_for(rooms), rooms, size, by_name)
    number = len(fewest_reaching(Counter(rooms), size))
    first: list[int] = []
    for position, room in enumerate(rooms):
        others = sorted(rooms[position + 1 :], reverse=True)[: max(0, number - len(first) - 1)]
        if len(first) < number and sum(rooms[at] for at in first) + room + sum(others) >= size:
            first.append(position)
    assert sorted(int(agent.name) for agent, _count in chosen) == first
    assert sum(count for _agent, count in chosen) == size
    assert all(0 < count <= rooms[int(agent.name)] for agent, count in chosen)


@given(rooms_of_agents, st.data())
def test_containers_are_spread_one_by_one(rooms: list[int], data: st.DataObject) -> None:
    size = data.draw(st.integers(1, max(1, sum(rooms))))
    if sum(rooms) < size:
        return
    counts = dict.fromkeys([position for position, room in enumerate(rooms) if room][:size], 0)
    for _container in range(size):
        counts[min((at for at in counts if counts[at] < rooms[at]), key=lambda at: (counts[at], at))] += 1
    chosen = disperse(agents_for(rooms), rooms, size, by_name)
    assert [(int(agent.name), count) for agent, count in chosen] == list(counts.items())
