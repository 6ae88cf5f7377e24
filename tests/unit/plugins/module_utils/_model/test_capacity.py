"""Tests for the free capacity of agents."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.backendai.cluster.plugins.module_utils._model.capacity import UNLIMITED, Bundle, fits
from ansible_collections.backendai.cluster.plugins.module_utils._model.facts import AgentFacts
from tests.unit.brute_force import agent_descriptions, build_agents, can_hold, resource_requests
from tests.unit.builders import GIB, agent_facts

ONE_CORE = {"cpu": 1, "mem": GIB}


def room_for(agent: AgentFacts, request_of_one: dict[str, int]) -> int:
    """Return how many containers with this request still fit on an agent."""
    return Bundle.of([(request_of_one, 1)]).capacities([agent])[0]


@given(agent_descriptions, st.lists(resource_requests, min_size=1, max_size=5))
def test_containers_fit_together_if_every_limit_is_met(
    described: list[dict[str, int]], requests: list[dict[str, int]]
) -> None:
    for agent in build_agents(described, allocated={"cpu": 1}):
        assert fits(agent, requests) == can_hold(agent, requests)


@given(agent_descriptions, resource_requests)
def test_capacity_is_the_largest_number_that_fits(
    described: list[dict[str, int]], request_of_one: dict[str, int]
) -> None:
    for agent in build_agents(described):
        room = room_for(agent, request_of_one)
        assert can_hold(agent, [request_of_one] * room)
        assert not can_hold(agent, [request_of_one] * (room + 1))


@pytest.mark.parametrize(
    ("request_of_one", "changes", "room"),
    [
        (ONE_CORE, {}, 8),
        ({"cpu": 3, "mem": GIB}, {}, 2),
        ({"cpu": 1, "mem": 5 * GIB}, {}, 3),
        (ONE_CORE, {"allocated": {"cpu": 5}}, 3),
        (ONE_CORE, {"allocated": {"cpu": 99}}, 0),
        (ONE_CORE, {"max_containers": 3}, 3),
        (ONE_CORE, {"max_containers": 3, "containers": 2}, 1),
        (ONE_CORE, {"max_containers": 3, "containers": 5}, 0),
        (ONE_CORE, {"capacity": {"cpu": 64, "mem": 64 * GIB}}, 64),
        ({"cpu": 8, "mem": GIB}, {"capacity": {"cpu": 64, "mem": 64 * GIB}}, 8),
        ({"cpu": 9, "mem": GIB}, {"capacity": {"cpu": 64, "mem": 64 * GIB}}, 0),
        ({**ONE_CORE, "cuda.device": 1}, {}, 0),
        ({**ONE_CORE, "cuda.device": 0}, {}, 8),
        ({**ONE_CORE, "cuda.device": 1}, {"capacity": {"cpu": 8, "mem": 16 * GIB, "cuda.device": 2}}, 2),
        ({**ONE_CORE, "shmem": GIB}, {}, 8),
        ({"cpu": 0}, {}, UNLIMITED),
    ],
    ids=[
        "one core each",
        "three cores each",
        "memory binds",
        "some is taken",
        "more is taken than there is",
        "the limit of containers binds",
        "others count towards the limit",
        "the limit was lowered",
        "overcommitted",
        "as wide as the agent",
        "wider than the agent, whatever the overcommit",
        "a slot that the agent lacks",
        "a slot of amount zero that the agent lacks",
        "accelerators bind",
        "shared memory is a part of memory",
        "nothing is asked",
    ],
)
def test_capacity_is_the_number_of_further_containers(
    request_of_one: dict[str, int], changes: dict[str, Any], room: int
) -> None:
    assert room_for(agent_facts("agent1", 8, **changes), request_of_one) == room


def test_bundle_capacity_counts_all_its_containers() -> None:
    bundle = Bundle.of([({"cpu": 2, "mem": GIB}, 1), ({"cpu": 1}, 2)])
    limited = agent_facts("agent2", 8, max_containers=5)
    assert bundle.capacities([agent_facts("agent1", 8), limited, agent_facts("agent3", 1)]) == [2, 1, 0]


def test_equal_headroom_is_one_object() -> None:
    agents = [agent_facts(f"agent{number}", containers=number // 2, max_containers=9) for number in range(4)]
    first, second, third, fourth = (agent.headroom for agent in agents)
    assert first is second is not third is fourth
    changed = dataclasses.replace(agents[0], allocated={"cpu": 1}).headroom
    assert (changed.free["cpu"], first.free["cpu"]) == (7, 8)


def test_alike_agents_are_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[object] = []
    look = Bundle.capacity

    def note(own: Bundle, agent: Any) -> int:
        looks.append(agent)
        return look(own, agent)

    monkeypatch.setattr(Bundle, "capacity", note)
    agents = [agent_facts(f"agent{number}", cpu=4 + number % 2) for number in range(1_000)]
    assert Bundle.of([(ONE_CORE, 1)]).capacities(agents) == [4, 5] * 500
    assert len(looks) == 2
