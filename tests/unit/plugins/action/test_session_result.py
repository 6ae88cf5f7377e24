"""What came of starts goes into records and the queue, and people and gateways are told."""

from __future__ import annotations

import dataclasses
import json
import stat
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.backendai.cluster.plugins.action.session_result import ActionModule
from ansible_collections.backendai.cluster.plugins.module_utils._model.plan import SessionPlan
from ansible_collections.backendai.cluster.plugins.module_utils._model.session import PublishedPort
from ansible_collections.backendai.cluster.plugins.plugin_utils._planner.decision import Decision
from ansible_collections.backendai.cluster.plugins.plugin_utils._queue.entry import Entry
from ansible_collections.backendai.cluster.plugins.plugin_utils._queue.folder import QueueFolder, me
from ansible_collections.backendai.cluster.plugins.plugin_utils._report.access import route_of
from ansible_collections.backendai.cluster.plugins.plugin_utils._report.record import unplanned_record
from ansible_collections.backendai.cluster.plugins.plugin_utils.control import start_of
from tests.unit.builders import SESSION_ID, plan, public_keys, requested, spec
from tests.unit.plugins.action.conftest import Run

Steps = Mapping[str, Mapping[str, Any]]
"""What each agent replied to each step that it was asked to take: by step, then by agent."""

OTHER_ID = "00000000-3c0e-4f5e-9d0a-0f3c1d2e4b6a"
MADE = plan({"agent1": 1, "agent2": 1})
OTHER = dataclasses.replace(plan({"agent1": 1}, name="other"), id=OTHER_ID)
GONE: dict[str, Any] = {"unreachable": True, "msg": "Failed to connect"}
CLAIMED: Steps = {"claim": {"agent1": {}, "agent2": {}}, "apply": {"agent1": {}, "agent2": {}}}
RUNS = {"status": "running", "image_digest": "sha256:1"}
PROVEN: Steps = {
    **CLAIMED,
    "prove": {
        "agent1": {"containers": {"main1": RUNS}},
        "agent2": {"containers": {"sub1": {"status": "running", "image_digest": "sha256:2"}}},
    },
}
REFUSED: Steps = {"claim": {"agent1": {}, "agent2": {"refused": "no room"}}, "remove": {"agent1": {}, "agent2": {}}}
FAILED: Steps = {
    **CLAIMED,
    "apply": {"agent1": {"failed": "no image."}, "agent2": GONE},
    "remove": {"agent1": {}, "agent2": GONE},
}
WHY = (
    "the session 'train-llm' was not created: agent1: no image; agent2: it became unreachable; agent2 may still hold a"
    f" part of it: run backendai.cluster.terminate_session -e session_id={MADE.id} once it can be used again."
)
NO_ROOM = {"reason": "no room for 1 of 4 containers", "shortfall": {"cpu": 1}}
PENDING = {**unplanned_record(spec(), "train-llm", "PENDING", SESSION_ID), "pending": NO_ROOM}


def decided(of: SessionPlan = MADE, *, known: bool = False) -> dict[str, Any]:
    """Return a start of a session as it is planned; ``known`` is one that had proven itself before."""
    keys = {hostname: dataclasses.asdict(both) for hostname, both in public_keys(of).items()} if known else {}
    return {**start_of(Decision(of, known, {}, keys), spec(), [], unproven=False), "nonce": f"nonce of {of.name}"}


def replies(*of: tuple[SessionPlan, Steps], **localhost: Any) -> dict[str, Any]:
    """Return the variables of a run in which agents replied this about these sessions."""
    hostvars: dict[str, dict[str, Any]] = {"localhost": localhost, "agent1": {}, "agent2": {}}
    for made, steps in of:
        for step, by_agent in steps.items():
            for agent, reply in by_agent.items():
                result = hostvars[agent].setdefault(f"__session_{step}", {"sessions": {}})
                if reply is GONE:
                    hostvars[agent][f"__session_{step}"] = GONE
                else:
                    result["sessions"][made.id] = {"nonce": f"nonce of {made.name}", "steps": [step], **reply}
    return {"hostvars": hostvars}


def settle(run: Run, steps: Steps | None, *, check_mode: bool = False, **args: Any) -> dict[str, Any]:
    """Return the result for a session whose agents replied this; without steps, for one that was not started."""
    given = {"starts": [decided()] if steps else [], "pending": None if steps else PENDING}
    there = replies((MADE, steps or {}))
    return run(ActionModule, {"state": "settled", "began": 0.0, **given, **args}, there, check_mode=check_mode)


def starts(queue: QueueFolder, **changes: Any) -> Entry:
    """Save that this run is starting the session, which has waited."""
    entry = requested(1, spec(), **{"id": SESSION_ID, "state": "starting", "owner": me(), **changes})
    queue.save(entry)
    return entry


# ---- the record, and what people are told


def test_a_running_session_is_told_with_where_its_containers_are(run: Run, said: list[str]) -> None:
    (session,) = settle(run, PROVEN)["sessions"]
    assert [kernel["image_digest"] for kernel in session["record"]["kernels"]] == ["sha256:1", "sha256:2"]
    assert said == [
        "Session train-llm is RUNNING.",
        f"  main1    agent1           {MADE.kernels[0].address}",
        f"  sub1     agent2           {MADE.kernels[1].address}",
    ]


@pytest.mark.usefixtures("said")
def test_a_record_is_written_for_all_to_read_and_that_is_no_change(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "record.json"
    settled = settle(run, PROVEN, path=str(path))
    (session,) = settled["sessions"]
    assert json.loads(path.read_text()) == session["record"]
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
    assert (settled["changed"], session["error"]) == (False, None)


def test_a_session_that_waits_is_told_with_its_reason(run: Run, said: list[str], tmp_path: Path) -> None:
    path = tmp_path / "record.json"
    settle(run, None, path=str(path))
    assert said == ["Session train-llm is PENDING.", "  no room for 1 of 4 containers"]
    record = json.loads(path.read_text())
    assert (record["id"], record["status"], record["pending"], record["kernels"]) == (
        SESSION_ID,
        "PENDING",
        NO_ROOM,
        [],
    )


@pytest.mark.usefixtures("said")
def test_a_failure_is_recorded_and_fails_nothing_yet(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "record.json"
    settled = settle(run, FAILED, path=str(path))
    (session,) = settled["sessions"]
    assert (session["error"], settled.get("failed", False)) == (WHY, False)
    record = json.loads(path.read_text())
    assert (record["status"], record["error"]) == ("ERROR", WHY)


@pytest.mark.usefixtures("said")
def test_a_repair_that_fails_says_that_the_session_still_runs(run: Run) -> None:
    (session,) = settle(run, FAILED, starts=[decided(known=True)])["sessions"]
    assert session["error"].startswith("the session 'train-llm' was not repaired, and what ran before still runs: ")


def test_what_is_said_in_the_end_is_not_said_before(run: Run, said: list[str]) -> None:
    settle(run, PROVEN, say=False)
    assert said == []


# ---- the queue


@pytest.mark.usefixtures("said")
def test_a_session_that_runs_leaves_the_queue(run: Run, queue: QueueFolder) -> None:
    starts(queue)
    settle(run, PROVEN)
    assert queue.entries() == []


def test_a_start_that_failed_is_tried_again_and_the_record_says_so(
    run: Run, queue: QueueFolder, said: list[str]
) -> None:
    starts(queue)
    (session,) = settle(run, FAILED)["sessions"]
    (entry,) = queue.entries()
    assert (entry.state, entry.attempts, entry.record) == ("waiting", 1, session["record"])
    assert (session["record"]["status"], session["record"]["kernels"], session["error"]) == ("PENDING", [], WHY)
    assert said == ["Session train-llm is PENDING.", f"  start 1 of 3 failed: {WHY.rstrip('.')}"]


def test_a_start_that_was_refused_waits_again_and_the_record_says_so(
    run: Run, queue: QueueFolder, said: list[str]
) -> None:
    starts(queue)
    (session,) = settle(run, REFUSED)["sessions"]
    (entry,) = queue.entries()
    assert (entry.state, entry.attempts, entry.owner, entry.record) == ("waiting", 0, None, session["record"])
    assert said == ["Session train-llm is PENDING.", "  it is tried again: no room"]


@pytest.mark.usefixtures("said")
@pytest.mark.parametrize("changes", [{"spec": None}, {"attempts": 2}], ids=["a user's own run", "the third start"])
def test_a_start_that_failed_for_good_is_history(run: Run, queue: QueueFolder, changes: dict[str, Any]) -> None:
    starts(queue, **changes)
    (session,) = settle(run, FAILED)["sessions"]
    (entry,) = queue.entries()
    assert (entry.state, entry.record["status"], entry.record["reason"]) == ("ended", "ERROR", WHY)
    assert (session["record"]["status"], session["error"]) == ("ERROR", WHY)


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
    run: Run, queue: QueueFolder, changes: dict[str, Any], outcome: Steps
) -> None:
    entry = starts(queue, **changes)
    settle(run, outcome)
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
    run: Run, queue: QueueFolder, said: list[str], tmp_path: Path, outcome: Steps, line: str
) -> None:
    starts(queue)
    before = queue.entries()
    settle(run, outcome, path=str(tmp_path / "record.json"), wait=True, check_mode=True)
    assert queue.entries() == before
    assert not (tmp_path / "record.json").exists()
    assert said == [line]


# ---- what the run does next


@pytest.mark.usefixtures("said")
@pytest.mark.parametrize(
    ("asked", "outcome", "check_mode", "wait"),
    [
        (True, PROVEN, False, True),
        (False, PROVEN, False, False),
        (True, PROVEN, True, False),
        (True, FAILED, False, False),
        (True, None, False, False),
    ],
    ids=["runs", "unasked", "check mode", "failed", "waits for room"],
)
def test_only_the_end_of_what_runs_is_waited_for(
    run: Run, asked: bool, outcome: Steps | None, check_mode: bool, wait: bool
) -> None:
    result = settle(run, outcome, wait=asked, check_mode=check_mode)
    assert (result["wait"], result["waiting"]) == (wait, wait)


@pytest.mark.usefixtures("said")
@pytest.mark.parametrize(
    ("freed", "outcome", "looks"),
    [(False, PROVEN, False), (False, FAILED, True), (True, PROVEN, True), (True, None, True), (False, None, False)],
    ids=["it runs", "it failed", "room was freed", "it waits and room was freed", "it waits"],
)
@pytest.mark.parametrize("queued", [True, False])
def test_the_queue_is_looked_after_where_room_may_have_become_free_and_someone_waits(
    run: Run, queue: QueueFolder, freed: bool, outcome: Steps | None, looks: bool, queued: bool
) -> None:
    queue.save(requested(2, state="ended", spec=None))
    if queued:
        queue.save(requested(3))
    assert settle(run, outcome, freed=freed)["waiting"] is (looks and queued)


@pytest.mark.usefixtures("said")
def test_a_start_that_failed_and_is_tried_again_has_freed_room_for_others(run: Run, queue: QueueFolder) -> None:
    starts(queue)
    settled = settle(run, FAILED)
    assert (settled["sessions"][0]["record"]["status"], settled["waiting"]) == ("PENDING", True)


# ---- several starts at once


@pytest.mark.parametrize(
    ("steps", "statuses", "errors"),
    [
        (PROVEN, ["RUNNING", "RUNNING"], [None, None]),
        (REFUSED, ["PENDING", "RUNNING"], [None, None]),
        (FAILED, ["PENDING", "RUNNING"], [WHY, None]),
    ],
    ids=["both run", "one is refused", "one failed"],
)
def test_what_came_of_each_start_is_said_and_noted(
    run: Run,
    queue: QueueFolder,
    said: list[str],
    steps: Steps,
    statuses: list[str],
    errors: list[str | None],
) -> None:
    starts(queue)
    starts(queue, id=OTHER_ID, name="other")
    alone: Steps = {"claim": {"agent1": {"steps": ["claim", "apply", "prove"], "containers": {"main1": RUNS}}}}
    there = replies((OTHER, alone), (MADE, steps))
    args = {"state": "settled", "began": 0.0, "starts": [decided(), decided(OTHER)]}
    settled = run(ActionModule, args, there)
    records = [session["record"] for session in settled["sessions"]]
    assert [record["name"] for record in records] == ["train-llm", "other"]
    assert [record["status"] for record in records] == statuses
    assert [session["error"] for session in settled["sessions"]] == errors
    waits = [SESSION_ID] if "PENDING" in statuses else []
    assert [(entry.id, entry.state) for entry in queue.entries()] == [(session_id, "waiting") for session_id in waits]
    lines = [line for line in said if line.startswith("Session")]
    names = zip(("train-llm", "other"), statuses, strict=True)
    assert lines == [f"Session {name} is {status}." for name, status in names]


@pytest.mark.usefixtures("said", "queue")
def test_without_any_start_there_is_nothing_to_settle(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "record.json"
    args = {"state": "settled", "began": time.time(), "starts": [], "path": str(path)}
    settled = run(ActionModule, args, replies())
    assert (settled["sessions"], settled["again"], settled["wait"], settled["waiting"]) == ([], False, False, False)
    assert json.loads(path.read_text()) is None


@pytest.mark.usefixtures("said")
def test_what_agents_replied_to_an_earlier_attempt_does_not_count(run: Run) -> None:
    start = {**decided(), "nonce": "nonce of a later attempt"}
    (session,) = settle(run, PROVEN, starts=[start])["sessions"]
    assert session["record"]["status"] == "ERROR"


@pytest.mark.usefixtures("said")
@pytest.mark.parametrize(
    "steps",
    [
        {},
        {"claim": {"agent1": {}}},
        CLAIMED,
        {**CLAIMED, "prove": {"agent1": {"containers": {"main1": RUNS}}}},
    ],
    ids=["nobody", "one at the claim", "nobody at the proof", "one at the proof"],
)
def test_a_session_does_not_run_where_an_agent_gave_no_reply(run: Run, steps: Steps) -> None:
    (session,) = settle(run, steps, starts=[decided()], pending=None)["sessions"]
    assert session["record"]["status"] == "ERROR"
    assert "agent2 may still hold a part of it" in session["error"]


@pytest.mark.usefixtures("said")
@pytest.mark.parametrize("step", ["pull", "overlay"])
def test_a_step_that_another_start_of_the_run_took_and_this_one_does_not_take_does_not_count(
    run: Run, step: str
) -> None:
    (session,) = settle(run, {**PROVEN, step: {"agent1": GONE}})["sessions"]
    assert (session["record"]["status"], session["error"]) == ("RUNNING", None)


# ---- other runs were faster


def test_what_was_refused_is_planned_anew_and_its_entry_is_left_alone(
    run: Run, queue: QueueFolder, said: list[str], tmp_path: Path
) -> None:
    starts(queue)
    before = {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in queue.path.iterdir()}
    path = tmp_path / "record.json"
    settled = settle(run, REFUSED, retry=True, freed=True, path=str(path))
    assert (settled["again"], settled["refused"], settled["sessions"]) == (True, ["no room"], [])
    assert (settled["changed"], settled["wait"], settled["waiting"]) == (False, False, False)
    assert {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in queue.path.iterdir()} == before
    assert (said, path.exists()) == ([], False)


@pytest.mark.usefixtures("said")
@pytest.mark.parametrize(
    ("steps", "retry"),
    [(REFUSED, False), (FAILED, True), (PROVEN, True), (None, True)],
    ids=["refused, and that is it", "failed", "runs", "no room"],
)
def test_nothing_else_is_planned_anew(run: Run, queue: QueueFolder, steps: Steps | None, retry: bool) -> None:
    starts(queue)
    before = queue.entries()
    settled = settle(run, steps, retry=retry)
    assert (settled["again"], len(settled["sessions"])) == (False, 1)
    assert (queue.entries() == before) is (steps is None)


@pytest.mark.usefixtures("said", "queue")
def test_a_refusal_on_one_agent_is_no_reason_to_plan_anew_where_another_failed(run: Run) -> None:
    steps: Steps = {"claim": {"agent1": {"failed": "no image."}, "agent2": {"refused": "no room"}}}
    settled = settle(run, steps, retry=True)
    assert (settled["again"], settled["sessions"][0]["record"]["status"]) == (False, "ERROR")


# ---- what gateways are told


PUBLISHED = dataclasses.replace(MADE, published=(PublishedPort("ssh", "tcp", 22, "192.0.2.1", 30001),))


@pytest.mark.usefixtures("said", "queue")
@pytest.mark.parametrize(
    ("steps", "routed"), [(PROVEN, True), (REFUSED, False), (FAILED, False)], ids=["runs", "refused", "failed"]
)
def test_gateways_are_told_of_sessions_that_run(run: Run, steps: Steps, routed: bool) -> None:
    told = settle(run, steps, starts=[decided(PUBLISHED)], began=time.time() + 60)["routes"]
    assert told == {"routes": [route_of(PUBLISHED)] if routed else [], "ended": [], "news": routed}


@pytest.mark.usefixtures("said", "queue")
def test_a_session_that_waits_or_publishes_nothing_is_no_news(run: Run) -> None:
    for steps in (PROVEN, None):
        assert settle(run, steps)["routes"] == {"routes": [], "ended": [], "news": False}


@pytest.mark.usefixtures("said")
def test_gateways_are_told_once_what_has_ended_since_the_run_began(run: Run, queue: QueueFolder) -> None:
    began = time.time() - 60
    queue.save(requested(2, state="ended", spec=None, updated_at=began + 1))
    queue.save(requested(3, state="ended", spec=None, updated_at=began - 1))
    ended = [requested(2).id]
    args = {"state": "settled", "starts": [decided()], "began": began, "told": ["__session_reconcile", "__other"]}
    first = run(ActionModule, args, replies((MADE, PROVEN)))
    assert first["routes"] == {"routes": [], "ended": ended, "news": True}
    later = replies((MADE, PROVEN), __session_reconcile=first, __other={"again": True})
    assert run(ActionModule, args, later)["routes"] == {"routes": [], "ended": ended, "news": False}
    queue.save(requested(4, state="ended", spec=None, updated_at=began + 2))
    assert run(ActionModule, args, later)["routes"]["news"] is True


@pytest.mark.usefixtures("said")
def test_a_start_that_failed_for_good_has_ended_for_gateways(run: Run, queue: QueueFolder) -> None:
    starts(queue, spec=None)
    told = settle(run, FAILED, starts=[decided(PUBLISHED)], began=time.time())["routes"]
    assert told == {"routes": [], "ended": [SESSION_ID], "news": True}


@pytest.mark.usefixtures("said")
def test_a_session_that_was_ended_meanwhile_is_not_routed(run: Run, queue: QueueFolder) -> None:
    starts(queue, state="ending", spec=None, owner=None, agents=("agent1",))
    told = settle(run, PROVEN, starts=[decided(PUBLISHED)])["routes"]
    assert (told["routes"], told["ended"]) == ([], [SESSION_ID])
