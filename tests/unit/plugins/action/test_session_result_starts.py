"""The action session_result with several starts, refused starts and routes."""

from __future__ import annotations

import dataclasses
import json
import stat
import time
from pathlib import Path

import pytest

from ansible_collections.backendai.cluster.plugins.action.session_result import ActionModule
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
    replies,
    settle,
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
    hostvars = replies((OTHER, alone), (MADE, steps))
    args = {"state": "settled", "started_at": 0.0, "starts": [decided(), decided(OTHER)]}
    settled = run(ActionModule, args, hostvars)
    records = [session["record"] for session in settled["sessions"]]
    assert [record["name"] for record in records] == ["train-llm", "other"]
    assert [record["status"] for record in records] == statuses
    assert [session["error"] for session in settled["sessions"]] == errors
    assert {entry.id: entry.state for entry in queue.entries()} == {SESSION_ID: statuses[0], OTHER_ID: statuses[1]}
    lines = [line for line in printed if line.startswith("Session")]
    names = zip(("train-llm", "other"), statuses, strict=True)
    assert lines == [f"Session {name} is {status}." for name, status in names]


@pytest.mark.usefixtures("printed", "queue")
def test_no_starts_have_no_results(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "record.json"
    args = {"state": "settled", "started_at": time.time(), "starts": [], "path": str(path)}
    settled = run(ActionModule, args, replies())
    assert (settled["sessions"], settled["retry"], settled["wait"], settled["waiting"]) == ([], False, False, False)
    assert json.loads(path.read_text()) is None


@pytest.mark.usefixtures("printed")
def test_replies_to_earlier_attempts_are_ignored(run: Run) -> None:
    start = {**decided(), "nonce": "nonce of a later attempt"}
    (session,) = settle(run, COMMITTED, starts=[start])["sessions"]
    assert session["record"]["status"] == "ERROR"


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
    (session,) = settle(run, steps, starts=[decided()], pending=None)["sessions"]
    assert session["record"]["status"] == "ERROR"
    assert "agent2: it returned no result" in session["error"]


@pytest.mark.usefixtures("printed")
def test_step_results_of_other_starts_are_ignored(run: Run) -> None:
    (session,) = settle(run, {**COMMITTED, "pull": {"agent1": GONE}})["sessions"]
    assert (session["record"]["status"], session["error"]) == ("RUNNING", None)


# ---- other runs were faster


def test_refused_session_is_planned_again_and_keeps_its_entry(
    run: Run, queue: QueueStore, printed: list[str], tmp_path: Path
) -> None:
    starts(queue)
    before = {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in queue.path.iterdir()}
    path = tmp_path / "record.json"
    settled = settle(run, REFUSED, retry=True, freed=True, path=str(path))
    assert (settled["retry"], settled["refused"], settled["sessions"]) == (True, ["no room"], [])
    assert (settled["changed"], settled["wait"], settled["waiting"]) == (False, False, False)
    assert {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in queue.path.iterdir()} == before
    assert (printed, path.exists()) == ([], False)


@pytest.mark.usefixtures("printed")
@pytest.mark.parametrize(
    ("steps", "retry"),
    [(REFUSED, False), (FAILED, True), (COMMITTED, True), (None, True)],
    ids=["refused, and that is it", "failed", "runs", "no room"],
)
def test_only_refused_sessions_are_planned_again(run: Run, queue: QueueStore, steps: Steps | None, retry: bool) -> None:
    starts(queue)
    before = queue.entries()
    settled = settle(run, steps, retry=retry)
    assert (settled["retry"], len(settled["sessions"])) == (False, 1)
    assert (queue.entries() == before) is (steps is None)


@pytest.mark.usefixtures("printed", "queue")
def test_refused_session_with_a_failure_is_not_planned_again(run: Run) -> None:
    steps: Steps = {"claim": {"agent1": {"failed": "no image."}, "agent2": {"refused": "no room"}}}
    settled = settle(run, steps, retry=True)
    assert (settled["retry"], settled["sessions"][0]["record"]["status"]) == (False, "ERROR")


# ---- what gateways are told


PUBLISHED = dataclasses.replace(MADE, published=(PublishedPort("ssh", "tcp", 22, "192.0.2.1", 30001),))


@pytest.mark.usefixtures("printed", "queue")
@pytest.mark.parametrize(
    ("steps", "routed"), [(COMMITTED, True), (REFUSED, False), (FAILED, False)], ids=["runs", "refused", "failed"]
)
def test_gateways_get_routes_of_running_sessions(run: Run, steps: Steps, routed: bool) -> None:
    routes = settle(run, steps, starts=[decided(PUBLISHED)], began=time.time() + 60)["routes"]
    assert routes == {
        "routes": [build_gateway_route(PUBLISHED)] if routed else [],
        "ended": [],
        "vacated": [],
        "changed": routed,
    }


@pytest.mark.usefixtures("printed", "queue")
def test_pending_or_unpublished_session_has_no_route(run: Run) -> None:
    for steps in (COMMITTED, None):
        assert settle(run, steps)["routes"] == {
            "routes": [],
            "ended": [],
            "vacated": [],
            "changed": False,
        }


@pytest.mark.usefixtures("printed")
def test_gateways_get_ended_sessions_once(run: Run, queue: QueueStore) -> None:
    began = time.time() - 60
    queue.save(requested(2, state="TERMINATED", spec=None, updated_at=began + 1))
    queue.save(requested(3, state="TERMINATED", spec=None, updated_at=began - 1))
    ended = [requested(2).id]
    args = {
        "state": "settled",
        "starts": [decided()],
        "started_at": began,
        "previous": ["__session_reconcile", "__other"],
    }
    first = run(ActionModule, args, replies((MADE, COMMITTED)))
    assert first["routes"] == {"routes": [], "ended": ended, "vacated": [], "changed": True}
    later = replies((MADE, COMMITTED), __session_reconcile=first, __other={"retry": True})
    assert run(ActionModule, args, later)["routes"] == {
        "routes": [],
        "ended": ended,
        "vacated": [],
        "changed": False,
    }
    queue.save(requested(4, state="TERMINATED", spec=None, updated_at=began + 2))
    assert run(ActionModule, args, later)["routes"]["changed"] is True


@pytest.mark.usefixtures("printed")
def test_failed_session_is_ended_for_gateways(run: Run, queue: QueueStore) -> None:
    starts(queue, spec=None)
    routes = settle(run, FAILED, starts=[decided(PUBLISHED)], began=time.time())["routes"]
    assert routes == {"routes": [], "ended": [SESSION_ID], "vacated": [], "changed": True}


@pytest.mark.usefixtures("printed")
def test_ended_session_has_no_route(run: Run, queue: QueueStore) -> None:
    starts(queue, state="TERMINATING", spec=None, owner=None, agents=("agent1",))
    routes = settle(run, COMMITTED, starts=[decided(PUBLISHED)])["routes"]
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
    args = {"state": "settled", "started_at": 0.0, "starts": [decided(), decided(OTHER)]}
    settled = run(ActionModule, args, replies((OTHER, slow), (MADE, COMMITTED)))
    assert [session["record"]["name"] for session in settled["sessions"]] == ["train-llm"]
    assert [start["id"] for start in settled["starting"]] == [OTHER_ID]
    assert {entry.id: entry.state for entry in queue.entries()} == {SESSION_ID: "RUNNING", OTHER_ID: "CREATING"}
    assert [entry.owner for entry in queue.entries() if entry.state == "CREATING"] == [current_owner()]
    assert not [line for line in printed if "other" in line]

    done: Steps = {**slow, "ready": {"agent1": {"steps": ["ready", "commit"], "containers": {"main1": RUNS}}}}
    later = run(ActionModule, {**args, "starts": settled["starting"]}, replies((OTHER, done)))
    assert [session["record"]["status"] for session in later["sessions"]] == ["RUNNING"]
    assert later["starting"] == []
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
    args = {"state": "settled", "started_at": 0.0, "starts": [decided(OTHER)]}
    settled = run(ActionModule, args, replies((OTHER, slow)))
    assert (settled["starting"], len(settled["sessions"])) == ([], 1)
    assert "the session 'other' was not created: agent1: " in settled["sessions"][0]["error"]
