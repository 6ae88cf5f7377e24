"""Every decision takes a bounded number of steps: function calls are counted, not seconds."""

from __future__ import annotations

import cProfile
import random
from collections.abc import Callable, Sequence

import pytest

from ansible_collections.backendai.cluster.plugins.module_utils._model.facts import AgentFacts
from ansible_collections.backendai.cluster.plugins.plugin_utils._placement import bounds
from ansible_collections.backendai.cluster.plugins.plugin_utils._placement.packing import Budget, ReachableCounts
from ansible_collections.backendai.cluster.plugins.plugin_utils._placement.place import (
    Group,
    Placement,
    Unschedulable,
    place,
)
from tests.unit.builders import GIB, agent_facts

# The hardest of these decisions took more than a hundred times as many before the search was charged by its cost.
MAX_CALLS = 6_000_000
CORES = list(range(48))


def calls(work: Callable[[], object]) -> int:
    """Return how many functions are called, built-in ones included."""
    profile = cProfile.Profile()
    profile.runcall(work)
    return sum(entry.callcount + entry.reccallcount for entry in profile.getstats())


def roles(number: int) -> list[Group]:
    """Return that many roles of one container, of which no two request the same."""
    return [
        Group(f"role{each}-", {"cpu": 1 + each % 16, "mem": (1 + each // 16) * GIB // 4}, 1) for each in range(number)
    ]


def agents(number: int, cpu: int) -> list[AgentFacts]:
    """Return that many agents of different sizes, the largest with that many cores."""
    rng = random.Random(1)
    sizes = [(rng.randint(cpu // 2, cpu), rng.randint(cpu // 2, cpu) * 2 * GIB) for _agent in range(number)]
    return [
        agent_facts(f"agent{each}", capacity={"cpu": cores, "mem": mem}, online_cpus=CORES)
        for each, (cores, mem) in enumerate(sizes)
    ]


COUNTS = (1, 9, 9, 9, 900)
DEVICES = [Group(f"role{each}-", {"cpu": 1, f"slot{each}": 1}, count) for each, count in enumerate(COUNTS)]
HALF_OF_EACH = {"cpu": 4096, "slot0": 1, **{f"slot{each}": count // 2 for each, count in enumerate(COUNTS) if each}}
WITH_DEVICES = [
    agent_facts(f"agent{each}", capacity=HALF_OF_EACH, mem=4096 * GIB, online_cpus=CORES) for each in range(3)
]
# Sets of a hundred million bits and more.
WIDE = [Group(f"role{each}-", {"cpu": 2 + each, "mem": (9 - each) * GIB}, 16) for each in range(6)]
NARROWER = [Group(f"role{each}-", {"cpu": 1 + each, "mem": (6 - each) * GIB}, 30) for each in range(5)]

CASES: dict[str, tuple[Sequence[AgentFacts], Sequence[Group]]] = {
    "devices": (WITH_DEVICES, DEVICES),
    "256 roles on 40 agents": (agents(40, 64), roles(256)),
    "256 roles on 40 small agents": (agents(40, 24), roles(256)),
    "1024 roles on 3 agents": (agents(3, 64), roles(1024)),
    "wide sets": (agents(40, 48), WIDE),
    "wide sets on few agents": (agents(8, 48), WIDE),
    "narrower sets": (agents(60, 40), NARROWER),
}


@pytest.mark.parametrize("single_node", [True, False], ids=["single-node", "multi-node"])
@pytest.mark.parametrize("selection", ["concentrated", "dispersed"])
@pytest.mark.parametrize("name", CASES)
def test_no_decision_takes_long(name: str, selection: str, single_node: bool) -> None:
    facts, groups = CASES[name]
    placed = []
    count = calls(lambda: placed.append(place(facts, groups, single_node=single_node, selection=selection)))
    assert count < MAX_CALLS
    assert placed == [place(facts, groups, single_node=single_node, selection=selection)]


def test_a_refusal_looks_once_at_agents_that_are_alike() -> None:
    facts = [agent_facts(f"agent{number}", cpu=1 + number % 2) for number in range(2_000)]
    groups = [Group("main", {"cpu": 4, "mem": GIB}, 8)]
    refusals = []

    def decide() -> None:
        refusals.append(place(facts, groups, single_node=False, selection="concentrated"))

    # The first decision keeps the headroom of each agent.
    assert calls(decide) > len(facts)
    assert calls(decide) < len(facts) // 4
    assert refusals[0] == refusals[1] == place(facts, groups, single_node=False, selection="concentrated", plans={})


def test_devices_on_three_agents_are_placed_and_proven() -> None:
    placed = place(WITH_DEVICES, DEVICES, single_node=False, selection="concentrated")
    assert isinstance(placed, Placement)
    assert (len(placed.agents), placed.lower_bound) == (3, 3)


def test_masks_are_made_by_doubling() -> None:
    counts = (3, 2, 4, 1)
    space = ReachableCounts(counts, Budget(10_000), none_empty=False)
    everything = space.add_agent(space.nothing, (counts,))
    for shape in range(len(counts)):
        one = tuple(int(each == shape) for each in range(len(counts)))
        assert len(list(space.iter_totals(space.add_agent(everything, (one,))))) == 4 * 3 * 5 * 2
    charged = Budget(10**9)
    wide = ReachableCounts((59,) * 4, charged, none_empty=False)
    # Dividing numbers of so many bits would take very long.
    assert wide.contains(wide.add_agent(wide.nothing, ((50, 0, 1, 59),)), (50, 0, 1, 59))


class Spent(Budget):
    """A budget without an end that counts what is spent."""

    def __init__(self) -> None:
        super().__init__(0)
        self.steps = 0

    def take(self, steps: int) -> bool:
        self.steps += steps
        return True


def test_what_is_charged_grows_with_the_size_of_sets() -> None:
    spent = []
    for count in (99, 999, 2999):
        budget = Spent()
        space = ReachableCounts((count, count), budget, none_empty=False)
        space.remove_agent(space.everything, ((count, count),))
        spent.append(budget.steps)
    assert spent[1] > 10 * spent[0]
    assert spent[2] > 8 * spent[1]


ONE_AGENT = [agent_facts("agent1", capacity={"cpu": 20, "mem": 64 * GIB}, online_cpus=CORES)]
TWO_LARGE_ONES = [
    *(Group(f"large{each}", {"cpu": 10, "mem": GIB + each}, 1) for each in range(2)),
    *(Group(f"small{each}-", {"cpu": 1, "mem": GIB + each}, 1) for each in range(16)),
]


def test_on_one_agent_the_fewest_containers_without_a_place_are_counted() -> None:
    placed = place(ONE_AGENT, TWO_LARGE_ONES, single_node=True, selection="concentrated")
    assert isinstance(placed, Unschedulable)
    assert placed.reason.startswith("no room for 2 of 18 containers (large01, large11) on one agent: short of cpu 20")


def test_a_number_that_is_not_proven_has_a_bound() -> None:
    facts = [agent_facts("agent1", capacity={"cpu": 32, "mem": 32 * GIB}, online_cpus=CORES)]
    groups = [
        Group(f"role{each}-", {"cpu": 1 + each % 5, "mem": (1 + each * each % 7) * GIB - each}, 1) for each in range(30)
    ]
    placed = place(facts, groups, single_node=True, selection="concentrated")
    assert isinstance(placed, Unschedulable)
    assert placed.reason.startswith("no room for at least ")
    least, found = (
        int(part.split()[0]) for part in placed.reason.removeprefix("no room for at least ").split("all but ")
    )
    assert 0 < least < found == sum(placed.unplaced.values())


def test_two_agents_are_proven_where_one_does_not_hold_everything() -> None:
    # More shapes than a search can count, on two agents that are alike.
    facts = [agent_facts(f"agent{each}", capacity={"cpu": 40, "mem": 640 * GIB}, online_cpus=CORES) for each in "abc"]
    groups = [Group(f"role{each}-", {"cpu": 1, "mem": GIB + each}, 1) for each in range(40)]
    groups.append(Group("wide", {"cpu": 21, "mem": GIB}, 1))
    placed = place(facts, groups, single_node=False, selection="concentrated")
    assert isinstance(placed, Placement)
    assert (len(placed.agents), placed.lower_bound) == (2, 2)


def test_few_pairs_of_shapes_and_agents_are_enough_for_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "MAX_PAIRS", 1)
    placed = place(ONE_AGENT, TWO_LARGE_ONES, single_node=True, selection="concentrated")
    assert isinstance(placed, Unschedulable)
    assert placed.reason.startswith("no room for 2 of 18 containers ")
