"""Sessions that end by time: their longest life, or because nobody uses them."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.integration.counted_use import HOUR, await_idle, idle_after_look, look, use
from tests.integration.inventories import UNREACHABLE, inventory_options
from tests.integration.laboratory import (
    QUEUE,
    Kernel,
    address,
    agent_state,
    queue_entries,
    run_in,
    run_on,
    stored_sessions,
)
from tests.integration.reconciliation import reconcile_paused
from tests.integration.session_requests import SMALL, TWO
from tests.integration.sessions import Sessions, StartedSession
from tests.integration.waiting import wait_until

pytestmark = pytest.mark.queue

ABSENT = QUEUE / "absent-agents"
READ_BANNER = "import socket, sys; print(socket.create_connection((sys.argv[1], int(sys.argv[2])), 30).recv(100))"


def test_an_idle_session_ends_with_the_next_run(agent1_sessions: Sessions) -> None:
    with reconcile_paused("agent1"):
        started = agent1_sessions.start(idle_timeout=HOUR, **SMALL)
        (main,) = started.kernels
        await_idle(main)
        assert agent1_sessions.run("schedule_sessions").code == 0
    record = queue_entries()[main["id"]]["record"]
    assert record["reason"] == f"it was idle for session_idle_timeout, {HOUR} seconds"
    assert agent1_sessions.list_by_name() == {}


def test_the_limits_of_the_operator_hold_for_new_sessions_only(agent1_sessions: Sessions) -> None:
    sessions = agent1_sessions
    refused = sessions.create(max_lifetime="2h", max_lifetime_limit="60m", **SMALL)
    assert refused.code != 0
    assert f"session_max_lifetime: {2 * HOUR} exceeds session_max_lifetime_limit, {HOUR}" in refused.text
    assert sessions.create(idle_timeout_limit=HOUR, **SMALL).record["ends_at"] is None
    again = sessions.create(max_lifetime_limit=60, **SMALL)
    assert (again.code, again.changed) == (0, 0), again.output
    (stored,) = (held["plan"] for held in stored_sessions()["agent1"] if held["plan"]["name"] == sessions.name)
    assert (stored["idle_timeout"], stored["max_lifetime"]) == (HOUR, 0)


def test_a_session_on_a_lost_agent_ends_where_it_can_be_reached(
    sessions: Sessions, unreachable_agent2: list[str], tmp_path: Path
) -> None:
    created = sessions.start(failure_policy="terminate", **{**TWO, "cluster_size": 3})
    initial, here = sessions.initial_state, {"queue_path": str(QUEUE), "agent_lost_after": 60}
    assert sessions.run("schedule_sessions", *unreachable_agent2, **here).code == 0
    listed = sessions.list_by_name(*unreachable_agent2, **here)[sessions.name]
    assert listed["status"] == "DEGRADED"
    assert listed["error"].startswith("agent2 does not answer since 2"), listed
    absent = json.loads(ABSENT.read_text())
    absent["agents"]["agent2"]["seconds"] = 60.0
    ABSENT.write_text(json.dumps(absent))
    cut_off = inventory_options(tmp_path, agent2=UNREACHABLE, agent3=UNREACHABLE)
    run = sessions.run("schedule_sessions", *cut_off, **here)
    assert "this control node may be cut off from them" in run.text
    assert queue_entries()[created.record["id"]]["state"] == "RUNNING"
    run = sessions.run("schedule_sessions", *inventory_options(tmp_path, agent2=UNREACHABLE), **here)
    record = queue_entries()[created.record["id"]]["record"]
    assert record["reason"].startswith("agent2 did not answer for "), run.output
    after = agent_state()
    assert [agent for agent in after if after[agent] != initial[agent]] == ["agent2"]
    assert sessions.run("schedule_sessions").code == 0
    assert agent_state() == initial


@pytest.fixture(scope="module")
def idler(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StartedSession]:
    """A session of one container that ends when it is idle, on an agent that looks only when it is told to."""
    with Sessions(tmp_path_factory.mktemp("idler")) as sessions:
        sessions.limit_to("agent1")
        with reconcile_paused("agent1"):
            yield sessions.start(idle_timeout=HOUR, max_lifetime=2 * HOUR, **SMALL)


@contextmanager
def running(kernel: Kernel, line: str) -> Iterator[None]:
    """Run a shell line in a container meanwhile."""
    run_on(kernel["agent"], f"docker exec -d {kernel['container']} sh -c {shlex.quote(line)}")
    try:
        yield
    finally:
        run_in(kernel, "sh", "-c", "kill $(cat /tmp/pid)", check=False)


@pytest.mark.parametrize(
    "line",
    [
        "echo $$ > /tmp/pid; while :; do :; done",
        "echo $$ > /tmp/pid; exec ssh -tt main1 sleep 600",
    ],
    ids=["a process that works", "an open login"],
)
def test_a_session_is_not_idle_while_something_goes_on(idler: StartedSession, line: str) -> None:
    (main,) = idler.kernels
    await_idle(main)
    with running(main, line):
        wait_until(lambda: idle_after_look(main) == 0, pause=1)
    await_idle(main)


def test_a_session_is_not_idle_after_a_request_through_the_gateway(idler: StartedSession) -> None:
    (main,) = idler.kernels
    await_idle(main)
    (stored,) = (held["plan"] for held in stored_sessions()["agent1"] if held["plan"]["id"] == main["id"])
    port = stored["published"][0]["host_port"]
    assert "SSH" in run_on("gateway1", f"python3 -c {shlex.quote(READ_BANNER)} {address('agent1')} {port}")
    assert idle_after_look(main) == 0


def test_logins_hear_of_the_end_which_comes_with_the_next_run(idler: StartedSession) -> None:
    (main,) = idler.kernels
    sessions, name = idler.sessions, idler.record["name"]
    use(main, idle=0.0)

    def terminal() -> str:
        return run_in(main, "cat", "/tmp/terminal", check=False)

    with running(main, "echo $$ > /tmp/pid; sleep 600 | exec ssh -tt main1 > /tmp/terminal 2>&1"):
        wait_until(lambda: "This session ends in 1 h " in terminal() or "This session ends in 2 h " in terminal())
        use(main, lived=2.0 * HOUR - 200)
        look(main)
        wait_until(lambda: f"the session {name} ends in 3 min: save your work." in terminal())
    listed = sessions.list_by_name()[name]
    assert listed["started_at"] < listed["ends_at"] < listed["started_at"] + HOUR, listed
    use(main, lived=2.0 * HOUR)
    scheduled = sessions.run("schedule_sessions")
    reason = f"it has lived for session_max_lifetime, {2 * HOUR} seconds"
    assert f"Session {name} is TERMINATED: {reason}." in scheduled.text, scheduled.output
    record = queue_entries()[main["id"]]["record"]
    assert (record["status"], record["reason"], record["ends_at"]) == ("TERMINATED", reason, None)
    assert sessions.list_by_name() == {}
