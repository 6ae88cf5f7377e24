"""Plans of other live runs are reserved before they are claimed on agents."""

from __future__ import annotations

import dataclasses
import time
from typing import Any

import pytest

from ansible_collections.backendai.cluster.plugins.module_utils._model.plan import SessionPlan
from ansible_collections.backendai.cluster.plugins.plugin_utils._queue.entry import Owner, QueueEntry
from ansible_collections.backendai.cluster.plugins.plugin_utils._queue.owner import current_owner
from ansible_collections.backendai.cluster.plugins.plugin_utils._queue.store import QueueStore
from tests.unit.builders import POOLS, agent_facts, held_session, plan, requested, result, spec
from tests.unit.plugins.action.conftest import Run
from tests.unit.plugins.action.stages import Plan

OTHER_ID = "00000000-3c0e-4f5e-9d0a-0f3c1d2e4b6a"
OTHER = dataclasses.replace(plan({"agent1": 4}, name="other"), id=OTHER_ID)
LIVE = dataclasses.replace(current_owner(), host="manager2 - boot pid:[1]")
DEAD = dataclasses.replace(current_owner(), started="0")
SIZE: dict[str, Any] = {"cluster_size": 4, "cluster_mode": "multi-node"}


def planned_by(owner: Owner, session_plan: SessionPlan = OTHER, **changes: Any) -> QueueEntry:
    """Return the entry of a session of four containers that another run has planned."""
    request = spec(name="other", cluster_size=4)
    entry = requested(9, request, id=OTHER_ID, state="CREATING", owner=owner, updated_at=time.time(), **changes)
    return dataclasses.replace(entry, plan=session_plan)


def surveyed(cpu: int = 8, *others: str, **changes: Any) -> dict[str, Any]:
    """Return the variables of a run with agents of that many cores each, with changes of agent1."""
    agents = {"agent1": agent_facts("agent1", cpu, **changes), **{name: agent_facts(name, cpu) for name in others}}
    return {"hostvars": {name: {"__session_agent": result(facts)} for name, facts in agents.items()}}


def planned(run: Run, hostvars: dict[str, Any], **args: Any) -> dict[str, Any]:
    """Return the plan of a requested session of four containers."""
    request = dataclasses.asdict(spec(**SIZE))
    arguments = {"spec": request, "pools": dataclasses.asdict(POOLS), "agents": list(hostvars["hostvars"])}
    return run(Plan, {**arguments, **args}, hostvars)


def started(run: Run, hostvars: dict[str, Any]) -> list[str]:
    """Return the names of the pending sessions that start."""
    args = {"queue": True, "pools": dataclasses.asdict(POOLS), "agents": list(hostvars["hostvars"])}
    return [start["plan"]["name"] for start in run(Plan, args, hostvars)["starts"]]


# ---- for a session that is asked for


@pytest.mark.parametrize("kept", [{}, {"spec": None}], ids=["one that waited", "its own"])
@pytest.mark.parametrize(
    ("owner", "cpu", "starts"),
    [(LIVE, 7, False), (LIVE, 8, True), (DEAD, 7, True), (DEAD, 3, False)],
    ids=["live, no room for both", "live, room for both", "dead, no room for both", "dead, room for neither"],
)
def test_plans_of_live_runs_are_reserved(
    run: Run, queue: QueueStore, owner: Owner, cpu: int, starts: bool, kept: dict[str, Any]
) -> None:
    queue.save(planned_by(owner, **kept))
    names = [start["plan"]["name"] for start in planned(run, surveyed(cpu))["starts"]]
    assert names == ["train-llm"] * starts


@pytest.mark.parametrize(("owner", "freed"), [(LIVE, True), (DEAD, False)], ids=["live", "dead"])
def test_capacity_may_be_released_by_a_live_run(run: Run, queue: QueueStore, owner: Owner, freed: bool) -> None:
    queue.save(planned_by(owner))
    waits = planned(run, surveyed(3))
    assert (waits["plan"], waits["capacity_released"]) == (None, freed)


def test_claimed_plan_is_counted_once(run: Run, queue: QueueStore) -> None:
    queue.save(planned_by(LIVE))
    claimed = held_session(OTHER, "agent1", committed=False)
    hostvars = surveyed(8, allocated={"cpu": 4}, containers=4, sessions=[claimed])
    assert len(planned(run, hostvars)["starts"]) == 1


def test_planned_network_is_not_allocated_twice(run: Run, queue: QueueStore) -> None:
    across = plan({"agent1": 2, "agent2": 2}, name="other")
    assert across.network is not None
    first = dataclasses.replace(across.network, subnet="10.128.0.0/29", vni=4096)
    queue.save(planned_by(LIVE, dataclasses.replace(across, id=OTHER_ID, network=first)))
    two = dataclasses.replace(POOLS, network="10.128.0.0/28", first_vni=4096, last_vni=4097)
    network = planned(run, surveyed(4, "agent2"), pools=dataclasses.asdict(two))["plan"]["network"]
    assert (network["subnet"], network["vni"]) == ("10.128.0.8/29", 4097)


def test_earlier_plan_of_the_same_session_is_not_reserved(run: Run, queue: QueueStore) -> None:
    first = planned(run, surveyed(4))
    second = planned(run, surveyed(4), attempt=2)
    assert [(start["id"], start["agents"]) for start in second["starts"]] == [(first["id"], ["agent1"])]
    assert [entry.id for entry in queue.entries()] == [first["id"]]


# ---- for sessions that wait


@pytest.mark.parametrize(
    ("owner", "names"),
    [(LIVE, ["session-1"]), (current_owner(), ["session-1"]), (DEAD, ["session-1", "session-2"])],
    ids=["live", "this run", "dead"],
)
def test_plans_of_live_runs_are_reserved_for_the_queue(
    run: Run, queue: QueueStore, owner: Owner, names: list[str]
) -> None:
    for number in (1, 2):
        queue.save(requested(number))
    other = planned_by(owner, spec=None)
    queue.save(other)
    assert started(run, surveyed(5)) == names
    assert queue.entry(OTHER_ID) == other


def test_pending_session_starts_beside_claimed_ones(run: Run, queue: QueueStore) -> None:
    queue.save(requested(1))
    queue.save(planned_by(LIVE))
    claimed = held_session(OTHER, "agent1", committed=False)
    assert started(run, surveyed(5, allocated={"cpu": 4}, containers=4, sessions=[claimed])) == ["session-1"]
