"""Capacity vectors of agents for containers of several shapes."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given

from ansible_collections.backendai.cluster.plugins.plugin_utils._placement.agent_classes import AgentClasses, Normalizer
from ansible_collections.backendai.cluster.plugins.plugin_utils._placement.demand import Demand, Group
from ansible_collections.backendai.cluster.plugins.plugin_utils._placement.packing import Budget
from tests.unit.brute_force import agent_descriptions, build_agents, can_hold, mixed_groups
from tests.unit.builders import GIB, agent_facts

DEMAND = Demand.of([Group("main", {"cpu": 2, "mem": 4 * GIB}, 1), Group("sub", {"cpu": 4, "mem": 6 * GIB}, 3)])


@pytest.mark.parametrize(
    ("changes", "measure"),
    [
        ({}, (4, 4, 8, 4)),
        ({"mem": 17 * GIB}, (4, 4, 8, 4)),
        ({"cpu": 9}, (4, 4, 8, 4)),
        ({"cpu": 64, "mem": 64 * GIB}, (4, 7, 11, 4)),
        ({"cpu": 640, "mem": 640 * GIB}, (4, 7, 11, 4)),
        ({"cpu": 3}, (4, 1, 8, 3)),
        ({"max_containers": 3, "containers": 1}, (2, 4, 8, 4)),
        ({"max_containers": 3, "containers": 4}, (0, 4, 8, 4)),
        ({"max_containers": 300}, (4, 4, 8, 4)),
        ({"allocated": {"cpu": 99, "mem": 10 * GIB}}, (4, 0, 3, 4)),
    ],
)
def test_agents_measure_the_same_when_what_differs_is_of_no_use(
    changes: dict[str, Any], measure: tuple[int, ...]
) -> None:
    assert Normalizer(DEMAND).measure(agent_facts("agent1", **{"cpu": 8, **changes})) == measure


@given(agent_descriptions, mixed_groups)
def test_the_frontier_is_exactly_what_an_agent_can_hold(described: list[dict[str, int]], groups: list[Group]) -> None:
    demand = Demand.of(groups)
    field = AgentClasses(build_agents(described), demand)
    for measure, agents in field.agents.items():
        for packing in field.scale.frontier(measure, demand.counts, Budget(10_000)):
            for shape, count in enumerate(packing):
                more = (*packing[:shape], count + 1, *packing[shape + 1 :])
                assert all(can_hold(agent, _requests(demand, packing)) for agent in agents)
                assert count == demand.counts[shape] or not any(
                    can_hold(member, _requests(demand, more)) for member in agents
                )


def _requests(demand: Demand, packing: tuple[int, ...]) -> list[dict[str, int]]:
    return [request for request, count in zip(demand.requests, packing, strict=True) for _container in range(count)]
