"""The end of a session: selection by name or id, agents to clear, and the queue entry."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import pytest

from ansible_collections.backendai.cluster.plugins.module_utils._model.validation import ValidationError
from ansible_collections.backendai.cluster.plugins.plugin_utils._lifecycle.termination import Termination, end_session
from ansible_collections.backendai.cluster.plugins.plugin_utils._planner.cluster_state import ClusterState
from ansible_collections.backendai.cluster.plugins.plugin_utils._planner.session_network import PlanningError
from ansible_collections.backendai.cluster.plugins.plugin_utils._queue.entry import Owner, QueueEntry
from ansible_collections.backendai.cluster.plugins.plugin_utils._report.record import (
    ended_record,
    session_record,
    unplanned_record,
)
from tests.unit.builders import NOW, SESSION_ID, agent_facts, held_session, holders, plan, readings, requested

OTHER_ID = "00000000-3c0e-4f5e-9d0a-0f3c1d2e4b6a"
LATER = NOW + 1000
OWNER = Owner("manager1 boot", 4711, "123456")
MADE = plan()
EVERYWHERE = readings("agent3", **holders(MADE))
NO_SESSIONS = readings("agent1", "agent2", "agent3")
AWAY = {"agent2": "unreachable"}
BY_NAME = ("train-llm", "")
BY_ID = ("", SESSION_ID)
ENDED: dict[str, Any] = {"state": "TERMINATED", "spec": None}
ENDING: dict[str, Any] = {"state": "TERMINATING", "spec": None}


def end(
    selector: tuple[str, str], cluster_state: ClusterState, entries: Sequence[QueueEntry] = (), *, force: bool = False
) -> Termination:
    return end_session(*selector, entries, cluster_state, force=force, now=LATER)


def refusal(
    kind: type[ValueError],
    selector: tuple[str, str],
    cluster_state: ClusterState,
    entries: Sequence[QueueEntry] = (),
    *,
    force: bool = False,
) -> str:
    """Return the error message."""
    with pytest.raises(kind) as refused:
        end(selector, cluster_state, entries, force=force)
    return str(refused.value)


def noted(number: int = 1, **changes: Any) -> QueueEntry:
    """Return the queue's entry of the session."""
    return requested(number, **{"id": SESSION_ID, "name": "train-llm", **changes})


RUNNING = noted(state="RUNNING", plan=MADE)
TWIN = dataclasses.replace(plan({"agent3": 1}), id=OTHER_ID)
OTHER_RUNNING = noted(2, id=OTHER_ID, state="RUNNING", plan=TWIN)


# ---- sessions on agents


@pytest.mark.parametrize("selector", [BY_NAME, BY_ID, ("train-llm", SESSION_ID)], ids=["name", "id", "both"])
@pytest.mark.parametrize("force", [True, False])
def test_a_session_is_removed_from_all_its_agents(selector: tuple[str, str], force: bool) -> None:
    entry = dataclasses.replace(RUNNING, record={**RUNNING.record, "host_keys": {"main1": "ssh-ed25519 KEY"}})
    ends = end(selector, EVERYWHERE, [entry], force=force)
    assert (ends.agents, ends.unreachable) == (("agent1", "agent2"), ())
    ending = {
        "reason": "on request",
        "exit_code": None,
        "created_at": NOW + 1,
        "ended_at": LATER,
    }
    keys = {"main1": "ssh-ed25519 KEY"}
    assert ends.record == {**session_record(MADE, "TERMINATED", host_keys=keys), **ending}
    assert ends.note == dataclasses.replace(
        entry, **ENDING, plan=None, record=ends.record, updated_at=LATER, agents=("agent1", "agent2")
    )


@pytest.mark.parametrize(
    ("unavailable", "reason"),
    [(AWAY, "agent2: unreachable"), ({}, "agent2: not in the inventory, or hidden by --limit")],
)
def test_a_session_with_unreachable_agents_is_not_ended(unavailable: dict[str, str], reason: str) -> None:
    cluster_state = readings(left_out=unavailable, agent1=holders(MADE)["agent1"])
    assert refusal(PlanningError, BY_NAME, cluster_state, [RUNNING]) == (
        f"the session 'train-llm' has containers on agents that cannot be used, so nothing was ended: {reason};"
        " with session_force it is removed from them when they return"
    )


def test_force_removes_from_reachable_agents_and_notes_the_others() -> None:
    ends = end(BY_NAME, readings(left_out=AWAY, agent1=holders(MADE)["agent1"]), [RUNNING], force=True)
    assert (ends.agents, ends.unreachable) == (("agent1",), ("agent2",))
    assert ends.note is not None
    assert (ends.note.state, ends.note.agents) == ("TERMINATING", ("agent1", "agent2"))


@pytest.mark.parametrize("owner", [None, OWNER], ids=["killed", "at work"])
@pytest.mark.parametrize("state", [{"state": "CREATING"}, {"state": "PENDING"}])
def test_a_session_on_agents_is_removed_whichever_run_starts_it(state: dict[str, Any], owner: Owner | None) -> None:
    entry = noted(**{"spec": RUNNING.spec, **state}, plan=MADE, owner=owner, has_started=True)
    ends = end(BY_NAME, dataclasses.replace(EVERYWHERE, records={SESSION_ID: MADE}), [entry])
    assert ends.agents == ("agent1", "agent2")
    assert ends.note == dataclasses.replace(
        entry, **ENDING, owner=None, plan=None, record=ends.record, updated_at=LATER, agents=("agent1", "agent2")
    )


def test_what_agents_hold_of_a_session_in_the_history_is_removed_by_its_id() -> None:
    ends = end(BY_ID, EVERYWHERE, [noted(**ENDED)])
    assert ends.note is not None
    assert (ends.note.state, ends.note.agents, ends.agents) == ("TERMINATING", ("agent1", "agent2"), ends.note.agents)


# ---- selection


def test_an_id_of_another_name_ends_neither() -> None:
    sentence = f"session_id: {SESSION_ID!r} is the id of 'train-llm', not of 'other'."
    assert refusal(ValidationError, ("other", SESSION_ID), EVERYWHERE, [RUNNING]) == sentence
    assert refusal(ValidationError, ("other", SESSION_ID), EVERYWHERE) == sentence
    assert refusal(ValidationError, ("other", SESSION_ID), NO_SESSIONS, [noted()]) == sentence


def test_sessions_of_the_same_name_are_listed_by_id() -> None:
    assert refusal(ValidationError, BY_NAME, EVERYWHERE, [RUNNING, OTHER_RUNNING]) == (
        f"session_name: 2 sessions are called 'train-llm': give session_id ({OTHER_ID}, {SESSION_ID})."
    )
    ends = end(("train-llm", OTHER_ID), EVERYWHERE, [RUNNING, OTHER_RUNNING])
    assert (ends.record["id"], ends.agents) == (OTHER_ID, ("agent3",))


def test_of_two_of_one_name_the_one_that_has_to_go_already_is_not_meant() -> None:
    note = noted(**ENDING, record=session_record(MADE, "TERMINATED"), agents=("agent1",))
    ends = end(BY_NAME, EVERYWHERE, [note, OTHER_RUNNING])
    assert (ends.record["id"], ends.agents) == (OTHER_ID, ("agent3",))


def test_one_that_has_to_go_and_is_still_there_is_taken_away_again() -> None:
    note = noted(**ENDING, record=session_record(MADE, "TERMINATED"), agents=("agent1",))
    ends = end(BY_NAME, EVERYWHERE, [note])
    assert (ends.agents, ends.note and ends.note.agents) == (("agent1", "agent2"), ("agent1", "agent2"))


def test_a_pending_session_is_not_confused_with_a_running_namesake() -> None:
    waits = noted(id=OTHER_ID)
    assert refusal(ValidationError, BY_NAME, EVERYWHERE, [waits, RUNNING]) == (
        f"session_name: 2 sessions are called 'train-llm': give session_id ({OTHER_ID}, {SESSION_ID})."
    )
    ends = end(BY_ID, EVERYWHERE, [waits, RUNNING])
    assert (ends.record["id"], ends.note and ends.note.id) == (SESSION_ID, SESSION_ID)
    assert end(("", OTHER_ID), EVERYWHERE, [waits]).record["status"] == "CANCELLED"


def test_of_one_that_waits_and_one_that_goes_the_first_is_meant() -> None:
    ending = noted(1, **ENDING, id=OTHER_ID, agents=("agent2",))
    assert end(BY_NAME, NO_SESSIONS, [ending, noted(2)]).record["status"] == "CANCELLED"


# ---- sessions in the queue only


@pytest.mark.parametrize("selector", [BY_NAME, BY_ID], ids=["name", "id"])
@pytest.mark.parametrize("state", [{"state": "PENDING"}, {"state": "CREATING", "spec": None}], ids=["waits", "killed"])
def test_a_session_that_no_agent_holds_is_cancelled(selector: tuple[str, str], state: dict[str, Any]) -> None:
    entry = noted(**state)
    ends = end(selector, dataclasses.replace(NO_SESSIONS, unavailable={"agent4": "unreachable"}), [entry])
    assert (ends.agents, ends.unreachable) == ((), ())
    assert (ends.record["status"], ends.record["reason"]) == ("CANCELLED", "on request")
    assert (ends.record["created_at"], ends.record["ended_at"]) == (entry.enqueued_at, LATER)
    assert ends.note == dataclasses.replace(entry, **ENDED, record=ends.record, updated_at=LATER)


@pytest.mark.parametrize("force", [True, False])
@pytest.mark.parametrize("state", ["PENDING", "CREATING"])
def test_agents_of_the_last_start_are_cleared_of_a_cancelled_session(state: str, force: bool) -> None:
    entry = noted(state=state, plan=MADE)
    ends = end(BY_NAME, readings("agent1", left_out=AWAY), [entry], force=force)
    assert (ends.agents, ends.unreachable, ends.record["status"]) == (("agent1",), ("agent2",), "CANCELLED")
    assert ends.note is not None
    assert (ends.note.state, ends.note.agents, ends.note.record) == ("TERMINATING", ("agent1", "agent2"), ends.record)
    everywhere = end(BY_NAME, readings("agent1", "agent2"), [entry], force=force)
    assert (everywhere.agents, everywhere.unreachable) == (("agent1", "agent2"), ())


def test_a_cancelled_session_is_removed_from_agents_too_of_which_its_plan_knows_nothing() -> None:
    """An earlier start, whose run was killed, has claimed there."""
    claimed = readings(agent1=holders(MADE, committed=False)["agent1"])
    ends = end(BY_NAME, claimed, [noted(state="PENDING")])
    assert (ends.agents, ends.record["status"]) == (("agent1",), "CANCELLED")


def test_a_session_that_another_run_starts_is_not_cancelled() -> None:
    assert refusal(PlanningError, BY_NAME, NO_SESSIONS, [noted(state="CREATING", owner=OWNER)], force=True) == (
        "the session 'train-llm' is being started by another run, process 4711: end that run first, or wait for it"
    )


def test_a_session_of_the_history_has_ended_already() -> None:
    record = ended_record(session_record(MADE, "RUNNING"), "TERMINATED", "sub1 died", 1, NOW, NOW)
    assert end(BY_ID, NO_SESSIONS, [noted(**ENDED, record=record)]) == Termination(record)


def test_a_name_of_the_history_means_nothing_any_more() -> None:
    ends = end(BY_NAME, NO_SESSIONS, [noted(**ENDED)])
    assert ends == Termination(unplanned_record(None, "train-llm", "TERMINATED"))


@pytest.mark.parametrize("force", [True, False])
@pytest.mark.parametrize("selector", [BY_NAME, BY_ID], ids=["name", "id"])
def test_the_agents_of_a_note_stay_noted_when_the_session_is_ended_again(
    selector: tuple[str, str], force: bool
) -> None:
    note = noted(**ENDING, agents=("agent2",))
    cluster_state = readings("agent1", left_out=AWAY)
    assert end(selector, cluster_state, [note], force=force) == Termination(note.record, unreachable=("agent2",))


# ---- sessions without a record


@pytest.mark.parametrize("force", [True, False])
@pytest.mark.parametrize(
    ("selector", "recorded"), [(("ghost", ""), ("ghost", None)), (("", OTHER_ID), (None, OTHER_ID))], ids=["name", "id"]
)
def test_ending_an_unknown_session_does_nothing(
    selector: tuple[str, str], recorded: tuple[str | None, str | None], force: bool
) -> None:
    ends = end(selector, EVERYWHERE, force=force)
    assert ends == Termination(unplanned_record(None, recorded[0], "TERMINATED", recorded[1]))


def test_a_name_that_only_agents_know_ends_nothing() -> None:
    assert refusal(ValidationError, BY_NAME, EVERYWHERE, force=True) == (
        "session_name: this control node has no record of 'train-llm', and agents hold sessions of that name: end it"
        f" where it was started, or give session_id ({SESSION_ID})."
    )


@pytest.mark.parametrize("selector", [BY_ID, ("train-llm", SESSION_ID)])
def test_a_session_without_a_record_is_ended_by_its_id_where_agents_hold_it(selector: tuple[str, str]) -> None:
    ends = end(selector, EVERYWHERE)
    assert (ends.agents, ends.unreachable) == (("agent1", "agent2"), ())
    assert ends.note is not None
    noted = (ends.note.id, ends.note.name, ends.note.state, ends.note.user, ends.note.agents)
    assert noted == (SESSION_ID, "train-llm", "TERMINATING", "", ("agent1", "agent2"))
    assert (ends.record["status"], ends.record["user"]) == ("TERMINATED", None)


def test_without_force_an_unreachable_agent_may_hold_a_part_of_a_session_without_a_record() -> None:
    for selector, cluster in ((("", OTHER_ID), readings("agent1", left_out=AWAY)), (BY_ID, EVERYWHERE)):
        away = dataclasses.replace(cluster, unavailable=AWAY)
        assert refusal(PlanningError, selector, away) == (
            f"this control node has no record of the session {selector[1]}, and not all agents are available: agent2:"
            " unreachable; with session_force it is removed from them when they return"
        )


def test_with_force_agents_are_cleared_of_an_id_when_they_return() -> None:
    ends = end(("", OTHER_ID), readings("agent1", left_out=AWAY), force=True)
    assert ends.note is not None
    assert (ends.note.id, ends.note.name, ends.note.record["id"]) == (OTHER_ID, "", OTHER_ID)
    assert (ends.note.agents, ends.agents, ends.unreachable) == (("agent2",), (), ("agent2",))


# ---- sessions of one name


@pytest.mark.parametrize("state", ["PENDING", "RUNNING"])
@pytest.mark.parametrize("held", [True, False], ids=["one on agents", "none on agents"])
def test_of_two_sessions_of_a_name_the_id_is_asked_for(state: str, held: bool) -> None:
    entries = [noted(state="RUNNING", plan=MADE), noted(2, id=OTHER_ID, state=state, plan=None)]
    cluster_state = EVERYWHERE if held else NO_SESSIONS
    assert refusal(ValidationError, BY_NAME, cluster_state, entries, force=True) == (
        f"session_name: 2 sessions are called 'train-llm': give session_id ({OTHER_ID}, {SESSION_ID})."
    )
    assert end(("", OTHER_ID), cluster_state, entries).record["id"] == OTHER_ID


def test_a_session_that_is_ending_is_no_other_of_its_name() -> None:
    ends = end(BY_NAME, EVERYWHERE, [noted(**ENDING, agents=("agent1", "agent2")), noted(2, id=OTHER_ID)])
    assert (ends.record["id"], ends.record["status"]) == (OTHER_ID, "CANCELLED")


# ---- agents that say something else than the record


def test_a_session_is_ended_on_the_agents_of_the_record_and_on_those_that_hold_it() -> None:
    assert sorted(end(BY_NAME, EVERYWHERE, [RUNNING]).agents) == ["agent1", "agent2"]
    stranger = agent_facts("agent3", sessions=[held_session(MADE, "agent1")])
    cluster = dataclasses.replace(EVERYWHERE, facts={**EVERYWHERE.facts, "agent3": stranger})
    ended = end(BY_NAME, cluster, [RUNNING])
    assert sorted(ended.agents) == ["agent1", "agent2", "agent3"]
    assert ended.note is not None
    assert (ended.note.state, ended.note.spec, ended.note.plan) == ("TERMINATING", None, None)


def test_a_recorded_session_on_unreachable_agents_is_ended_by_its_plan() -> None:
    entry = noted(state="RUNNING", plan=MADE)
    away = readings("agent1", "agent3", left_out=AWAY)
    assert "has containers on agents that cannot be used, so nothing was ended: agent2: unreachable" in refusal(
        PlanningError, BY_NAME, away, [entry]
    )
    ended = end(BY_NAME, away, [entry], force=True)
    assert (ended.agents, ended.unreachable) == (("agent1",), ("agent2",))


@pytest.mark.parametrize("entries", [[], [noted(**ENDED)], [noted(**ENDING)]], ids=["no entry", "ended", "ending"])
def test_a_session_that_an_agent_cannot_read_is_ended_there(entries: list[QueueEntry]) -> None:
    facts = dict(NO_SESSIONS.facts)
    facts["agent1"] = dataclasses.replace(facts["agent1"], damaged_sessions=(SESSION_ID,))
    ended = end(BY_ID, dataclasses.replace(NO_SESSIONS, facts=facts), entries)
    assert ended.agents == ("agent1",)
    assert ended.note is not None
    assert (ended.note.id, ended.note.state, ended.note.agents[0]) == (SESSION_ID, "TERMINATING", "agent1")
