"""Pending sessions: their stored request, the order of starts, and recovery after a killed run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.integration.containers import wait_for_exit
from tests.integration.internals import TASK_CLAIM
from tests.integration.interruptions import kill_at_task, kill_run
from tests.integration.laboratory import (
    PYTHON,
    TIMEOUT,
    Run,
    command,
    in_parallel,
    launch,
    memory_share,
    queue_entries,
    run_in,
    run_on,
)
from tests.integration.sessions import Sessions
from tests.integration.waiting import wait_until

pytestmark = pytest.mark.queue

BATCH = "while [ ! -e /tmp/over ]; do sleep 0.1; done"


@pytest.fixture(scope="module")
def whole_agent() -> dict[str, Any]:
    """A request that fits only once on agent1."""
    return {"designated_agents": ["agent1"], "resources": {"cpu": 1, "mem": memory_share(1)}}


def end_batch(created: Run) -> None:
    """Let the command of a batch session finish."""
    main = created.record["kernels"][0]
    run_in(main, "touch", "/tmp/over")
    wait_for_exit(main)


def test_pending_session_keeps_its_request_and_starts_once(
    agent1_sessions: Sessions, whole_agent: dict[str, Any]
) -> None:
    first, later = agent1_sessions.name, f"{agent1_sessions.name}-later"
    running = agent1_sessions.create(command=BATCH, **whole_agent)
    assert (running.code, running.record["status"]) == (0, "RUNNING"), running.output

    pending = agent1_sessions.create(name=later, **whole_agent)
    assert (pending.code, pending.record["status"], pending.record["kernels"]) == (0, "PENDING", []), pending.output
    assert pending.record["pending"]["shortfall"] == {"mem": whole_agent["resources"]["mem"]}
    assert f"it fits when these end: {first}" in pending.record["pending"]["reason"]

    rerun = agent1_sessions.create(name=later, **whole_agent)
    assert (rerun.code, rerun.changed, rerun.record) == (0, 0, pending.record), rerun.output
    other = agent1_sessions.create(name=later, **{**whole_agent, "priority": 11})
    assert other.code != 0
    assert f"session_name: '{later}' is taken by a session (PENDING) that differs in session_priority" in other.text

    listed = agent1_sessions.run("list_sessions")
    assert pending.record in listed.record
    (row,) = [line for line in listed.output.splitlines() if line.startswith(later)]
    assert row.split()[2:7] == ["-", "1", "1/0", "PENDING", "-"]
    assert row.endswith(pending.record["pending"]["reason"])

    unchanged = agent1_sessions.run("schedule_sessions")
    assert (unchanged.code, unchanged.changed) == (0, 0), unchanged.output
    assert queue_entries()[pending.record["id"]]["record"] == {**pending.record, "queue_position": None}

    end_batch(running)
    both = in_parallel(*[lambda: agent1_sessions.run("schedule_sessions")] * 2)
    assert [run.code for run in both] == [0, 0], both[0].output + both[1].output
    assert sum(f"Session {later} is RUNNING." in run.text for run in both) == 1, both[0].output + both[1].output
    records = agent1_sessions.list_by_name(history=True)
    assert (records[first]["status"], records[first]["exit_code"]) == ("TERMINATED", 0)
    assert (records[later]["status"], records[later]["id"]) == ("RUNNING", pending.record["id"])

    # One that does not start in time is cancelled.
    late = f"{agent1_sessions.name}-late"
    assert agent1_sessions.create(name=late, pending_timeout=1, **whole_agent).record["status"] == "PENDING"

    def after_the_next_run() -> dict[str, Any]:
        assert agent1_sessions.run("schedule_sessions").code == 0
        return dict(agent1_sessions.list_by_name(history=True)[late])

    wait_until(lambda: after_the_next_run()["status"] == "CANCELLED")
    assert after_the_next_run()["reason"] == "it waited longer than session_pending_timeout, 1 seconds"


def test_killed_run_keeps_pending_sessions(
    agent1_sessions: Sessions, whole_agent: dict[str, Any], tmp_path: Path
) -> None:
    later = f"{agent1_sessions.name}-later"
    running = agent1_sessions.create(command=BATCH, **whole_agent)
    assert running.code == 0, running.output
    variables = {f"session_{key}": value for key, value in {"name": later, "image": PYTHON, **whole_agent}.items()}
    with launch(command("create_session", tmp_path, variables)) as run:
        wait_until(lambda: later in [entry["name"] for entry in queue_entries().values()], TIMEOUT)
        kill_run(run)
        run.communicate(timeout=TIMEOUT)
    (pending,) = [entry for entry in queue_entries().values() if entry["name"] == later]
    assert pending["state"] == "PENDING"

    end_batch(running)
    kill_at_task(TASK_CLAIM, command("schedule_sessions", tmp_path, {}))
    entry = queue_entries()[pending["id"]]
    assert (entry["state"], entry["spec"]) == ("CREATING", pending["spec"])
    assert agent1_sessions.run("schedule_sessions").code == 0
    record = agent1_sessions.list_by_name()[later]
    assert (record["id"], record["status"]) == (pending["id"], "RUNNING")
    healthy = agent1_sessions.create(name=later, **whole_agent)
    assert (healthy.code, healthy.changed, healthy.record) == (0, 0, record), healthy.output


def test_slow_bootstrap_does_not_delay_sessions_that_start_with_it(
    agent1_sessions: Sessions, whole_agent: dict[str, Any]
) -> None:
    slow, quick = f"{agent1_sessions.name}-slow", f"{agent1_sessions.name}-quick"
    half = {**whole_agent, "resources": {"cpu": 1, "mem": memory_share(2)}}
    assert agent1_sessions.create(**whole_agent).code == 0
    for name, bootstrap in ((slow, "until [ -e /tmp/over ]; do sleep 0.1; done"), (quick, "")):
        waiting = agent1_sessions.create(name=name, bootstrap_script=bootstrap, **half)
        assert waiting.record["status"] == "PENDING", waiting.output

    def list_once_quick_is_recorded() -> Run:
        wait_until(lambda: {entry["name"]: entry["state"] for entry in queue_entries().values()}[quick] == "RUNNING")
        listed = agent1_sessions.run("list_sessions")
        run_on("agent1", f"docker exec backendai-{slow}-main1 touch /tmp/over")
        return listed

    ended, listed = in_parallel(agent1_sessions.terminate, list_once_quick_is_recorded)
    assert ended.code == 0, ended.output
    statuses = {record["name"]: record["status"] for record in listed.record}
    assert (statuses[quick], statuses[slow]) == ("RUNNING", "CREATING")
    assert {entry["name"]: entry["state"] for entry in queue_entries().values()}[slow] == "RUNNING"
    assert agent1_sessions.list_by_name()[slow]["status"] == "RUNNING"
