"""Results of several starts, refused starts and routes."""

from __future__ import annotations

import dataclasses
import stat
import time
from pathlib import Path

import pytest

from ansible_collections.backendai.cluster.plugins.module_utils._model.session import PublishedPort
from ansible_collections.backendai.cluster.plugins.plugin_utils._queue.owner import current_owner
from ansible_collections.backendai.cluster.plugins.plugin_utils._queue.store import QueueStore
from ansible_collections.backendai.cluster.plugins.plugin_utils._report.access import build_gateway_route
from tests.unit.builders import SESSION_ID, requested
from tests.unit.plugins.action.conftest import Run
from tests.unit.plugins.action.settled_starts import (
    CLAIMED,
    COMMITTED,
    FAILED,
    GONE,
    MADE,
    OTHER,
    OTHER_ID,
    REFUSED,
    RUNS,
    WHY,
    Steps,
    decided,
    replied,
    settle,
    settle_all,
    starts,
)

# ---- several starts at once


@pytest.mark.parametrize(
    ("steps", "statuses", "errors"),
    [
        (COMMITTED, ["RUNNING", "RUNNING"], [None, None]),
        (REFUSED, ["PENDING", "RUNNING"], [None, None]),
        (FAILED, ["PENDING", "RUNNING"], [WHY, None]),
    ],
    ids=["both run", "one is refused", "one failed"],
)
def test_each_start_is_reported_and_saved(
    run: Run,
    queue: QueueStore,
    printed: list[str],
    steps: Steps,
    statuses: list[str],
    errors: list[str | None],
) -> None:
    starts(queue)
    starts(queue, id=OTHER_ID, name="other")
    alone: Steps = {"claim": {"agent1": {"steps": ["claim", "apply", "commit"], "containers": {"main1": RUNS}}}}
    settled = settle_all(run, [replied(decided(), steps), replied(decided(OTHER), alone)])
    records = [session.record for session in settled["sessions"]]
    assert [record["name"] for record in records] == ["train-llm", "other"]
    assert [record["status"] for record in records] == statuses
    assert [session.error for session in settled["sessions"]] == errors
    assert {entry.id: entry.state for entry in queue.entries()} == {SESSION_ID: statuses[0], OTHER_ID: statuses[1]}
    lines = [line for line in printed if line.startswith("Session")]
    names = zip(("train-llm", "other"), statuses, strict=True)
    assert lines == [f"Session {name} is {status}." for name, status in names]


@pytest.mark.usefixtures("printed")
@pytest.mark.parametrize(
    "steps",
    [
        {},
        {"claim": {"agent1": {}}},
        CLAIMED,
        {**CLAIMED, "commit": {"agent1": {"containers": {"main1": RUNS}}}},
    ],
    ids=["none", "one at the claim", "none at the commit", "one at the commit"],
)
def test_missing_reply_fails_the_session(run: Run, steps: Steps) -> None:
    (session,) = settle(run, steps)["sessions"]
    assert session.record["status"] == "ERROR"
    assert "agent2: it returned no result" in session.error


@pytest.mark.usefixtures("printed")
def test_step_results_of_other_starts_are_ignored(run: Run) -> None:
    (session,) = settle(run, {**COMMITTED, "pull": {"agent1": GONE}})["sessions"]
    assert (session.record["status"], session.error) == ("RUNNING", None)


# ---- what gateways are told


PUBLISHED = dataclasses.replace(MADE, published=(PublishedPort("ssh", "tcp", 22, "192.0.2.1", 30001),))


@pytest.mark.usefixtures("printed", "queue")
@pytest.mark.parametrize(
    ("steps", "routed"), [(COMMITTED, True), (REFUSED, False), (FAILED, False)], ids=["runs", "refused", "failed"]
)
def test_gateways_get_routes_of_running_sessions(run: Run, steps: Steps, routed: bool) -> None:
    routes = settle(run, steps, decided(PUBLISHED), started_at=time.time() + 60)["routes"]
    assert routes == {
        "routes": [build_gateway_route(PUBLISHED)] if routed else [],
        "ended": [],
        "vacated": [],
        "changed": routed,
    }


@pytest.mark.usefixtures("printed", "queue")
def test_unpublished_session_has_no_route(run: Run) -> None:
    assert settle(run, COMMITTED)["routes"] == {"routes": [], "ended": [], "vacated": [], "changed": False}


@pytest.mark.usefixtures("printed")
def test_gateways_get_ended_sessions_once(run: Run, queue: QueueStore) -> None:
    began = time.time() - 60
    queue.save(requested(2, state="TERMINATED", spec=None, updated_at=began + 1))
    queue.save(requested(3, state="TERMINATED", spec=None, updated_at=began - 1))
    ended = [requested(2).id]
    first = settle(run, COMMITTED, started_at=began)["routes"]
    assert first == {"routes": [], "ended": ended, "vacated": [], "changed": True}
    again = settle(run, COMMITTED, started_at=began, sent=ended)["routes"]
    assert again == {"routes": [], "ended": ended, "vacated": [], "changed": False}
    queue.save(requested(4, state="TERMINATED", spec=None, updated_at=began + 2))
    assert settle(run, COMMITTED, started_at=began, sent=ended)["routes"]["changed"] is True


@pytest.mark.usefixtures("printed")
def test_failed_session_is_ended_for_gateways(run: Run, queue: QueueStore) -> None:
    starts(queue, spec=None)
    routes = settle(run, FAILED, decided(PUBLISHED), started_at=0.0)["routes"]
    assert routes == {"routes": [], "ended": [SESSION_ID], "vacated": [], "changed": True}


@pytest.mark.usefixtures("printed")
def test_ended_session_has_no_route(run: Run, queue: QueueStore) -> None:
    starts(queue, state="TERMINATING", spec=None, owner=None, agents=("agent1",))
    routes = settle(run, COMMITTED, decided(PUBLISHED))["routes"]
    assert (routes["routes"], routes["ended"]) == ([], [SESSION_ID])


# ---- what containers printed


def test_lines_of_a_failed_container_are_shown_and_stored_nowhere(
    run: Run, queue: QueueStore, printed: list[str], tmp_path: Path
) -> None:
    starts(queue)
    path = tmp_path / "record.json"
    lines = ["backendai-train-llm-main1: password=hunter2", "backendai-train-llm-main1: \x1b[2J\x1b]0;owned\x07"]
    failing: Steps = {
        **CLAIMED,
        "apply": {"agent1": {"failed": "container main1 ended while it started.", "printed": lines}, "agent2": {}},
        "remove": {"agent1": {}, "agent2": {}},
    }
    settle(run, failing, path=str(path))
    assert printed[-2:] == [
        "  agent1: backendai-train-llm-main1: password=hunter2",
        "  agent1: backendai-train-llm-main1: \\x1b[2J\\x1b]0;owned\\x07",
    ]
    stored = [file.read_text() for file in [path, *queue.path.iterdir()]]
    assert len(stored) >= 2
    assert not [text for text in stored if "hunter2" in text or "owned" in text]
    assert {stat.S_IMODE(file.stat().st_mode) for file in [path, *queue.path.iterdir()]} == {0o600}


# ---- sessions that take long to start


def test_slow_session_is_settled_once_it_is_complete(run: Run, queue: QueueStore, printed: list[str]) -> None:
    starts(queue)
    starts(queue, id=OTHER_ID, name="other")
    slow: Steps = {"claim": {"agent1": {"steps": ["claim", "apply"], "starting": True}}}
    settled = settle_all(run, [replied(decided(), COMMITTED), replied(decided(OTHER), slow)])
    assert [session.record["name"] for session in settled["sessions"]] == ["train-llm"]
    assert {entry.id: entry.state for entry in queue.entries()} == {SESSION_ID: "RUNNING", OTHER_ID: "CREATING"}
    assert [entry.owner for entry in queue.entries() if entry.state == "CREATING"] == [current_owner()]
    assert not [line for line in printed if "other" in line]

    done: Steps = {**slow, "ready": {"agent1": {"steps": ["ready", "commit"], "containers": {"main1": RUNS}}}}
    later = settle_all(run, [replied(decided(OTHER), done)])
    assert [session.record["status"] for session in later["sessions"]] == ["RUNNING"]
    assert {entry.id: (entry.state, entry.owner) for entry in queue.entries()} == {
        SESSION_ID: ("RUNNING", None),
        OTHER_ID: ("RUNNING", None),
    }
    assert printed[-2] == "Session other is RUNNING."


@pytest.mark.usefixtures("printed")
@pytest.mark.parametrize("reply", [{"failed": "container main1 ended while it started."}, GONE])
def test_slow_session_that_fails_is_recorded(run: Run, queue: QueueStore, reply: dict[str, object]) -> None:
    starts(queue, id=OTHER_ID, name="other")
    slow: Steps = {"claim": {"agent1": {"steps": ["claim", "apply"], "starting": True}}, "ready": {"agent1": reply}}
    (session,) = settle_all(run, [replied(decided(OTHER), slow)])["sessions"]
    assert "the session 'other' was not created: agent1: " in session.error
