"""The action session_plan with the queue: starts are saved before anything is claimed."""

from __future__ import annotations

import dataclasses
import json
import time
from typing import Any

import pytest

from ansible_collections.backendai.cluster.plugins.module_utils._model.facts import AgentFacts
from ansible_collections.backendai.cluster.plugins.module_utils._model.images import ImageDisk
from ansible_collections.backendai.cluster.plugins.module_utils._model.plan import SessionPlan
from ansible_collections.backendai.cluster.plugins.plugin_utils._queue.entry import QueueEntry, mark_terminating
from ansible_collections.backendai.cluster.plugins.plugin_utils._queue.owner import current_owner
from ansible_collections.backendai.cluster.plugins.plugin_utils._queue.policy import count_skips
from ansible_collections.backendai.cluster.plugins.plugin_utils._queue.schedule import schedule
from ansible_collections.backendai.cluster.plugins.plugin_utils._queue.store import QueueStore
from ansible_collections.backendai.cluster.plugins.plugin_utils._report.record import session_record
from ansible_collections.backendai.cluster.plugins.plugin_utils._run import waiting_sessions
from tests.unit.builders import (
    IMAGE,
    NOW,
    POOLS,
    SESSION_ID,
    agent_facts,
    holders,
    plan,
    requested,
    result,
    spec,
)
from tests.unit.plugins.action.conftest import Run
from tests.unit.plugins.action.stages import Plan

ARGUMENTS: dict[str, Any] = {
    "queue": True,
    "agents": ["agent1", "agent2"],
    "pools": dataclasses.asdict(POOLS),
    "policy": "fifo",
    "max_skips": 16,
}


def answers(cpu: int = 2, **facts: AgentFacts) -> dict[str, Any]:
    """Return the variables of a run with a small agent and an unreachable one, unless given otherwise."""
    results = {"agent1": result(facts.get("agent1", agent_facts("agent1", cpu))), "agent2": {"error": "start docker."}}
    if "agent2" in facts:
        results["agent2"] = result(facts["agent2"])
    return {"hostvars": {name: {"__session_agent": entry} for name, entry in results.items()}}


def test_image_that_would_fill_a_disk_is_warned_of(run: Run, queue: QueueStore) -> None:
    queue.save(requested())
    full = agent_facts("agent1", 2, images={IMAGE: None}, image_disk=ImageDisk("/data", 0, 1, {}))
    warned = run(Plan, ARGUMENTS, answers(agent1=full))["warnings"]
    assert [line.partition(":")[0] for line in warned] == ["agent1"]


def test_an_empty_queue_starts_nothing(run: Run) -> None:
    result = run(Plan, ARGUMENTS, answers())
    assert (result["starts"], result["agents"], result["specs"]) == ([], [], {})


def test_starting_and_pending_sessions_are_saved(run: Run, queue: QueueStore) -> None:
    for number in (1, 2, 3):
        queue.save(requested(number, spec(name=f"session-{number}", env={"TOKEN": "hunter2"})))
    result = run(Plan, ARGUMENTS, answers())
    assert [start["plan"]["name"] for start in result["starts"]] == ["session-1", "session-2"]
    assert result["agents"] == ["agent1"]
    first, second, third = queue.entries()
    assert [(entry.state, entry.owner) for entry in (first, second)] == [("CREATING", current_owner())] * 2
    assert [entry.plan for entry in (first, second)] == [
        SessionPlan.from_dict(start["plan"]) for start in result["starts"]
    ]
    assert (third.state, third.owner, third.updated_at) == ("PENDING", None, NOW + 3)
    assert third.record["pending"] == {
        "reason": "no room for 1 of 1 containers on one agent: short of cpu 1; it fits when these end: session-1",
        "shortfall": {"cpu": 1},
    }


def test_starts_have_no_secrets_and_their_requests_are_beside_them(run: Run, queue: QueueStore) -> None:
    request = spec(name="session-1", env={"TOKEN": "hunter2"})
    queue.save(requested(1, request))
    queue.save(requested(2, spec(name="session-2", cluster_size=9)))
    result = run(Plan, ARGUMENTS, answers())
    (start,) = result["starts"]
    assert (start["id"], start["existing"], start["never_completed"]) == (requested(1).id, False, True)
    assert "hunter2" not in json.dumps(start)
    assert result["specs"] == {"session-1": request}
    assert queue.entries()[0].request == request


def test_skipped_sessions_are_counted(run: Run, queue: QueueStore) -> None:
    queue.save(requested(1, spec(name="session-1", cluster_size=4)))
    queue.save(requested(2))
    run(Plan, ARGUMENTS, answers())
    first, second = queue.entries()
    assert (first.state, second.state) == ("PENDING", "CREATING")
    assert count_skips([first, second]) == {first.id: 1, second.id: 0}


@pytest.mark.parametrize(("max_skips", "started"), [(1, []), (2, ["session-2"])])
def test_starving_session_is_not_skipped(run: Run, queue: QueueStore, max_skips: int, started: list[str]) -> None:
    queue.save(requested(1, spec(name="session-1", cluster_size=2)))
    queue.save(requested(3, state="TERMINATED", spec=None, has_started=True))
    queue.save(requested(2))
    running = plan({"agent1": 1})
    queue.save(requested(9, id=SESSION_ID, state="RUNNING", plan=running, enqueued_at=NOW))
    sessions = holders(running)["agent1"].sessions
    hostvars = answers(agent1=agent_facts("agent1", 2, allocated={"cpu": 1}, sessions=sessions))
    result = run(Plan, {**ARGUMENTS, "max_skips": max_skips}, hostvars)
    assert [start["plan"]["name"] for start in result["starts"]] == started


@pytest.mark.parametrize(("policy", "first"), [("fifo", "session-1"), ("lifo", "session-2")])
def test_policy_orders_the_queue(run: Run, queue: QueueStore, policy: str, first: str) -> None:
    for number in (1, 2):
        queue.save(requested(number))
    result = run(Plan, {**ARGUMENTS, "policy": policy}, answers(1))
    assert [start["plan"]["name"] for start in result["starts"]] == [first]


def test_what_is_held_does_not_start_and_nobody_waits_for_it(run: Run, queue: QueueStore) -> None:
    queue.save(requested(1, spec(name="session-1", cluster_size=2)))
    queue.save(requested(2))
    queue.save(*(requested(number, state="TERMINATED", spec=None, has_started=True) for number in range(10, 30)))
    dead = dataclasses.replace(current_owner(), started="0")
    queue.save(requested(3, state="CREATING", owner=dead))
    result = run(Plan, {**ARGUMENTS, "held": [requested(1).id, requested(3).id]}, answers())
    assert [start["plan"]["name"] for start in result["starts"]] == ["session-2"]
    held, started, *_others = queue.entries()
    assert (held.state, started.state) == ("PENDING", "CREATING")


def test_session_of_a_killed_run_is_started_again(run: Run, queue: QueueStore) -> None:
    queue.save(requested(1, state="CREATING", owner=dataclasses.replace(current_owner(), started="0")))
    queue.save(requested(2, state="CREATING", owner=current_owner()))
    result = run(Plan, ARGUMENTS, answers())
    assert [start["plan"]["name"] for start in result["starts"]] == ["session-1"]
    assert [entry.owner for entry in queue.entries()] == [current_owner(), current_owner()]


def test_session_of_a_killed_run_starts_nowhere_else_while_its_agent_is_away(run: Run, queue: QueueStore) -> None:
    killed = dataclasses.replace(current_owner(), started="0")
    asked = spec(name="train-llm", command="python train.py")
    begun = {"id": SESSION_ID, "state": "CREATING", "owner": killed, "plan": plan({"agent2": 1}, command=asked.command)}
    queue.save(requested(1, asked, **begun))
    assert run(Plan, ARGUMENTS, answers())["starts"] == []
    (entry,) = queue.entries()
    assert entry.record["pending"]["reason"].startswith(
        "agent2 may have begun its command, and cannot be used (agent2: start docker): "
    )
    (started,) = run(Plan, ARGUMENTS, answers(agent2=agent_facts("agent2")))["starts"]
    assert started["id"] == SESSION_ID


def test_stale_sessions_use_capacity_until_the_claim(run: Run, queue: QueueStore) -> None:
    session_plan = plan({"agent1": 1})
    running = requested(9, id=SESSION_ID, state="RUNNING", plan=session_plan)
    queue.save(mark_terminating(running, session_record(session_plan, "TERMINATED"), session_plan.agents, NOW))
    for number in (1, 2):
        queue.save(requested(number))
    hostvars = answers(
        agent1=agent_facts("agent1", 2, allocated={"cpu": 1}, sessions=holders(session_plan)["agent1"].sessions)
    )
    result = run(Plan, ARGUMENTS, hostvars)
    assert [(start["plan"]["name"], start["stale_sessions"]) for start in result["starts"]] == [
        ("session-1", [SESSION_ID])
    ]


def test_claimed_session_is_resumed(run: Run, queue: QueueStore) -> None:
    session_plan = dataclasses.replace(plan({"agent1": 1}, name="session-1"), id=requested(1).id)
    queue.save(requested(1, plan=session_plan))
    facts = holders(session_plan, committed=False)
    (start,) = run(Plan, ARGUMENTS, answers(agent1=facts["agent1"]))["starts"]
    assert (start["existing"], start["plan"]) == (True, session_plan.to_dict())


def test_entries_changed_by_other_runs_are_skipped(
    run: Run, queue: QueueStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in (1, 2, 3):
        queue.save(requested(number))
    taken = requested(1, state="CREATING", owner=dataclasses.replace(current_owner(), host="manager2 - boot pid:[1]"))
    taken = dataclasses.replace(taken, updated_at=time.time())

    def meanwhile(*arguments: Any) -> Any:
        queue.save(taken)
        queue.remove(requested(3).id)
        return schedule(*arguments)

    monkeypatch.setattr(waiting_sessions, "schedule", meanwhile)
    result = run(Plan, ARGUMENTS, answers())
    assert [start["plan"]["name"] for start in result["starts"]] == ["session-2"]
    assert [(entry.name, entry.owner) for entry in queue.entries()] == [
        ("session-1", taken.owner),
        ("session-2", current_owner()),
    ]


def test_check_mode_decides_without_saving(run: Run, queue: QueueStore) -> None:
    for number in (1, 2, 3):
        queue.save(requested(number))
    before = queue.entries()
    assert len(run(Plan, ARGUMENTS, answers(), check_mode=True)["starts"]) == 2
    assert queue.entries() == before


def of_a_user(number: int, user: str, uid: int) -> QueueEntry:
    return requested(number, spec(name=f"session-{number}"), user=user, user_uid=uid, limited=True)


def test_what_waits_does_not_start_while_its_user_has_enough_that_run(run: Run, queue: QueueStore) -> None:
    entries = [of_a_user(number, "alice", 1001) for number in range(1, 5)]
    queue.save(*entries, of_a_user(5, "bob", 1002))
    args = {**ARGUMENTS, "limits": {"max_sessions": 2}}
    started = run(Plan, args, answers(cpu=8))["starts"]
    assert [start["plan"]["name"] for start in started] == ["session-1", "session-2", "session-5"]
    reason = "max_sessions: alice may have 2 that run"
    assert queue.entries()[3].record["pending"]["reason"] == reason
    assert run(Plan, args, answers(cpu=8))["starts"] == []


def test_a_start_of_another_run_meanwhile_counts_too(
    run: Run, queue: QueueStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, other = (of_a_user(number, "alice", 1001) for number in (1, 2))
    queue.save(first)

    def meanwhile(*arguments: Any) -> Any:
        queue.save(dataclasses.replace(other, state="CREATING", owner=current_owner(), attended=True))
        return schedule(*arguments)

    monkeypatch.setattr(waiting_sessions, "schedule", meanwhile)
    assert run(Plan, {**ARGUMENTS, "limits": {"max_sessions": 1}}, answers(cpu=8))["starts"] == []
