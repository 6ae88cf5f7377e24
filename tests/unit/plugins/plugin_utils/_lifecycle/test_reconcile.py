"""Finished, failed, abandoned and timed-out sessions are found once, and no others."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.backendai.cluster.plugins.module_utils._model.held_session import ContainerState, by_state
from ansible_collections.backendai.cluster.plugins.module_utils._model.plan import SessionPlan
from ansible_collections.backendai.cluster.plugins.plugin_utils._lifecycle.reconcile import (
    AgentAnswers,
    ReconcileActions,
    find_end_reason,
    reconcile,
)
from ansible_collections.backendai.cluster.plugins.plugin_utils._planner.cluster_state import (
    ClusterState,
    Parts,
    Session,
)
from ansible_collections.backendai.cluster.plugins.plugin_utils._queue.entry import Owner, QueueEntry, mark_terminating
from ansible_collections.backendai.cluster.plugins.plugin_utils._report.record import (
    ended_record,
    session_record,
)
from tests.unit.builders import NONCE, NOW, SESSION_ID, holders, plan, requested, spec

OTHER_ID = "00000000-3c0e-4f5e-9d0a-0f3c1d2e4b6a"
LATER = NOW + 1000
NOTHING = ReconcileActions({}, {}, {}, (), ())
OWNER = Owner("manager1 boot", 4711, "123456")
BATCH: dict[str, Any] = {"command": "python train.py"}
CLAIM: dict[str, Any] = {"committed": False}
GIVEN_UP: dict[str, Any] = {"committed": False, "expired": True}


def sessions_on_agents(
    of: SessionPlan, *unreachable: str, stopped: dict[str, Any] | None = None, **state: Any
) -> dict[str, Parts]:
    """Return the parts of a session, by id; ``stopped`` are (status, exit code) of its containers."""
    agents = holders(of, stopped=stopped, **state)
    return dict(ClusterState({name: facts for name, facts in agents.items() if name not in unreachable}, {}).held)


def changed(sessions: dict[str, Parts], agent: str, **changes: Any) -> dict[str, Parts]:
    """Return the parts of the session, with changes to the part of one agent."""
    parts = sessions[SESSION_ID]
    return {SESSION_ID: {**parts, agent: dataclasses.replace(parts[agent], **changes)}}


def session_of(of: SessionPlan, **state: Any) -> Session:
    return Session(of, sessions_on_agents(of, **state)[SESSION_ID])


def is_due(
    entries: Iterable[QueueEntry],
    sessions: dict[str, Parts],
    unreachable: Collection[str] = (),
    *,
    given_up: bool = False,
    answers: AgentAnswers | None = None,
) -> ReconcileActions:
    return reconcile(entries, sessions, unreachable, given_up, LATER, answers)


def due(of: SessionPlan, *unreachable: str, **state: Any) -> ReconcileActions:
    """Return the actions for a session that was started here."""
    return is_due([running(plan=of)], sessions_on_agents(of, *unreachable, **state), unreachable)


def running(**changes: Any) -> QueueEntry:
    """Return the entry of a session that was started here."""
    return own_start(**{"state": "RUNNING", "attended": False, **changes})


def own_start(**changes: Any) -> QueueEntry:
    """Return the entry of a session that a user's own run was starting before it died."""
    record = session_record(plan(), "CREATING")
    own = {"state": "CREATING", "attended": True, "id": SESSION_ID, "name": "train-llm", "record": record}
    return requested(**{**own, "plan": plan(), **changes})


def ending(*agents: str, of: SessionPlan | None = None, **changes: Any) -> QueueEntry:
    """Return the TERMINATING entry of a session on these agents."""
    session_plan = of or plan()
    record = ended_record(session_record(session_plan, "TERMINATED"), "TERMINATED", "on request", None, NOW, NOW)
    entry = mark_terminating(running(plan=session_plan), record, agents, NOW)
    return dataclasses.replace(entry, **changes)


# ---- timeouts


def test_a_session_that_waited_too_long_is_cancelled() -> None:
    entry = requested(pending_timeout=60, enqueued_at=LATER - 60)
    (saved,) = is_due([entry], {}).entries_to_save
    assert (saved.state, saved.spec, saved.updated_at) == ("TERMINATED", None, LATER)
    assert saved.record == {
        **entry.record,
        "status": "CANCELLED",
        "reason": "it waited longer than session_pending_timeout, 60 seconds",
        "exit_code": None,
        "created_at": LATER - 60,
        "ended_at": LATER,
    }


@pytest.mark.parametrize(
    "changes",
    [{"pending_timeout": 60, "enqueued_at": LATER - 59}, {"pending_timeout": 0, "enqueued_at": 0.0}],
    ids=["not yet", "no limit"],
)
def test_a_session_may_wait_as_long_as_it_was_asked_to(changes: dict[str, Any]) -> None:
    assert is_due([requested(**changes)], {}, given_up=True) == NOTHING


@pytest.mark.parametrize(("state", "cancelled"), [({}, False), (CLAIM, True)], ids=["committed", "claimed"])
def test_a_committed_session_does_not_time_out(state: dict[str, Any], cancelled: bool) -> None:
    entry = retried(pending_timeout=60, enqueued_at=LATER - 60)
    assert bool(is_due([entry], sessions_on_agents(plan(), **state)).entries_to_save) is cancelled


def retried(**changes: Any) -> QueueEntry:
    """Return the entry of a session that waits after a failed start."""
    return requested(**{"id": SESSION_ID, "plan": plan(), "nonce": NONCE, "updated_at": NOW, **changes})


def test_agents_of_the_last_start_are_cleared_after_a_timeout() -> None:
    entry = retried(pending_timeout=60, enqueued_at=LATER - 60)
    (saved,) = is_due([entry], {}, ["agent2", "agent3"]).entries_to_save
    assert (saved.state, saved.agents, saved.record["status"]) == ("TERMINATING", ("agent2",), "CANCELLED")
    (ended,) = is_due([entry], {}, ["agent3"]).entries_to_save
    assert ended.state == "TERMINATED"


def test_a_session_that_waits_forgets_the_start_of_which_nothing_is_left() -> None:
    surveyed: dict[str, Any] = {"agent1": (), "agent2": ()}
    entry = retried()
    cleared = {SESSION_ID: ("agent2", "agent1")}
    (saved,) = is_due([entry], {}, answers=AgentAnswers(surveyed, NOW + 1, cleared)).entries_to_save
    assert saved == dataclasses.replace(entry, plan=None, nonce="")
    # One that ends is ended there: something may be about to claim for a run that died.
    late = dataclasses.replace(entry, pending_timeout=60)
    actions = is_due([late], {}, answers=AgentAnswers(surveyed, NOW + 1))
    assert actions.end == {"agent1": [SESSION_ID], "agent2": [SESSION_ID]}


@pytest.mark.parametrize(("cleared", "asked"), [((), ["agent1", "agent2"]), (("agent1",), ["agent2"])])
@pytest.mark.parametrize("state", [{}, {"state": "CREATING", "attended": True}], ids=["waits", "its run was killed"])
def test_agents_refuse_the_last_start_before_a_session_that_waits_forgets_it(
    state: dict[str, Any], cleared: tuple[str, ...], asked: list[str]
) -> None:
    """A request of a run that died may be about to claim, and to start the command, where nothing is held yet."""
    answers = AgentAnswers({"agent1": (), "agent2": ()}, NOW + 1, {SESSION_ID: cleared})
    actions = is_due([retried(**state)], {}, answers=answers)
    assert actions == dataclasses.replace(NOTHING, withdraw={agent: {SESSION_ID: NONCE} for agent in asked})
    assert actions.agents == asked


@pytest.mark.parametrize(
    "entry", [retried(state="CREATING", owner=OWNER), retried(state="RUNNING")], ids=["a run starts it", "it runs"]
)
def test_a_start_that_goes_on_is_not_refused(entry: QueueEntry) -> None:
    answers = AgentAnswers({"agent1": (), "agent2": ()}, NOW + 1)
    assert is_due([entry], {}, answers=answers).withdraw == {}


def test_an_entry_of_a_release_that_kept_no_nonce_forgets_its_start_at_once() -> None:
    entry = retried(nonce="")
    actions = is_due([entry], {}, answers=AgentAnswers({"agent1": (), "agent2": ()}, NOW + 1))
    assert (actions.entries_to_save, actions.agents) == ((dataclasses.replace(entry, plan=None),), [])


@pytest.mark.parametrize(
    ("surveyed", "since", "held"),
    [
        ({"agent1": ()}, NOW + 1, {}),
        ({"agent1": (), "agent2": ()}, NOW, {}),
        ({"agent1": (), "agent2": (SESSION_ID,)}, NOW + 1, {}),
        ({"agent1": (), "agent2": ()}, NOW + 1, sessions_on_agents(plan(), **CLAIM)),
    ],
    ids=["an agent was not read", "agents were read before it failed", "one cannot read it", "agents hold it"],
)
def test_a_session_that_waits_keeps_the_plan_of_which_a_part_may_be_left(
    surveyed: dict[str, Any], since: float, held: dict[str, Parts]
) -> None:
    assert is_due([retried()], held, answers=AgentAnswers(surveyed, since)) == NOTHING


# ---- ended sessions


@pytest.mark.parametrize("exit_code", [0, 3, 137, None])
@pytest.mark.parametrize("policy", ["keep", "restart", "terminate"])
def test_a_batch_session_goes_when_its_command_ends(exit_code: int | None, policy: str) -> None:
    session_plan = plan(**BATCH, failure_policy=policy)
    actions = due(session_plan, stopped={"main1": ("exited", exit_code)})
    assert actions.end == {"agent1": [SESSION_ID], "agent2": [SESSION_ID]}
    assert (actions.restart, actions.agents_with_expired_claims, actions.agents) == ({}, (), ["agent1", "agent2"])
    (note,) = actions.entries_to_save
    assert (note.id, note.state, note.agents, note.user) == (SESSION_ID, "TERMINATING", ("agent1", "agent2"), "alice")
    reason = f"the command ended with exit code {exit_code}"
    assert [note.record[key] for key in ("status", "reason", "exit_code", "ended_at")] == [
        "TERMINATED",
        reason,
        exit_code,
        LATER,
    ]
    assert [kernel["status"] for kernel in note.record["kernels"]] == ["exited", "running", "running", "running"]


def test_a_batch_session_goes_when_its_main1_was_removed() -> None:
    sessions = sessions_on_agents(plan(**BATCH))
    remaining = {"sub1": sessions[SESSION_ID]["agent1"].containers["sub1"]}
    sessions = changed(sessions, "agent1", states=by_state(remaining))
    actions = is_due([running(plan=plan(**BATCH))], sessions)
    assert sorted(actions.end) == ["agent1", "agent2"]
    (note,) = actions.entries_to_save
    assert (note.record["reason"], note.record["exit_code"]) == ("main1 was removed, and with it the command", None)


def test_a_batch_session_with_unreachable_main1_continues() -> None:
    assert due(plan(**BATCH), "agent1") == NOTHING


@pytest.mark.parametrize("policy", ["keep", "restart", "terminate"])
def test_a_container_with_a_successful_command_has_not_failed(policy: str) -> None:
    session_plan = plan(**BATCH, command_scope="all", failure_policy=policy)
    assert due(session_plan, stopped={"sub1": ("exited", 0)}) == NOTHING
    assert session_of(session_plan, stopped={"sub1": ("exited", 0)}).status == "RUNNING"


def test_a_container_with_a_failed_command_has_failed() -> None:
    session_plan = plan(**BATCH, command_scope="all", failure_policy="terminate")
    (note,) = due(session_plan, stopped={"sub1": ("exited", 4)}).entries_to_save
    assert note.record["reason"] == "sub1 died with exit code 4 and session_failure_policy is terminate"
    assert session_of(session_plan, stopped={"sub1": ("exited", 4)}).status == "DEGRADED"


def test_the_end_of_main1_is_the_end_of_a_command_for_all_too() -> None:
    session_plan = plan(**BATCH, command_scope="all")
    (note,) = due(session_plan, stopped={"main1": ("exited", 0)}).entries_to_save
    assert (note.record["reason"], note.record["exit_code"]) == ("the command ended with exit code 0", 0)


def test_main1_that_ends_is_the_end_of_batch_sessions_alone() -> None:
    assert due(plan(), stopped={"main1": ("exited", 0)}) == NOTHING


@pytest.mark.parametrize("status", ["exited", "dead"])
def test_policy_terminate_ends_a_session_with_a_failed_container(status: str) -> None:
    session_plan = plan(failure_policy="terminate")
    actions = due(session_plan, stopped={"sub2": (status, 9), "sub1": (status, 1)})
    assert sorted(actions.end) == ["agent1", "agent2"]
    (note,) = actions.entries_to_save
    reason = "sub1 died with exit code 1 and session_failure_policy is terminate"
    assert (note.record["reason"], note.record["exit_code"], note.record["status"]) == (reason, 1, "TERMINATED")


@pytest.mark.parametrize("policy", ["restart", "terminate"])
def test_policies_leave_containers_alone_that_their_agent_starts_when_a_folder_is_there(policy: str) -> None:
    session_plan = plan(failure_policy=policy)
    sessions = sessions_on_agents(session_plan, stopped={"main1": ("exited", 0), "sub1": ("exited", 1)})
    waiting = changed(sessions, "agent1", waits=True)
    assert is_due([running(plan=session_plan)], waiting) == NOTHING
    assert is_due([running(plan=session_plan)], changed(sessions, "agent2", waits=True)) != NOTHING


def test_what_is_over_is_noted_for_the_agents_too_that_cannot_be_asked() -> None:
    parts = sessions_on_agents(plan(**BATCH), "agent2", stopped={"main1": ("exited", 0)})
    actions = is_due([running(plan=plan(**BATCH))], parts, ["agent2"])
    assert actions.end == {"agent1": [SESSION_ID]}
    assert [note.agents for note in actions.entries_to_save] == [("agent1", "agent2")]


@pytest.mark.parametrize("batch", [{}, BATCH], ids=["interactive", "batch"])
@pytest.mark.parametrize("status", ["exited", "dead", "created"])
def test_policy_restart_restarts_stopped_containers(batch: dict[str, Any], status: str) -> None:
    session_plan = plan(**batch, failure_policy="restart")
    actions = due(session_plan, stopped={"sub2": (status, 1)})
    assert actions == dataclasses.replace(NOTHING, restart={"agent2": [SESSION_ID]})
    assert actions.agents == ["agent2"]


@pytest.mark.parametrize("policy", ["keep", "restart", "terminate"])
def test_removed_or_paused_containers_end_no_session(policy: str) -> None:
    sessions = sessions_on_agents(plan(failure_policy=policy), stopped={"sub1": ("paused", None)})
    remaining = {"sub3": sessions[SESSION_ID]["agent2"].containers["sub3"]}
    sessions = changed(sessions, "agent2", states=by_state(remaining))
    assert is_due([running(plan=plan(failure_policy=policy))], sessions) == NOTHING


def test_policy_keep_leaves_a_session_unchanged() -> None:
    everything = {f"sub{number}": ("dead", 1) for number in (1, 2, 3)}
    assert due(plan(), stopped={"main1": ("exited", 1), **everything}) == NOTHING


@pytest.mark.parametrize("policy", ["restart", "terminate"])
@pytest.mark.parametrize("state", [CLAIM, GIVEN_UP], ids=["being created", "given up"])
def test_what_is_not_committed_has_not_begun_and_so_is_not_over(policy: str, state: dict[str, Any]) -> None:
    actions = due(plan(**BATCH, failure_policy=policy), stopped={"main1": ("exited", 0)}, **state)
    assert (actions.end, actions.restart, actions.entries_to_save) == ({}, {}, ())


def test_what_lives_on_has_no_end() -> None:
    assert find_end_reason(session_of(plan(**BATCH)), NOW) == ("", None)


def test_what_agents_hold_of_a_session_in_the_history_is_left_alone() -> None:
    entry = requested(id=SESSION_ID, state="TERMINATED", spec=None)
    assert is_due([entry], sessions_on_agents(plan(**BATCH), stopped={"main1": ("exited", 3)})) == NOTHING


# ---- TERMINATING entries, and agents that return


def test_a_note_of_an_end_stays_until_every_agent_is_cleared() -> None:
    sessions = sessions_on_agents(plan())
    actions = is_due([ending("agent1", "agent2")], sessions)
    assert (actions.end, actions.entries_to_save) == ({"agent1": [SESSION_ID], "agent2": [SESSION_ID]}, ())


def test_an_agent_that_was_cleared_is_taken_off_the_note() -> None:
    actions = is_due([ending("agent1", "agent2")], sessions_on_agents(plan(), "agent1"))
    assert actions.end == {"agent2": [SESSION_ID]}
    assert [(entry.state, entry.agents, entry.updated_at) for entry in actions.entries_to_save] == [
        ("TERMINATING", ("agent2",), LATER)
    ]


def test_an_agent_that_cannot_be_asked_stays_on_the_note() -> None:
    assert is_due([ending("agent2")], {}, ["agent2"]) == NOTHING
    actions = is_due([ending("agent1", "agent2")], {}, ["agent2"])
    assert (actions.end, [entry.agents for entry in actions.entries_to_save]) == ({}, [("agent2",)])


def test_an_agent_that_left_the_inventory_is_not_waited_for() -> None:
    actions = is_due([ending("agent1", "agent9")], {}, ["agent1"])
    assert [(entry.state, entry.agents) for entry in actions.entries_to_save] == [("TERMINATING", ("agent1",))]


def test_when_all_agents_are_cleared_the_end_is_history() -> None:
    note = ending("agent1", "agent2")
    actions = is_due([note], {})
    assert actions == dataclasses.replace(
        NOTHING, entries_to_save=(dataclasses.replace(note, state="TERMINATED", agents=(), updated_at=LATER),)
    )


def test_an_agent_that_returns_is_cleared_of_what_ended_meanwhile() -> None:
    actions = is_due([ending("agent2")], sessions_on_agents(plan(), "agent1"))
    assert actions == dataclasses.replace(NOTHING, end={"agent2": [SESSION_ID]})


def test_what_has_to_go_is_not_started_again() -> None:
    sessions = sessions_on_agents(plan(failure_policy="restart"), stopped={"sub1": ("exited", 1)})
    assert is_due([ending("agent1", "agent2")], sessions).restart == {}


# ---- killed runs


@pytest.mark.parametrize("sessions", [{}, sessions_on_agents(plan(), **CLAIM)], ids=["nothing", "a claim in time"])
def test_claims_of_a_killed_run_are_kept_until_it_counts_as_dead(sessions: dict[str, Parts]) -> None:
    assert is_due([own_start()], sessions) == NOTHING


def test_a_killed_run_that_had_claimed_nothing_is_an_error_in_the_history() -> None:
    (saved,) = is_due([own_start()], {}, given_up=True).entries_to_save
    assert (saved.state, saved.record["status"], saved.record["error"]) == (
        "TERMINATED",
        "ERROR",
        "the run that created it was killed",
    )


def test_unreachable_agents_are_cleared_of_claims_of_a_killed_run() -> None:
    (saved,) = is_due([own_start()], {}, ["agent2", "agent3"], given_up=True).entries_to_save
    assert (saved.state, saved.agents, saved.record["status"]) == ("TERMINATING", ("agent2",), "ERROR")
    actions = is_due([saved], sessions_on_agents(plan(), "agent1", **CLAIM), ["agent3"])
    assert (actions.end, actions.entries_to_save) == ({"agent2": [SESSION_ID]}, ())


@pytest.mark.parametrize(
    "sessions", [{}, sessions_on_agents(plan(), "agent2", **CLAIM)], ids=["nothing yet", "one agent has claimed"]
)
def test_agents_that_may_still_claim_for_a_killed_run_are_asked_until_they_answer(sessions: dict[str, Parts]) -> None:
    surveyed: dict[str, Any] = {"agent1": (), "agent2": (), "agent3": ()}

    def next_actions(entry: QueueEntry, held: dict[str, Parts], *cleared: str) -> ReconcileActions:
        return is_due([entry], held, given_up=True, answers=AgentAnswers(surveyed, 0.0, {SESSION_ID: cleared}))

    actions = next_actions(own_start(), sessions)
    assert actions.end == {"agent1": [SESSION_ID], "agent2": [SESSION_ID]}
    (saved,) = actions.entries_to_save
    assert (saved.state, saved.agents, len(saved.record["kernels"])) == ("TERMINATING", ("agent1", "agent2"), 4)
    actions = next_actions(saved, {}, "agent1")
    (left,) = actions.entries_to_save
    assert (actions.end, left.state, left.agents) == ({"agent2": [SESSION_ID]}, "TERMINATING", ("agent2",))
    (ended,) = next_actions(left, {}, "agent1", "agent2").entries_to_save
    assert (ended.state, ended.record["status"]) == ("TERMINATED", "ERROR")


@pytest.mark.parametrize("state", [CLAIM, GIVEN_UP], ids=["in time", "over"])
def test_what_a_killed_run_had_claimed_is_taken_away(state: dict[str, Any]) -> None:
    actions = is_due([own_start()], sessions_on_agents(plan(), "agent2", **state), ["agent2"], given_up=True)
    assert actions.end == {"agent1": [SESSION_ID]}
    (saved,) = actions.entries_to_save
    assert (saved.state, saved.agents, saved.record["status"], saved.record["reason"]) == (
        "TERMINATING",
        ("agent1", "agent2"),
        "ERROR",
        "the run that created it was killed",
    )
    assert len(saved.record["kernels"]) == 4


def test_a_batch_session_of_a_killed_run_is_removed() -> None:
    actions = is_due([own_start(plan=plan(**BATCH))], sessions_on_agents(plan(**BATCH)), given_up=True)
    assert sorted(actions.end) == ["agent1", "agent2"]
    assert [entry.state for entry in actions.entries_to_save] == ["TERMINATING"]


@pytest.mark.parametrize("given_up", [True, False])
def test_a_session_of_a_killed_run_that_all_agents_have_committed_keeps_its_request(given_up: bool) -> None:
    entry = own_start()
    actions = is_due([entry], sessions_on_agents(plan()), given_up=given_up)
    (saved,) = actions.entries_to_save
    assert dataclasses.replace(actions, entries_to_save=()) == NOTHING
    assert (saved.state, saved.owner, saved.spec, saved.plan) == ("RUNNING", None, entry.spec, plan())
    assert [kernel["image_digest"] for kernel in saved.record["kernels"]] == ["sha256:1"] * 4


def test_a_session_that_one_agent_may_not_have_committed_is_taken_away() -> None:
    actions = is_due([own_start()], sessions_on_agents(plan(), "agent2"), given_up=True)
    assert actions.end == {"agent1": [SESSION_ID]}
    assert [entry.state for entry in actions.entries_to_save] == ["TERMINATING"]


def test_a_dropped_session_is_looked_after_like_any_other() -> None:
    sessions = sessions_on_agents(plan(failure_policy="terminate"), stopped={"sub1": ("exited", 1)})
    actions = is_due([own_start(plan=plan(failure_policy="terminate"))], sessions)
    assert [(entry.id, entry.state) for entry in actions.entries_to_save] == [(SESSION_ID, "TERMINATING")]


@pytest.mark.parametrize("changes", [{"owner": OWNER}, {"owner": OWNER, "spec": dataclasses.asdict(spec())}])
@pytest.mark.parametrize("state", [{}, CLAIM], ids=["committed", "claimed"])
def test_what_a_run_is_at_work_on_is_left_to_it(changes: dict[str, Any], state: dict[str, Any]) -> None:
    entry = dataclasses.replace(own_start(), **changes)
    assert is_due([entry], sessions_on_agents(plan(), **state), given_up=True) == NOTHING


@pytest.mark.parametrize("state", [{}, CLAIM], ids=["committed", "claimed"])
def test_a_stored_request_of_a_killed_run_is_pending_again(state: dict[str, Any]) -> None:
    assert is_due([requested(id=SESSION_ID)], sessions_on_agents(plan(), **state), given_up=True) == NOTHING


@pytest.mark.parametrize("entry", [retried, own_start], ids=["waits", "its run was killed"])
@pytest.mark.parametrize("left", [{"main1": ("exited", 0)}, {}], ids=["main1 ended", "main1 was removed"])
def test_a_command_that_is_over_does_not_begin_again_though_its_run_was_killed(
    entry: Any, left: dict[str, Any]
) -> None:
    batch = plan(**BATCH)
    sessions = changed(sessions_on_agents(batch, stopped=left), "agent1", begun=True)
    if not left:
        sessions = changed(sessions, "agent1", states=())
    actions = is_due([entry(plan=batch)], sessions)
    (saved,) = actions.entries_to_save
    exit_code = 0 if left else None
    assert (saved.state, saved.record["status"], saved.record["exit_code"]) == ("TERMINATING", "TERMINATED", exit_code)
    assert sorted(actions.end) == ["agent1", "agent2"]


@pytest.mark.parametrize("entry", [retried, own_start], ids=["waits", "its run was killed"])
@pytest.mark.parametrize("scope", ["main", "all"])
def test_a_session_runs_whose_command_has_begun_though_its_run_was_killed(entry: Any, scope: str) -> None:
    batch = plan(**BATCH, command_scope=scope)
    sessions = sessions_on_agents(batch, begun=True)
    if scope == "main":
        sessions = changed(sessions, "agent2", begun=False)
    actions = is_due([entry(plan=batch)], sessions, given_up=True)
    (saved,) = actions.entries_to_save
    assert dataclasses.replace(actions, entries_to_save=()) == NOTHING
    assert (saved.state, saved.plan, saved.record["status"]) == ("RUNNING", batch, "RUNNING")


@pytest.mark.parametrize(
    ("begun", "of_agent2", "scope"),
    [(False, {}, "main"), (True, CLAIM, "main"), (True, {}, "all")],
    ids=["not begun", "not committed everywhere", "begun on one agent"],
)
def test_a_command_that_has_not_begun_is_left_to_the_next_start(
    begun: bool, of_agent2: dict[str, Any], scope: str
) -> None:
    batch = plan(**BATCH, command_scope=scope)
    sessions = changed(sessions_on_agents(batch), "agent1", begun=begun)
    assert is_due([retried(plan=batch)], changed(sessions, "agent2", **of_agent2)) == NOTHING


# ---- expired claims


def test_expired_claims_are_swept_on_their_agents() -> None:
    sessions = changed(sessions_on_agents(plan(), **CLAIM), "agent2", expired=True)
    actions = is_due([], sessions)
    assert actions == dataclasses.replace(NOTHING, agents_with_expired_claims=("agent2",))
    assert actions.agents == ["agent2"]


@pytest.mark.parametrize(
    "changes",
    [
        {"state": "TERMINATED", "spec": None},
        {"state": "PENDING"},
        {"state": "CREATING", "owner": OWNER},
        {"state": "CREATING", "spec": None},
    ],
    ids=["ended", "waits again", "at work", "killed"],
)
def test_claims_are_swept_whatever_the_queue_says_of_the_session(changes: dict[str, Any]) -> None:
    actions = is_due([requested(id=SESSION_ID, **changes)], sessions_on_agents(plan(), **GIVEN_UP))
    assert actions == dataclasses.replace(NOTHING, agents_with_expired_claims=("agent1", "agent2"))


# ---- a healthy cluster


some_sessions: st.SearchStrategy[list[dict[str, Any]]] = st.lists(
    st.builds(
        dict,
        failure_policy=st.sampled_from(["keep", "restart", "terminate"]),
        command=st.sampled_from(["", "python train.py"]),
        size=st.integers(1, 3),
        committed=st.booleans(),
        away=st.sampled_from([(), ("agent1",), ("agent2",)]),
        noted=st.sampled_from([None, "PENDING", "TERMINATED"]),
    ),
    max_size=4,
)


def noted(number: int, state: str, **changes: Any) -> QueueEntry:
    """Return an entry of that state that needs no action."""
    owner = OWNER if state == "CREATING" else None
    return requested(number, state=state, owner=owner, **({"spec": None} if state == "TERMINATED" else {}), **changes)


@given(some_sessions, st.lists(st.sampled_from(["PENDING", "CREATING", "TERMINATED"]), max_size=4), st.booleans())
def test_nothing_is_due_in_a_healthy_cluster(
    described: list[dict[str, Any]], states: list[str], given_up: bool
) -> None:
    sessions: dict[str, Parts] = {}
    entries = []
    for number, drawn in enumerate(described):
        options = {key: drawn[key] for key in ("failure_policy", "command")}
        session_plan = dataclasses.replace(
            plan({"agent1": 1, "agent2": drawn["size"]}, **options), id=f"{number:08x}{OTHER_ID[8:]}"
        )
        sessions |= sessions_on_agents(session_plan, *drawn["away"], committed=drawn["committed"])
        if drawn["noted"]:
            entries.append(noted(1, drawn["noted"], id=session_plan.id, name=session_plan.name))
    entries += [noted(number, state) for number, state in enumerate(states, 10)]
    assert is_due(entries, sessions, given_up=given_up) == NOTHING


# ---- what agents say of sessions of others


def test_a_session_without_a_record_is_neither_ended_nor_restarted_whatever_agents_say() -> None:
    for policy in ("terminate", "restart"):
        made = plan(**BATCH, failure_policy=policy)
        assert is_due([], sessions_on_agents(made, stopped={"main1": ("exited", 1)})) == NOTHING


def test_an_agent_cannot_end_or_restart_what_another_one_runs() -> None:
    made = plan(failure_policy="terminate")
    sessions = sessions_on_agents(made)
    foreign = (*sessions[SESSION_ID]["agent2"].states, *by_state({"main1": ContainerState("exited", None, 1)}))
    part = dataclasses.replace(sessions[SESSION_ID]["agent2"], states=foreign)
    for liar in ("agent2", "agent3"):
        assert is_due([running(plan=made)], {SESSION_ID: {**sessions[SESSION_ID], liar: part}}) == NOTHING


def test_an_agent_cannot_give_a_session_the_name_of_one_that_was_ended() -> None:
    entry = dataclasses.replace(ending("agent1", "agent2"), id=OTHER_ID, name="given-up", enqueued_at=LATER)
    renamed = changed(sessions_on_agents(plan()), "agent1", name="given-up")
    assert is_due([entry, running()], renamed).end == {}


def test_a_session_is_ended_only_on_the_agents_that_were_to_be_cleared() -> None:
    assert is_due([ending("agent1")], sessions_on_agents(plan())).end == {"agent1": [SESSION_ID]}


def test_a_session_that_was_started_here_ends_like_any_other() -> None:
    made = plan(failure_policy="terminate")
    (saved,) = is_due([running(plan=made)], sessions_on_agents(made, stopped={"sub1": ("exited", 1)})).entries_to_save
    assert (saved.id, saved.state, saved.spec, saved.plan) == (SESSION_ID, "TERMINATING", None, None)
    assert is_due([running()], sessions_on_agents(plan())) == NOTHING


def test_a_session_that_no_agent_holds_has_ended_elsewhere() -> None:
    entry = running(updated_at=NOW)
    (saved,) = is_due([entry], {}, answers=AgentAnswers({"agent1": (), "agent2": ()}, NOW + 1)).entries_to_save
    assert (saved.state, saved.spec, saved.plan) == ("TERMINATED", None, None)
    assert saved.record["reason"] == "no agent holds a part of it any more"


@pytest.mark.parametrize(
    ("surveyed", "since"),
    [(["agent1"], NOW + 1), (["agent1", "agent2"], NOW), ([], NOW + 1)],
    ids=["an agent was not read", "agents were read before it started", "none was read"],
)
def test_a_session_that_may_run_keeps_its_request(surveyed: list[str], since: float) -> None:
    answers = AgentAnswers(dict.fromkeys(surveyed, ()), since)
    assert is_due([running(updated_at=NOW)], {}, answers=answers) == NOTHING


@pytest.mark.parametrize("entry", [running(updated_at=NOW), ending("agent1")], ids=["running", "ending"])
def test_a_session_that_an_agent_cannot_read_has_not_ended(entry: QueueEntry) -> None:
    damaged = {"agent1": [SESSION_ID], "agent2": []}
    actions = is_due([entry], {}, given_up=True, answers=AgentAnswers(damaged, NOW + 1))
    # What is ending needs no plan to be removed.
    assert actions.end == ({"agent1": [SESSION_ID]} if entry.state == "TERMINATING" else {})
    assert dataclasses.replace(actions, end={}) == NOTHING
    other = {"agent1": [], "agent2": [OTHER_ID]}
    answers = AgentAnswers(other, NOW + 1, cleared={SESSION_ID: ["agent1"]})
    (saved,) = is_due([entry], {}, given_up=True, answers=answers).entries_to_save
    assert saved.state == "TERMINATED"
