"""Agents of the inventory that do not answer count as known: requests that only they could serve wait for them."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from ansible_collections.backendai.cluster.plugins.module_utils._model.facts import AgentFacts
from ansible_collections.backendai.cluster.plugins.module_utils._model.mounts import MISSING
from ansible_collections.backendai.cluster.plugins.module_utils._model.validation import ValidationError
from ansible_collections.backendai.cluster.plugins.plugin_utils._placement.place import Unschedulable
from ansible_collections.backendai.cluster.plugins.plugin_utils._planner.cluster_state import (
    ClusterState,
    InventoryAgent,
)
from ansible_collections.backendai.cluster.plugins.plugin_utils._planner.decision import Decision, decide, is_feasible
from ansible_collections.backendai.cluster.plugins.plugin_utils._planner.session_network import PlanningError
from tests.unit.builders import GIB, NOW, POOLS, SESSION_ID, USER, agent_facts, readings, spec

REASON = "no route to host"
WAITS = f"no room for 1 of 1 containers: no agent that may hold them is schedulable; agent3 does not answer ({REASON})"


def cluster(
    *, group: str | None = "default", labels: Any = frozenset(), silent: bool = True, **facts: AgentFacts
) -> ClusterState:
    """Return a cluster with agent1, which answers, and agent3, of which only the inventory is known."""
    known = {"agent1": InventoryAgent("default", frozenset()), "agent3": InventoryAgent(group, labels)}
    answering = facts or {"agent1": agent_facts("agent1")}
    return dataclasses.replace(
        readings(left_out={"agent3": REASON}, **answering),
        inventory=known,
        unreachable=["agent3"] if silent else [],
    )


def answer(state: ClusterState, **options: Any) -> Decision | Unschedulable:
    return decide(spec(**options), state, POOLS, SESSION_ID, USER, NOW)


def reason(state: ClusterState, **options: Any) -> str:
    waits = answer(state, **options)
    assert isinstance(waits, Unschedulable)
    return waits.reason


@pytest.mark.parametrize(
    ("known", "options"),
    [
        ({"group": "gpu"}, {"resource_group": "gpu"}),
        ({"group": None}, {"resource_group": "gpu"}),
        ({"labels": frozenset({"fast", "a100"})}, {"agent_labels": ["fast"]}),
        ({"labels": None}, {"agent_labels": ["fast"]}),
        ({}, {"architecture": "arm64"}),
        ({}, {"resources": {"cuda.device": 1}}),
        ({}, {"roles": {"main": {"resources": {"tpu": 1}}}}),
        ({}, {"infiniband": True}),
        ({}, {"designated_agents": ["agent3"]}),
        ({}, {"designated_agents": ["agent3"], "architecture": "arm64"}),
    ],
    ids=[
        *("group", "unknown group", "label", "unknown labels", "architecture", "slot", "slot of a role", "InfiniBand"),
        *("designated", "designated, of an architecture"),
    ],
)
def test_a_request_that_only_an_agent_that_is_away_could_serve_waits_and_names_it(
    known: dict[str, Any], options: dict[str, Any]
) -> None:
    state = cluster(**known)
    assert reason(state, **options) == WAITS
    # Others need not wait behind it.
    assert is_feasible(spec(**options), state, POOLS, SESSION_ID) is False


@pytest.mark.parametrize(
    ("changes", "options"),
    [
        ({"unusable_paths": {"/data": MISSING}}, {"mounts": [{"source": "/data", "target": "/data"}]}),
        ({"unusable_images": {"lab/python:1": "it cannot be read"}}, {}),
        ({"allow_host_network": False}, {"network_driver": "host", "cluster_mode": "multi-node", "cluster_size": 2}),
    ],
    ids=["mount", "image", "network of the host"],
)
def test_what_the_others_lack_may_be_on_the_one_that_is_away(changes: dict[str, Any], options: dict[str, Any]) -> None:
    state = cluster(agent1=agent_facts("agent1", **changes))
    assert reason(state, **options).endswith(f"; agent3 does not answer ({REASON})")


@pytest.mark.parametrize(
    ("known", "options", "sentence"),
    [
        ({}, {"resource_group": "gpu"}, "session_resource_group: no agent belongs to 'gpu'; known are default."),
        (
            {"group": "gpu"},
            {"resource_group": "tpu"},
            "session_resource_group: no agent belongs to 'tpu'; known are default, gpu.",
        ),
        (
            {"labels": frozenset({"slow"})},
            {"agent_labels": ["fast"]},
            "session_agent_labels: no agent has 'fast'; there are slow.",
        ),
        ({"group": "gpu"}, {"architecture": "arm64"}, "session_architecture: no agent is 'arm64'; known are amd64."),
        (
            {"group": "gpu"},
            {"designated_agents": ["agent3"]},
            "session_designated_agents: 'agent3' belongs to resource group 'gpu', not to 'default'.",
        ),
        (
            {},
            {"designated_agents": ["agent9"]},
            "session_designated_agents: 'agent9' is not an agent of the inventory; known are agent1, agent3.",
        ),
        (
            {},
            {"designated_agents": ["agent1"], "architecture": "arm64"},
            "session_architecture: no agent is 'arm64'; known are amd64.",
        ),
    ],
)
def test_what_the_inventory_says_excludes_an_agent_that_is_away(
    known: dict[str, Any], options: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(ValidationError) as refused:
        answer(cluster(**known), **options)
    assert str(refused.value) == sentence


def test_a_session_that_fits_elsewhere_starts() -> None:
    for options in ({}, {"designated_agents": ["agent1", "agent3"]}):
        decision = answer(cluster(), **options)
        assert isinstance(decision, Decision)
        assert decision.plan.agents == ["agent1"]


def test_no_room_on_the_others_names_the_one_that_is_away() -> None:
    full = agent_facts("agent1", 1, allocated={"cpu": 1, "mem": GIB})
    found = reason(cluster(agent1=full))
    assert found.startswith("no room for 1 of 1 containers on one agent: short of cpu 1")
    assert found.endswith(f"; agent3 does not answer ({REASON})")
    assert "agent3" not in reason(cluster(group="gpu", agent1=full))


def test_an_agent_that_was_not_asked_is_not_waited_for() -> None:
    unasked = dataclasses.replace(cluster(group="gpu"), unavailable={}, unreachable=[])
    with pytest.raises(ValidationError, match="no agent belongs to 'gpu'"):
        answer(unasked, resource_group="gpu")


@pytest.mark.parametrize(
    ("options", "kind", "sentence"),
    [
        (
            {"resource_group": "gpu"},
            PlanningError,
            f"no agent that may hold the session can be used; agent3 cannot be used ({REASON}).",
        ),
        (
            {"resource_group": "gpu", "designated_agents": ["agent3"]},
            PlanningError,
            f"session_designated_agents: 'agent3' cannot be used: {REASON}",
        ),
    ],
)
def test_an_agent_that_answers_with_an_error_is_not_waited_for_but_named(
    options: dict[str, Any], kind: type[ValueError], sentence: str
) -> None:
    with pytest.raises(kind) as refused:
        answer(cluster(group="gpu", silent=False), **options)
    assert str(refused.value) == sentence


def test_an_error_about_the_others_names_one_that_has_answered_with_an_error() -> None:
    with pytest.raises(ValidationError) as refused:
        answer(cluster(silent=False), architecture="arm64")
    assert str(refused.value) == (
        f"session_architecture: no agent is 'arm64'; known are amd64; agent3 cannot be used ({REASON})."
    )
