"""The result of a start: one status, one sentence, and one queue entry."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from ansible_collections.backendai.cluster.plugins.module_utils._model.held_session import ContainerState
from ansible_collections.backendai.cluster.plugins.plugin_utils._lifecycle.start_result import (
    MAX_STARTS,
    StartResult,
    combine_replies,
    requeue_or_end,
    summarize_record,
)
from ansible_collections.backendai.cluster.plugins.plugin_utils._queue.entry import Owner
from ansible_collections.backendai.cluster.plugins.plugin_utils._report.record import session_record, unplanned_record
from tests.unit.builders import NOW, SESSION_ID, plan, requested, spec

MADE = plan({"agent1": 1, "agent2": 1})
OWNER = Owner("manager1 boot", 4711, "123456")
RUNS = {"status": "running", "image_digest": "sha256:1"}
DONE: dict[str, dict[str, Any]] = {
    "agent1": {"refused": "", "containers": {"main1": RUNS}},
    "agent2": {"refused": "", "containers": {"sub1": RUNS}},
}
NO_ROOM: dict[str, Any] = {"refused": "agent2 has no room", "containers": {}}
REMEDY = (
    "may still hold a part of it: the next run of backendai.cluster.schedule_sessions removes it"
    " once the agent can be used again."
)


def failed(reason: str = "", *, rollback_failed: bool = False) -> dict[str, Any]:
    return {"failed": reason, "rollback_failed": rollback_failed}


def error(repairs: bool = False, **replies: dict[str, Any] | None) -> str:
    """Return the error message for these replies of agents."""
    outcome = combine_replies(MADE, replies, repairs=repairs)
    assert (outcome.status, outcome.containers) == ("ERROR", {})
    return outcome.error_at_end or ""


# ---- replies of agents


def test_a_session_runs_when_every_agent_has_made_its_part() -> None:
    running = ContainerState("running", "sha256:1")
    assert combine_replies(MADE, DONE, repairs=False) == StartResult("RUNNING", {"main1": running, "sub1": running})


@pytest.mark.parametrize("second", [NO_ROOM, DONE["agent2"]], ids=["all", "one"])
def test_a_session_waits_when_any_agent_has_refused(second: dict[str, Any]) -> None:
    replies = {"agent1": {"refused": "agent1 has no room", "containers": {}}, "agent2": second}
    refusals = [reply["refused"] for reply in replies.values() if reply["refused"]]
    assert combine_replies(MADE, replies, repairs=False) == StartResult("PENDING", {}, refused="; ".join(refusals))


def test_a_failure_outweighs_a_refusal() -> None:
    assert error(agent1=NO_ROOM, agent2=failed("no image.")) == (
        "the session 'train-llm' was not created: agent2: no image."
    )


@pytest.mark.parametrize(
    ("replies", "reason"),
    [
        ({"agent1": failed("no room."), "agent2": failed()}, "agent1: no room."),
        ({"agent1": failed("no room."), "agent2": failed("no image")}, "agent1: no room; agent2: no image."),
        ({"agent1": failed(), "agent2": DONE["agent2"]}, "an agent became unreachable during the start."),
        ({"agent1": failed("no room."), "agent2": failed(rollback_failed=True)}, f"agent1: no room; agent2 {REMEDY}"),
        ({"agent1": failed("no room", rollback_failed=True), "agent2": failed()}, f"agent1: no room; agent1 {REMEDY}"),
        ({"agent1": failed(), "agent2": None}, f"an agent became unreachable during the start; agent2 {REMEDY}"),
        ({"agent1": failed("no room"), "agent2": {}}, f"agent1: no room; agent2 {REMEDY}"),
        (
            {"agent1": None, "agent2": None},
            f"an agent became unreachable during the start; agent1, agent2 {REMEDY}",
        ),
    ],
    ids=[
        "one agent",
        "two agents",
        "no word",
        "a rollback failed",
        "its own rollback failed",
        "one is away",
        "one said nothing",
        "all are away",
    ],
)
def test_a_failure_is_one_sentence_with_a_remedy(replies: dict[str, Any], reason: str) -> None:
    assert error(**replies) == f"the session 'train-llm' was not created: {reason}"


def test_a_repair_that_fails_says_that_the_session_still_runs() -> None:
    assert error(repairs=True, agent1=failed("no image."), agent2=failed()) == (
        "the session 'train-llm' was not repaired, and what ran before still runs: agent1: no image."
    )


def test_a_failure_names_the_agents_that_may_hold_a_part_but_not_those_of_a_session_that_still_runs() -> None:
    replies = {"agent1": failed("no image."), "agent2": None}
    assert combine_replies(MADE, replies, repairs=False).holding == ("agent2",)
    assert combine_replies(MADE, replies, repairs=True).holding == ()
    assert error(repairs=True, **replies) == (
        "the session 'train-llm' was not repaired, and what ran before still runs: agent1: no image."
    )


# ---- queue entries


@pytest.mark.parametrize("attempts", [0, MAX_STARTS - 1, MAX_STARTS])
def test_a_refused_start_is_no_attempt(attempts: int) -> None:
    entry = requested(state="CREATING", owner=OWNER, attempts=attempts)
    reason = "it will be retried: agent2 has no room"
    outcome = StartResult("PENDING", {}, refused="agent2 has no room")
    assert requeue_or_end(entry, session_record(MADE, "PENDING"), outcome, NOW + 9) == dataclasses.replace(
        entry,
        state="PENDING",
        owner=None,
        updated_at=NOW + 9,
        record={**entry.record, "pending": {"reason": reason, "shortfall": {}}},
    )


def test_what_has_waited_waits_on_after_a_start_that_failed_and_says_why() -> None:
    entry = requested(state="CREATING", owner=OWNER)
    outcome = StartResult("ERROR", {}, "agent1: no image.", holding=("agent2",))
    kept = requeue_or_end(entry, session_record(MADE, "ERROR"), outcome, NOW + 9)
    assert (kept.state, kept.attempts, kept.owner, kept.spec) == ("PENDING", 1, None, entry.spec)
    assert (kept.record["status"], kept.record["error"], kept.record["kernels"]) == ("PENDING", None, [])
    assert kept.record["pending"] == {"reason": "start 1 of 3 failed: agent1: no image", "shortfall": {}}


def test_a_session_is_given_up_after_three_starts() -> None:
    entry, record = requested(), session_record(MADE, "ERROR", error="agent1: no image.")
    outcome = StartResult("ERROR", {}, "agent1: no image.")
    states = []
    for _start in range(MAX_STARTS):
        entry = requeue_or_end(dataclasses.replace(entry, state="CREATING", owner=OWNER), record, outcome, NOW + 9)
        states.append(entry.state)
    assert states == ["PENDING", "PENDING", "TERMINATED"]
    times = {"created_at": entry.enqueued_at, "ended_at": NOW + 9}
    ending = {"reason": "agent1: no image.", "exit_code": None, **times}
    assert (entry.record, entry.spec, entry.owner) == ({**record, **ending}, None, None)


def test_a_start_of_a_users_own_run_that_fails_is_not_tried_again() -> None:
    entry = requested(state="CREATING", spec=None, owner=OWNER)
    kept = requeue_or_end(entry, session_record(MADE, "ERROR"), StartResult("ERROR", {}, "no image."), NOW)
    assert (kept.state, kept.record["status"], kept.record["error"]) == ("TERMINATED", "ERROR", "no image.")


def test_a_session_that_agents_may_still_hold_is_to_be_removed_from_them() -> None:
    entry = requested(state="CREATING", owner=OWNER, attempts=MAX_STARTS - 1)
    outcome = StartResult("ERROR", {}, "no image.", holding=("agent2",))
    kept = requeue_or_end(entry, session_record(MADE, "ERROR"), outcome, NOW)
    assert (kept.state, kept.agents, kept.spec, kept.owner) == ("TERMINATING", ("agent2",), None, None)
    assert (kept.record["status"], kept.record["reason"]) == ("ERROR", f"no image; agent2 {REMEDY}")


# ---- summaries


def test_the_summary_of_a_running_session_lists_its_containers() -> None:
    assert summarize_record(session_record(MADE, "RUNNING"), check_mode=False) == [
        "Session train-llm is RUNNING.",
        f"  main1    agent1           {MADE.kernels[0].address}",
        f"  sub1     agent2           {MADE.kernels[1].address}",
    ]
    assert summarize_record(session_record(plan({"agent1": 1}), "RUNNING"), check_mode=False)[1:] == [
        "  main1    agent1           -"
    ]


def test_the_summary_of_a_pending_session_has_its_reason() -> None:
    session_spec = spec()
    record = {
        **unplanned_record(session_spec, session_spec.name, "PENDING"),
        "pending": {"reason": "no room", "shortfall": {}},
    }
    for check_mode in (True, False):
        assert summarize_record(record, check_mode=check_mode) == ["Session train-llm is PENDING.", "  no room"]


@pytest.mark.parametrize("status", ["RUNNING", "TERMINATED", "CANCELLED"])
def test_check_mode_claims_nothing(status: str) -> None:
    assert summarize_record(session_record(MADE, status), check_mode=True) == [
        "Session train-llm was not touched: this is check mode."
    ]


def test_the_summary_of_a_session_without_a_name_has_its_id() -> None:
    record = unplanned_record(None, None, "TERMINATED", SESSION_ID)
    assert summarize_record(record, check_mode=False) == [f"Session {SESSION_ID} is TERMINATED."]


def test_what_containers_printed_is_in_no_error_message() -> None:
    replies = {"agent1": {**failed("main1 ended."), "printed": ["main1: password=hunter2"]}, "agent2": failed()}
    outcome = combine_replies(MADE, replies, repairs=False)
    assert outcome.printed == ("agent1: main1: password=hunter2",)
    assert "hunter2" not in f"{outcome.error}"
