"""What is said of a request without a place: never, not yet, or in another mode; and never a wrong claim of proof."""

from __future__ import annotations

import dataclasses
import time
from typing import Any

import pytest

from ansible_collections.backendai.cluster.plugins.module_utils._model.cordon import Cordon
from ansible_collections.backendai.cluster.plugins.module_utils._model.facts import AgentFacts
from ansible_collections.backendai.cluster.plugins.plugin_utils._placement.place import Unschedulable
from ansible_collections.backendai.cluster.plugins.plugin_utils._planner.cluster_state import (
    ClusterState,
    InventoryAgent,
)
from ansible_collections.backendai.cluster.plugins.plugin_utils._planner.decision import decide
from ansible_collections.backendai.cluster.plugins.plugin_utils._planner.outlook import SPREAD, look_ahead
from tests.unit.builders import GIB, NOW, POOLS, SESSION_ID, USER, agent_facts, readings, spec

NEVER = "it does not fit even on an empty cluster"
EMPTY = "no place was found even on an empty cluster"
SPREADS = f"on an empty cluster it would fit with {SPREAD}"
REASON = "no route to host"


def busy(name: str, cpu: int = 4, **changes: Any) -> AgentFacts:
    """Return an agent that has given away all of its cores."""
    return agent_facts(name, cpu, allocated={"cpu": cpu}, containers=1, **changes)


def outlook(state: ClusterState, **asked: Any) -> tuple[str, bool]:
    request = spec(**asked)
    refusal = decide(request, state, POOLS, SESSION_ID, USER, NOW)
    assert isinstance(refusal, Unschedulable)
    found = look_ahead(refusal, request, state, POOLS, SESSION_ID, NOW)
    assert found.reason == refusal.reason
    return found.outlook, found.never


def of(*agents: AgentFacts) -> ClusterState:
    return readings(**{agent.name: agent for agent in agents})


@pytest.mark.parametrize(
    ("asked", "text"),
    [
        # What is the reason now is not said again.
        ({"resources": {"cpu": 5}}, NEVER),
        (
            {"cluster_size": 9, "cluster_mode": "multi-node"},
            f"{NEVER}: no room for 1 of 9 containers on 2 agents: short of cpu 1",
        ),
        (
            {"roles": {"main": {"resources": {"cpu": 3}}, "sub": {"resources": {"cpu": 2}}}},
            f"{NEVER}: no room for 1 of 2 containers (sub1) on one agent: short of cpu 2; {SPREADS}",
        ),
    ],
    ids=["a container that no agent could hold", "more in all than the group has", "unlike roles on one agent"],
)
def test_what_no_empty_agents_could_hold_never_fits(asked: dict[str, Any], text: str) -> None:
    assert outlook(of(busy("agent1"), busy("agent2")), **asked) == (text, True)


def test_of_what_fits_on_empty_agents_nothing_is_said() -> None:
    assert outlook(of(busy("agent1")), resources={"cpu": 4}) == ("", False)


def test_agents_that_are_cordoned_or_sick_count_as_empty() -> None:
    cordoned = busy("agent2", 8, schedulable=False, cordon=Cordon("", "carol", NOW))
    sick = busy("agent3", 8, schedulable=False, obstacles=["its disk is full."])
    for other in (cordoned, sick):
        assert outlook(of(busy("agent1"), other), resources={"cpu": 8}) == ("", False)


def away(agent: AgentFacts, *, silent: bool) -> ClusterState:
    known = {"agent3": InventoryAgent("default", frozenset())}
    state = readings(left_out={"agent3": REASON}, agent1=agent)
    return dataclasses.replace(state, inventory=known, unreachable=["agent3"] if silent else [])


def test_while_an_agent_of_the_group_is_away_nothing_is_proven() -> None:
    assert outlook(away(busy("agent1"), silent=True), resources={"cpu": 5}) == (f"{EMPTY} without agent3", False)
    refused = outlook(away(busy("agent1"), silent=False), resources={"cpu": 5})
    assert refused == (f"{EMPTY} without agent3 cannot be used ({REASON})", False)


def test_an_agent_of_another_group_that_is_away_makes_no_difference() -> None:
    state = dataclasses.replace(
        away(busy("agent1"), silent=True), inventory={"agent3": InventoryAgent("other", frozenset())}
    )
    assert outlook(state, resources={"cpu": 5})[1]


def test_for_unlike_roles_a_search_that_fails_is_no_proof(monkeypatch: pytest.MonkeyPatch) -> None:
    from ansible_collections.backendai.cluster.plugins.plugin_utils._placement import mixed

    roles = {name: {"resources": {"cpu": cpu}} for name, cpu in (("main", 3), ("b", 2), ("c", 2), ("d", 1))}
    agents = of(busy("agent1"), busy("agent2"))
    assert outlook(agents, roles=roles, cluster_mode="multi-node") == ("", False)
    # As if the search had missed it.
    monkeypatch.setattr(mixed, "concentrate", lambda *_given: ([], 0))
    assert outlook(agents, roles=roles, cluster_mode="multi-node") == (EMPTY, False)


def test_images_prove_no_architecture() -> None:
    arm = agent_facts("agent2", 8, architecture="arm64", images={})
    assert outlook(of(agent_facts("agent1", 4), arm), resources={"cpu": 8}) == ("", False)


def test_where_several_agents_would_do_that_is_said() -> None:
    free = of(agent_facts("agent1", 4), agent_facts("agent2", 4))
    text, never = outlook(free, cluster_size=6)
    assert (text, never) == (f"{NEVER}; it would start now with {SPREAD}", True)
    text, never = outlook(of(busy("agent1"), busy("agent2")), cluster_size=6)
    assert never
    assert text.endswith(f"; {SPREADS}")
    larger = of(agent_facts("agent1", 4), agent_facts("agent2", 8, allocated={"cpu": 4}, containers=1))
    assert outlook(larger, cluster_size=8) == (f"it would start now with {SPREAD}", False)
    assert SPREAD not in outlook(free, cluster_size=9)[0]


def test_it_takes_no_longer_than_a_decision_may_take() -> None:
    agents = of(*(busy(f"agent{number:03x}", 64, mem=256 * GIB) for number in range(1000)))
    request = spec(cluster_size=16, resources={"cpu": 65})
    refusal = decide(request, agents, POOLS, SESSION_ID, USER, NOW)
    assert isinstance(refusal, Unschedulable)
    began = time.process_time()
    look_ahead(refusal, request, agents, POOLS, SESSION_ID, NOW)
    assert time.process_time() - began < 1.0
