"""What came of a start goes into the record and the queue, and people are told."""

from __future__ import annotations

import dataclasses
import json
import stat
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.backendai.cluster.plugins.action.session_record import ActionModule
from ansible_collections.backendai.cluster.plugins.plugin_utils._queue.entry import Entry
from ansible_collections.backendai.cluster.plugins.plugin_utils._queue.folder import QueueFolder, me
from tests.unit.builders import SESSION_ID, plan, requested, spec
from tests.unit.plugins.action.conftest import Run

MADE = plan({"agent1": 1, "agent2": 1})
STATES = {
    "agent1": {"main1": {"status": "running", "image_digest": "sha256:1"}},
    "agent2": {"sub1": {"status": "running", "image_digest": "sha256:2"}},
}
PENDING = {"reason": "no room for 1 of 4 containers", "shortfall": {"cpu": 1}}


def came(**said: dict[str, Any] | None) -> dict[str, Any]:
    """Return the variables of a run in which agents said this of the session, or nothing."""
    return {"hostvars": {name: {"__session_outcomes": {MADE.id: one}} if one else {} for name, one in said.items()}}


PROVEN = came(**{name: {"refused": "", "containers": states} for name, states in STATES.items()})
REFUSED = came(agent1={"refused": "", "containers": {}}, agent2={"refused": "no room", "containers": {}})
FAILED = came(agent1={"failed": "no image.", "left": False}, agent2=None)
WHY = (
    "the session 'train-llm' was not created: agent1: no image; agent2 may still hold a part of it:"
    f" run backendai.cluster.terminate_session -e session_id={MADE.id} once it can be used again."
)


def starts(queue: QueueFolder, **changes: Any) -> Entry:
    """Save that this run is starting the session, which has waited."""
    entry = requested(1, spec(), **{"id": SESSION_ID, "state": "starting", "owner": me(), **changes})
    queue.save(entry)
    return entry


def of_plan(**changes: Any) -> dict[str, Any]:
    return {"plan": MADE.to_dict(), **changes}


def of_pending(**changes: Any) -> dict[str, Any]:
    return {"id": SESSION_ID, "spec": dataclasses.asdict(spec()), "pending": PENDING, **changes}


# ---- the record, and what people are told


def test_a_running_session_is_told_with_where_its_containers_are(run: Run, said: list[str]) -> None:
    result = run(ActionModule, of_plan(), PROVEN)
    assert [one["image_digest"] for one in result["record"]["kernels"]] == ["sha256:1", "sha256:2"]
    assert said == [
        "Session train-llm is RUNNING.",
        f"  main1    agent1           {MADE.kernels[0].address}",
        f"  sub1     agent2           {MADE.kernels[1].address}",
    ]


@pytest.mark.usefixtures("said")
def test_a_record_is_written_for_all_to_read_and_that_is_no_change(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "record.json"
    result = run(ActionModule, of_plan(path=str(path)), PROVEN)
    assert json.loads(path.read_text()) == result["record"]
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
    assert (result["changed"], result["error"]) == (False, None)


def test_a_session_that_waits_is_told_with_its_reason(run: Run, said: list[str], tmp_path: Path) -> None:
    path = tmp_path / "record.json"
    run(ActionModule, of_pending(path=str(path)), {"hostvars": {}})
    assert said == ["Session train-llm is PENDING.", "  no room for 1 of 4 containers"]
    record = json.loads(path.read_text())
    assert (record["id"], record["status"], record["pending"], record["kernels"]) == (
        SESSION_ID,
        "PENDING",
        PENDING,
        [],
    )


@pytest.mark.usefixtures("said")
def test_a_failure_is_recorded_and_fails_nothing_yet(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "record.json"
    result = run(ActionModule, of_plan(path=str(path)), FAILED)
    assert (result["error"], result.get("failed", False)) == (WHY, False)
    record = json.loads(path.read_text())
    assert (record["status"], record["error"]) == ("ERROR", WHY)


@pytest.mark.usefixtures("said")
def test_a_repair_that_fails_says_that_the_session_still_runs(run: Run) -> None:
    result = run(ActionModule, of_plan(known=True), FAILED)
    assert result["error"].startswith("the session 'train-llm' was not repaired, and what ran before still runs: ")


def test_what_is_said_in_the_end_is_not_said_before(run: Run, said: list[str]) -> None:
    run(ActionModule, of_plan(say=False), PROVEN)
    assert said == []


# ---- the queue


@pytest.mark.usefixtures("said")
def test_a_session_that_runs_leaves_the_queue(run: Run, queue: QueueFolder) -> None:
    starts(queue)
    run(ActionModule, of_plan(), PROVEN)
    assert queue.entries() == []


def test_a_start_that_failed_is_tried_again_and_the_record_says_so(
    run: Run, queue: QueueFolder, said: list[str]
) -> None:
    starts(queue)
    result = run(ActionModule, of_plan(), FAILED)
    (entry,) = queue.entries()
    assert (entry.state, entry.attempts, entry.record) == ("waiting", 1, result["record"])
    assert (result["record"]["status"], result["record"]["kernels"], result["error"]) == ("PENDING", [], WHY)
    assert said == ["Session train-llm is PENDING.", f"  start 1 of 3 failed: {WHY.rstrip('.')}"]


def test_a_start_that_was_refused_waits_again_and_the_record_says_so(
    run: Run, queue: QueueFolder, said: list[str]
) -> None:
    starts(queue)
    result = run(ActionModule, of_plan(), REFUSED)
    (entry,) = queue.entries()
    assert (entry.state, entry.attempts, entry.owner, entry.record) == ("waiting", 0, None, result["record"])
    assert said == ["Session train-llm is PENDING.", "  it is tried again: no room"]


@pytest.mark.usefixtures("said")
@pytest.mark.parametrize("changes", [{"spec": None}, {"attempts": 2}], ids=["a user's own run", "the third start"])
def test_a_start_that_failed_for_good_is_history(run: Run, queue: QueueFolder, changes: dict[str, Any]) -> None:
    starts(queue, **changes)
    result = run(ActionModule, of_plan(), FAILED)
    (entry,) = queue.entries()
    assert (entry.state, entry.record["status"], entry.record["reason"]) == ("ended", "ERROR", WHY)
    assert (result["record"]["status"], result["error"]) == ("ERROR", WHY)


@pytest.mark.usefixtures("said")
@pytest.mark.parametrize(
    "changes",
    [
        {"owner": dataclasses.replace(me(), pid=1)},
        {"state": "ending", "spec": None, "owner": None, "agents": ("agent1",)},
        {"state": "waiting", "owner": None},
    ],
    ids=["another run starts it", "it was ended", "it waits again"],
)
@pytest.mark.parametrize("outcome", [PROVEN, FAILED], ids=["runs", "failed"])
def test_a_session_that_a_later_run_has_taken_over_is_left_to_it(
    run: Run, queue: QueueFolder, changes: dict[str, Any], outcome: dict[str, Any]
) -> None:
    entry = starts(queue, **changes)
    run(ActionModule, of_plan(), outcome)
    assert [(one.state, one.owner, one.updated_at) for one in queue.entries()] == [
        (entry.state, entry.owner, entry.updated_at)
    ]


@pytest.mark.parametrize(
    ("outcome", "line"),
    [
        (PROVEN, "Session train-llm was not touched: this is check mode."),
        (REFUSED, "Session train-llm is PENDING."),
        (FAILED, "Session train-llm is ERROR."),
    ],
    ids=["runs", "refused", "failed"],
)
def test_check_mode_writes_nothing(
    run: Run, queue: QueueFolder, said: list[str], tmp_path: Path, outcome: dict[str, Any], line: str
) -> None:
    starts(queue)
    before = queue.entries()
    run(ActionModule, of_plan(path=str(tmp_path / "record.json"), wait=True), outcome, check_mode=True)
    assert queue.entries() == before
    assert not (tmp_path / "record.json").exists()
    assert said == [line]


# ---- what the run does next


@pytest.mark.usefixtures("said")
@pytest.mark.parametrize(
    ("args", "outcome", "check_mode", "wait"),
    [
        (of_plan(wait=True), PROVEN, False, True),
        (of_plan(wait=False), PROVEN, False, False),
        (of_plan(wait=True), PROVEN, True, False),
        (of_plan(wait=True), FAILED, False, False),
        (of_pending(wait=True), PROVEN, False, False),
    ],
    ids=["runs", "unasked", "check mode", "failed", "waits for room"],
)
def test_only_the_end_of_what_runs_is_waited_for(
    run: Run, args: dict[str, Any], outcome: dict[str, Any], check_mode: bool, wait: bool
) -> None:
    result = run(ActionModule, args, outcome, check_mode=check_mode)
    assert (result["wait"], result["waiting"]) == (wait, wait)


@pytest.mark.usefixtures("said")
@pytest.mark.parametrize(
    ("args", "outcome", "looks"),
    [
        (of_plan(), PROVEN, False),
        (of_plan(), FAILED, True),
        (of_plan(freed=True), PROVEN, True),
        (of_pending(freed=True), PROVEN, True),
        (of_pending(), PROVEN, False),
    ],
    ids=["it runs", "it failed", "room was freed", "it waits and room was freed", "it waits"],
)
@pytest.mark.parametrize("queued", [True, False])
def test_the_queue_is_looked_after_where_room_may_have_become_free_and_someone_waits(
    run: Run, queue: QueueFolder, args: dict[str, Any], outcome: dict[str, Any], looks: bool, queued: bool
) -> None:
    queue.save(requested(2, state="ended", spec=None))
    if queued:
        queue.save(requested(3))
    assert run(ActionModule, args, outcome)["waiting"] is (looks and queued)
