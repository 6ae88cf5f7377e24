"""Results of starts in the record, the queue and the output."""

from __future__ import annotations

import dataclasses
import json
import stat
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.backendai.cluster.plugins.module_utils._model.images import ImageIdentity
from ansible_collections.backendai.cluster.plugins.plugin_utils._lifecycle.start_steps import Start
from ansible_collections.backendai.cluster.plugins.plugin_utils._queue.owner import current_owner
from ansible_collections.backendai.cluster.plugins.plugin_utils._queue.store import QueueStore
from ansible_collections.backendai.cluster.plugins.plugin_utils._request.spec import spec_from_dict
from tests.unit.builders import IMAGE, image_data
from tests.unit.plugins.action.conftest import Run
from tests.unit.plugins.action.settled_starts import (
    CLAIMED,
    COMMITTED,
    FAILED,
    GONE,
    MADE,
    REFUSED,
    REMOVED,
    WHY,
    WHY_AT_END,
    Steps,
    decided,
    replied,
    settle,
    settle_all,
    starts,
)

# ---- the record, and what people are told


def test_running_session_is_shown_with_its_containers(run: Run, printed: list[str]) -> None:
    (session,) = settle(run, COMMITTED)["sessions"]
    assert [kernel["image_digest"] for kernel in session.record["kernels"]] == ["sha256:1", "sha256:2"]
    assert printed == [
        "Session train-llm is RUNNING.",
        f"  main1    agent1           {MADE.kernels[0].address}",
        f"  sub1     agent2           {MADE.kernels[1].address}",
    ]


@pytest.mark.usefixtures("printed")
def test_record_is_for_its_owner_only_and_no_change(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "record.json"
    settled = settle(run, COMMITTED, path=str(path))
    (session,) = settled["sessions"]
    assert json.loads(path.read_text()) == session.record
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert session.error is None


@pytest.mark.usefixtures("printed")
def test_failed_start_is_recorded(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "record.json"
    settled = settle(run, FAILED, path=str(path))
    (session,) = settled["sessions"]
    assert session.error == WHY
    record = json.loads(path.read_text())
    assert (record["status"], record["error"]) == ("ERROR", WHY)


@pytest.mark.usefixtures("printed")
def test_failed_repair_leaves_the_session_running(run: Run) -> None:
    (session,) = settle(run, FAILED, decided(committed=True))["sessions"]
    assert session.error.startswith("the session 'train-llm' was not repaired, and what ran before still runs: ")


# ---- the queue


@pytest.mark.usefixtures("printed")
def test_repaired_session_was_requested_when_its_entry_says(run: Run, queue: QueueStore) -> None:
    entry = starts(queue, state="RUNNING", owner=None, plan=MADE)
    (session,) = settle(run, COMMITTED)["sessions"]
    assert session.record["created_at"] == entry.enqueued_at != MADE.created_at


@pytest.mark.usefixtures("printed")
def test_request_plan_and_images_of_a_running_session_are_kept(run: Run, queue: QueueStore) -> None:
    before = starts(queue, plan=MADE, attempts=1, has_started=True)
    start = {**decided(), "images": {"agent1": {IMAGE: image_data(1, "registry/python")}, "agent2": {}}}
    settle(run, COMMITTED, start)
    (entry,) = queue.entries()
    assert (entry.state, entry.owner, entry.plan) == ("RUNNING", None, MADE)
    assert spec_from_dict(entry.spec or {}) == spec_from_dict(before.spec or {})
    assert (entry.attempts, entry.has_started) == (0, True)
    assert entry.images == {IMAGE: ImageIdentity(**image_data(1, "registry/python"))}
    assert [kernel["image_digest"] for kernel in entry.record["kernels"]] == ["sha256:1", "sha256:2"]
    assert (queue.path / f"{entry.id}.json").stat().st_mode & 0o777 == 0o600


def test_failed_start_of_a_queued_session_is_requeued(run: Run, queue: QueueStore, printed: list[str]) -> None:
    starts(queue)
    (session,) = settle(run, FAILED)["sessions"]
    (entry,) = queue.entries()
    assert (entry.state, entry.attempts, entry.record) == ("PENDING", 1, session.record)
    assert (session.record["status"], session.record["kernels"], session.error) == ("PENDING", [], WHY)
    assert printed == ["Session train-llm is PENDING.", f"  start 1 of 3 failed: {WHY.rstrip('.')}"]


def test_refused_start_is_requeued(run: Run, queue: QueueStore, printed: list[str]) -> None:
    starts(queue)
    (session,) = settle(run, REFUSED)["sessions"]
    (entry,) = queue.entries()
    assert (entry.state, entry.attempts, entry.owner, entry.record) == ("PENDING", 0, None, session.record)
    assert printed == ["Session train-llm is PENDING.", "  it will be retried: no room"]


@pytest.mark.usefixtures("printed")
@pytest.mark.parametrize("changes", [{"spec": None}, {"attempts": 2}], ids=["a user's own run", "the third start"])
def test_failed_session_moves_to_the_history(run: Run, queue: QueueStore, changes: dict[str, Any]) -> None:
    starts(queue, **changes)
    (session,) = settle(run, {**FAILED, "remove": {"agent1": {}, "agent2": {}}})["sessions"]
    (entry,) = queue.entries()
    assert (entry.state, entry.record["status"], entry.record["reason"]) == ("TERMINATED", "ERROR", session.error)
    assert (session.record["status"], "may still hold" in session.error) == ("ERROR", False)


@pytest.mark.usefixtures("printed")
def test_failed_session_stays_in_the_queue_while_an_agent_may_hold_it(run: Run, queue: QueueStore) -> None:
    starts(queue, spec=None)
    settled = settle(run, FAILED)
    (session,), (entry,) = settled["sessions"], queue.entries()
    assert (entry.state, entry.agents) == ("TERMINATING", ("agent2",))
    assert (entry.record["status"], entry.record["reason"]) == ("ERROR", WHY_AT_END)
    assert (session.record["status"], session.error, settled["waits"]) == ("ERROR", WHY_AT_END, True)


@pytest.mark.usefixtures("printed")
def test_failed_repair_removes_nothing_later(run: Run, queue: QueueStore) -> None:
    starts(queue, spec=None)
    (session,) = settle(run, FAILED, decided(partly=True))["sessions"]
    (entry,) = queue.entries()
    assert (entry.state, entry.agents, entry.record["reason"]) == ("TERMINATED", (), session.error)
    assert session.error == (
        "the session 'train-llm' was not repaired, and what ran before still runs: agent1: no image; agent2: it became"
        " unreachable."
    )


@pytest.mark.usefixtures("printed")
@pytest.mark.parametrize(
    "changes",
    [
        {"owner": dataclasses.replace(current_owner(), pid=1)},
        {"state": "TERMINATING", "spec": None, "owner": None, "agents": ("agent1",)},
        {"state": "PENDING", "owner": None},
    ],
    ids=["another run starts it", "it was ended", "it waits again"],
)
@pytest.mark.parametrize("outcome", [COMMITTED, FAILED], ids=["runs", "failed"])
def test_session_of_another_owner_is_not_changed(
    run: Run, queue: QueueStore, changes: dict[str, Any], outcome: Steps
) -> None:
    entry = starts(queue, **changes)
    settle(run, outcome)
    assert [(entry.state, entry.owner, entry.updated_at) for entry in queue.entries()] == [
        (entry.state, entry.owner, entry.updated_at)
    ]


@pytest.mark.parametrize(
    ("outcome", "line"),
    [
        (COMMITTED, "Session train-llm was not touched: this is check mode."),
        (REFUSED, "Session train-llm is PENDING."),
        (FAILED, "Session train-llm is ERROR."),
    ],
    ids=["runs", "refused", "failed"],
)
def test_check_mode_writes_nothing(
    run: Run, queue: QueueStore, printed: list[str], tmp_path: Path, outcome: Steps, line: str
) -> None:
    starts(queue)
    before = queue.entries()
    settle(run, outcome, path=str(tmp_path / "record.json"), check_mode=True)
    assert queue.entries() == before
    assert not (tmp_path / "record.json").exists()
    assert printed == [line]


# ---- a run that could not go on


def broken(steps: Steps, start: dict[str, Any] | None = None) -> Start:
    return dataclasses.replace(replied(start or decided(), steps), broken="interrupted by SIGINT")


@pytest.mark.usefixtures("printed")
def test_session_of_an_interrupted_run_has_ended_with_an_error(run: Run, queue: QueueStore, tmp_path: Path) -> None:
    starts(queue, attended=True)
    path = tmp_path / "record.json"
    (session,) = settle_all(run, [broken({**CLAIMED, **REMOVED})], path=str(path))["sessions"]
    (entry,) = queue.entries()
    assert session.error == "the session 'train-llm' was not created: interrupted by SIGINT."
    assert (entry.state, entry.record["status"], entry.record["error"]) == ("TERMINATED", "ERROR", session.error)
    assert json.loads(path.read_text())["error"] == session.error


@pytest.mark.usefixtures("printed")
def test_what_an_interrupted_run_could_not_undo_is_removed_later(run: Run, queue: QueueStore) -> None:
    starts(queue, attended=True)
    settle_all(run, [broken({**CLAIMED, "remove": {"agent1": {}, "agent2": GONE}})])
    (entry,) = queue.entries()
    assert (entry.state, entry.agents) == ("TERMINATING", ("agent2",))


@pytest.mark.usefixtures("printed")
def test_session_that_waits_loses_no_attempt_by_an_interruption(run: Run, queue: QueueStore) -> None:
    starts(queue)
    settle_all(run, [broken({**CLAIMED, **REMOVED})])
    (entry,) = queue.entries()
    assert (entry.state, entry.attempts, entry.owner) == ("PENDING", 0, None)
    assert entry.record["pending"]["reason"] == "it will be retried: interrupted by SIGINT"


@pytest.mark.usefixtures("printed")
def test_session_that_was_complete_runs_although_the_run_was_interrupted(run: Run, queue: QueueStore) -> None:
    starts(queue, attended=True)
    (session,) = settle_all(run, [broken(COMMITTED)])["sessions"]
    assert (session.error, [entry.state for entry in queue.entries()]) == (None, ["RUNNING"])


@pytest.mark.usefixtures("printed")
def test_failed_start_leaves_something_to_do(run: Run, queue: QueueStore) -> None:
    starts(queue)
    settled = settle(run, FAILED)
    assert (settled["sessions"][0].record["status"], settled["waits"]) == ("PENDING", True)
