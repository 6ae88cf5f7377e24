"""Sessions that wait: what is kept of them, which one starts when there is room, and what a killed run leaves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.integration.containers import exit_code
from tests.integration.internals import TASK_CLAIM, TASK_RECORD
from tests.integration.interruptions import killed_at
from tests.integration.laboratory import PYTHON, Run, at_once, command, inside, queue, share
from tests.integration.sessions import Sessions

pytestmark = pytest.mark.queue

BATCH = "while [ ! -e /tmp/over ]; do sleep 0.1; done"


@pytest.fixture(scope="module")
def alone() -> dict[str, Any]:
    """A request for so much of agent1 that there is room for one such container."""
    return {"designated_agents": ["agent1"], "resources": {"cpu": 1, "mem": share(1)}}


def over(created: Run) -> None:
    """Let the command of a batch session come to its end."""
    main = created.record["kernels"][0]
    inside(main, "touch", "/tmp/over")
    exit_code(main)


def test_a_session_without_room_waits_as_it_was_asked_for_and_starts_once(
    near: Sessions, alone: dict[str, Any]
) -> None:
    first, later = near.name, f"{near.name}-later"
    running = near.create(command=BATCH, **alone)
    assert (running.code, running.record["status"]) == (0, "RUNNING"), running.output

    waits = near.create(name=later, **alone)
    assert (waits.code, waits.record["status"], waits.record["kernels"]) == (0, "PENDING", []), waits.output
    assert waits.record["pending"]["shortfall"] == {"mem": alone["resources"]["mem"]}
    assert f"room comes when these end: {first}" in waits.record["pending"]["reason"]

    again = near.create(name=later, **alone)
    assert (again.code, again.changed, again.record) == (0, 0, waits.record), again.output
    other = near.create(name=later, **{**alone, "priority": 11})
    assert other.code != 0
    assert f"session_name: '{later}' is taken by a session (PENDING) that differs in session_priority" in other.said

    listed = near.run("list_sessions")
    assert waits.record in listed.record
    (row,) = [line for line in listed.output.splitlines() if line.startswith(later)]
    assert row.split()[1:5] == ["Single-node", "1", "PENDING", "-"]
    assert row.endswith(waits.record["pending"]["reason"])

    nothing = near.run("schedule_sessions")
    assert (nothing.code, nothing.changed) == (0, 0), nothing.output
    assert queue()[waits.record["id"]]["record"] == waits.record

    over(running)
    both = at_once(*[lambda: near.run("schedule_sessions")] * 2)
    assert [run.code for run in both] == [0, 0], both[0].output + both[1].output
    assert sum(f"Session {later} is RUNNING." in run.said for run in both) == 1, both[0].output + both[1].output
    records = near.listed(history=True)
    assert (records[first]["status"], records[first]["exit_code"]) == ("TERMINATED", 0)
    assert (records[later]["status"], records[later]["id"]) == ("RUNNING", waits.record["id"])


def test_what_waits_is_cancelled_by_the_user_or_by_its_time_and_the_higher_priority_starts_first(
    near: Sessions, alone: dict[str, Any]
) -> None:
    first, ended, late = near.name, f"{near.name}-ended", f"{near.name}-late"
    names = {priority: f"{near.name}-{priority}" for priority in (5, 50)}
    assert near.create(**alone).code == 0
    waiting = {name: near.create(name=name, priority=priority, **alone).record for priority, name in names.items()}
    assert near.create(name=ended, **alone).record["status"] == "PENDING"
    assert near.create(name=late, pending_timeout=1, **alone).record["status"] == "PENDING"

    cancelled = near.terminate(name=ended)
    assert (cancelled.code, cancelled.record["status"]) == (0, "CANCELLED"), cancelled.output
    assert cancelled.record["reason"] == "terminate_session was run"
    records = near.listed(history=True)
    assert records[first]["status"] == "RUNNING"
    assert records[ended] == cancelled.record
    assert records[late]["status"] == "CANCELLED"
    assert records[late]["reason"] == "it waited longer than session_pending_timeout, 1 seconds"

    over = near.terminate(name=first)
    assert (over.code, over.record["status"]) == (0, "TERMINATED"), over.output
    assert f"Session {names[50]} is RUNNING." in over.said
    records = near.listed()
    assert {name: record["status"] for name, record in records.items()} == {names[5]: "PENDING", names[50]: "RUNNING"}
    assert {name: records[name]["id"] for name in waiting} == {name: waiting[name]["id"] for name in waiting}


def test_a_killed_run_loses_nothing_of_what_waits(near: Sessions, alone: dict[str, Any], tmp_path: Path) -> None:
    later = f"{near.name}-later"
    running = near.create(command=BATCH, **alone)
    assert running.code == 0, running.output
    variables = {f"session_{key}": value for key, value in {"name": later, "image": PYTHON, **alone}.items()}
    killed_at(TASK_RECORD, command("create_session", tmp_path, variables))
    (waits,) = [entry for entry in queue().values() if entry["name"] == later]
    assert waits["state"] == "waiting"

    over(running)
    killed_at(TASK_CLAIM, command("schedule_sessions", tmp_path, {}))
    entry = queue()[waits["id"]]
    assert (entry["state"], entry["spec"]) == ("starting", waits["spec"])
    assert near.run("schedule_sessions").code == 0
    record = near.listed()[later]
    assert (record["id"], record["status"]) == (waits["id"], "RUNNING")
    healthy = near.create(name=later, **alone)
    assert (healthy.code, healthy.changed, healthy.record) == (0, 0, record), healthy.output
