"""Every decision takes a bounded number of steps: function calls are counted, not seconds."""

from __future__ import annotations

import cProfile
import random
from collections.abc import Callable, Sequence

import pytest

from ansible_collections.backendai.cluster.plugins.module_utils._model.facts import AgentFacts
from ansible_collections.backendai.cluster.plugins.plugin_utils._placement.place import (
    Group,
    Placement,
    Topology,
    Unschedulable,
    place,
)
from tests.unit.builders import GIB, agent_facts

# About two seconds of a slow machine.
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


def test_devices_on_three_agents_are_placed() -> None:
    placed = place(WITH_DEVICES, DEVICES, single_node=False, selection="concentrated")
    assert isinstance(placed, Placement)
    assert len(placed.agents) == 3


ONE_AGENT = [agent_facts("agent1", capacity={"cpu": 20, "mem": 64 * GIB}, online_cpus=CORES)]
TWO_LARGE_ONES = [
    *(Group(f"large{each}", {"cpu": 10, "mem": GIB + each}, 1) for each in range(2)),
    *(Group(f"small{each}-", {"cpu": 1, "mem": GIB + each}, 1) for each in range(16)),
]


def test_a_number_that_is_not_proven_has_a_bound() -> None:
    placed = place(ONE_AGENT, TWO_LARGE_ONES, single_node=True, selection="concentrated")
    assert isinstance(placed, Unschedulable)
    assert placed.reason.startswith(
        "no room for at least 1 of 18 containers, found for all but 2 (large01, large11) on one agent: short of cpu 20"
    )


@pytest.mark.parametrize("selection", ["concentrated", "dispersed"])
def test_the_fewest_domains_for_1024_containers_on_1000_agents_take_no_longer(selection: str) -> None:
    rng = random.Random(1)
    paths = [(f"fabric{at // 64}", f"leaf{at // 16}", f"rack{at // 4}") for at in range(1000)]
    facts = [agent_facts(f"agent{at}", rng.randint(0, 8), topology=path) for at, path in enumerate(paths)]
    groups = [Group("main", {"cpu": 1}, 1024)]
    count = calls(lambda: place(facts, groups, single_node=False, selection=selection, topology=Topology(3)))
    assert count < MAX_CALLS
