"""The action session_reconcile: the queue is saved before anything is changed; changes are shown and sent once."""

from __future__ import annotations

import dataclasses
import time
from typing import Any

import pytest

from ansible_collections.backendai.cluster.plugins.module_utils._model.facts import AgentFacts
from ansible_collections.backendai.cluster.plugins.module_utils._model.plan import SessionPlan
from ansible_collections.backendai.cluster.plugins.module_utils._model.session import PublishedPort
from ansible_collections.backendai.cluster.plugins.plugin_utils._lifecycle.absence import Absence, Absences
from ansible_collections.backendai.cluster.plugins.plugin_utils._queue.entry import QueueEntry
from ansible_collections.backendai.cluster.plugins.plugin_utils._queue.owner import current_owner
from ansible_collections.backendai.cluster.plugins.plugin_utils._queue.store import QueueStore
from ansible_collections.backendai.cluster.plugins.plugin_utils._report.record import session_record
from ansible_collections.backendai.cluster.plugins.plugin_utils.absence_file import load_absences, save_absences
from tests.unit.builders import SESSION_ID, agent_facts, holders, plan, requested, result, spec
from tests.unit.plugins.action.conftest import Run
from tests.unit.plugins.action.stages import Reconcile

AGENTS = ["agent1", "agent2", "agent3"]
ARGUMENTS: dict[str, Any] = {"agents": AGENTS}
REMOVED = {**ARGUMENTS, "ends": {SESSION_ID: {"agent1": {}, "agent2": {}}}}
"""Those of the look after agents have answered that they have removed the session."""
KILLED = dataclasses.replace(current_owner(), started="0")
DAY = 86400.0
ENDED_LINE = "Session train-llm is TERMINATED: the command ended with exit code 3."


def answers(*unreachable: str, **facts: AgentFacts) -> dict[str, Any]:
    """Return the variables of a run with these facts and unreachable agents."""
    results: dict[str, Any] = {name: result(facts.get(name, agent_facts(name))) for name in AGENTS}
    results |= {name: {"unreachable": True, "msg": "no route to host"} for name in unreachable}
    return {"hostvars": {name: {"__session_agent": entry} for name, entry in results.items()} | {"localhost": {}}}


BATCH = plan(command="python train.py")


def finished() -> dict[str, AgentFacts]:
    """Return the facts of agents with a batch session with a failed command."""
    return holders(BATCH, stopped={"main1": ("exited", 3)})


def record(queue: QueueStore, of: SessionPlan = BATCH) -> None:
    """Save a session as one that was started here."""
    queue.save(requested(asked=spec(), id=of.id, state="RUNNING", plan=of))


def own_start(queue: QueueStore, of: SessionPlan | None = None) -> QueueEntry:
    """Save the entry of a session that belonged to a killed run."""
    made = of or plan()
    record = session_record(made, "CREATING")
    own: dict[str, Any] = {"state": "CREATING", "attended": True, "plan": made, "owner": KILLED, "record": record}
    entry = requested(asked=spec(), id=SESSION_ID, **own)
    queue.save(entry)
    return queue.entry(SESSION_ID) or entry


def test_empty_cluster_needs_no_action(run: Run, printed: list[str]) -> None:
    result = run(Reconcile, ARGUMENTS, answers())
    assert {key: result[key] for key in ("end", "restart", "agents")} == {"end": {}, "restart": {}, "agents": []}
    assert printed == []


def test_what_agents_say_of_a_session_without_a_record_ends_and_restarts_nothing(
    run: Run, queue: QueueStore, printed: list[str]
) -> None:
    for facts in (finished(), holders(plan(failure_policy="restart"), stopped={"sub1": ("exited", 1)})):
        result = run(Reconcile, {**ARGUMENTS, "all_routes": True}, answers(**facts))
        assert (result["end"], result["restart"], result["agents"]) == ({}, {}, [])
        assert (result["routes"]["routes"], result["routes"]["ended"]) == ([], [])
    assert (queue.entries(), printed) == ([], [])


def test_finished_command_is_saved_and_shown(run: Run, queue: QueueStore, printed: list[str]) -> None:
    record(queue)
    result = run(Reconcile, ARGUMENTS, answers(**finished()))
    assert result["end"] == {"agent1": [SESSION_ID], "agent2": [SESSION_ID]}
    assert result["agents"] == ["agent1", "agent2"]
    (entry,) = queue.entries()
    assert (entry.id, entry.state, entry.record["exit_code"]) == (SESSION_ID, "TERMINATING", 3)
    assert printed == [ENDED_LINE]


def test_record_of_a_session_that_its_agent_cannot_read_is_kept(run: Run, queue: QueueStore) -> None:
    queue.save(requested(asked=spec(), id=SESSION_ID, state="RUNNING", plan=plan({"agent1": 1})))
    args, damaged = {**ARGUMENTS, "started_at": 1.0e10}, agent_facts("agent1", damaged_sessions=[SESSION_ID])
    run(Reconcile, args, answers(agent1=damaged))
    assert [entry.state for entry in queue.entries()] == ["RUNNING"]
    run(Reconcile, args, answers())
    assert [entry.state for entry in queue.entries()] == ["TERMINATED"]


def test_removed_session_moves_to_the_history(run: Run, queue: QueueStore, printed: list[str]) -> None:
    record(queue)
    run(Reconcile, ARGUMENTS, answers(**finished()))
    assert run(Reconcile, REMOVED, answers())["agents"] == []
    (entry,) = queue.entries()
    assert (entry.state, entry.record["exit_code"], printed) == ("TERMINATED", 3, [ENDED_LINE])


@pytest.mark.usefixtures("printed")
def test_ended_session_is_removed_from_a_returning_agent(run: Run, queue: QueueStore) -> None:
    facts = finished()
    record(queue)
    run(Reconcile, ARGUMENTS, answers("agent2", **facts))
    run(Reconcile, REMOVED, answers("agent2"))
    assert [(entry.state, entry.agents) for entry in queue.entries()] == [("TERMINATING", ("agent2",))]
    assert run(Reconcile, ARGUMENTS, answers(agent2=facts["agent2"]))["end"] == {"agent2": [SESSION_ID]}
    run(Reconcile, REMOVED, answers())
    assert [entry.state for entry in queue.entries()] == ["TERMINATED"]


def test_what_agents_report_of_ends_is_saved_with_the_sessions_that_end(run: Run, queue: QueueStore) -> None:
    for number in (1, 2, 3):
        queue.save(requested(number, state="TERMINATING", spec=None, agents=("agent1", "agent2")))
    ended, *others = (entry.id for entry in queue.entries())
    ends = {
        ended: {"agent1": {"grace_exceeded": True, "lost_output": ["main1"]}, "agent2": {}},
        **{session_id: {"agent1": {}} for session_id in others},
        "of nobody": {"agent1": {}},
    }
    run(Reconcile, {**ARGUMENTS, "ends": ends}, answers("agent2"))
    saved = [(entry.record.get("grace_exceeded"), entry.record.get("lost_output")) for entry in queue.entries()]
    assert (saved[0], {entry.agents for entry in queue.entries()}) == ((True, ["main1"]), {("agent2",)})
    assert not any(saved[1] + saved[2])


@pytest.mark.usefixtures("printed")
def test_restarts_and_expired_claims_are_assigned_to_agents(run: Run, queue: QueueStore) -> None:
    made = plan({"agent1": 1, "agent2": 1}, failure_policy="restart")
    record(queue, made)
    facts = holders(made, stopped={"sub1": ("exited", None)})
    remaining = dataclasses.replace(plan({"agent3": 1}, name="given-up"), id="00000000-3c0e-4f5e-9d0a-0f3c1d2e4b6a")
    facts |= holders(remaining, committed=False, expired=True)
    result = run(Reconcile, ARGUMENTS, answers(**facts))
    assert (result["restart"], result["end"]) == ({"agent2": [SESSION_ID]}, {})
    assert result["agents"] == ["agent2", "agent3"]
    assert [entry.state for entry in queue.entries()] == ["RUNNING"]


@pytest.mark.usefixtures("printed")
def test_session_of_a_killed_run_is_removed_only_if_abandoned(run: Run, queue: QueueStore) -> None:
    entry = own_start(queue)
    facts = holders(plan(), committed=False)
    assert run(Reconcile, ARGUMENTS, answers(**facts))["agents"] == []
    assert queue.entries() == [entry]
    assert run(Reconcile, {**ARGUMENTS, "abandoned": True}, answers(**facts))["agents"] == ["agent1", "agent2"]
    assert [entry.state for entry in queue.entries()] == ["TERMINATING"]


def test_request_of_a_running_session_is_kept(run: Run, queue: QueueStore, printed: list[str]) -> None:
    own_start(queue)
    result = run(Reconcile, {**ARGUMENTS, "abandoned": True}, answers(**holders(plan())))
    (entry,) = queue.entries()
    assert (result["agents"], entry.state, entry.plan, printed) == ([], "RUNNING", plan(), [])


@pytest.mark.usefixtures("printed")
def test_finished_session_of_a_killed_run_is_saved_again(run: Run, queue: QueueStore) -> None:
    own_start(queue, plan(failure_policy="terminate"))
    facts = holders(plan(failure_policy="terminate"), stopped={"sub1": ("dead", None)})
    assert run(Reconcile, ARGUMENTS, answers(**facts))["agents"] == ["agent1", "agent2"]
    assert [(entry.id, entry.state) for entry in queue.entries()] == [(SESSION_ID, "TERMINATING")]


def test_session_on_a_lost_agent_ends_where_it_can_be_reached(run: Run, queue: QueueStore, printed: list[str]) -> None:
    facts = holders(plan(failure_policy="terminate"))
    record(queue, plan(failure_policy="terminate"))
    away = answers("agent2", **facts)
    assert run(Reconcile, ARGUMENTS, away)["agents"] == []
    counted = load_absences(queue.path).agents["agent2"]
    aged = Absences({"agent2": dataclasses.replace(counted, seconds=600.0)})
    save_absences(queue.path, Absences(), aged)
    cut_off = run(Reconcile, ARGUMENTS, answers("agent2", "agent3", **facts))
    assert (cut_off["end"], len(cut_off["warnings"])) == ({}, 1)
    assert run(Reconcile, ARGUMENTS, away, check_mode=True)["end"] == {"agent1": [SESSION_ID]}
    assert [entry.state for entry in queue.entries()] == ["RUNNING"]
    del printed[:]
    assert run(Reconcile, ARGUMENTS, away)["end"] == {"agent1": [SESSION_ID]}
    run(Reconcile, REMOVED, answers("agent2"))
    assert [(entry.state, entry.agents) for entry in queue.entries()] == [("TERMINATING", ("agent2",))]
    reason = "agent2 did not answer for 600 seconds and session_failure_policy is terminate"
    assert printed == [f"Session {queue.entries()[0].name} is TERMINATED: {reason}."]
    assert run(Reconcile, ARGUMENTS, answers(agent2=facts["agent2"]))["end"] == {"agent2": [SESSION_ID]}
    assert load_absences(queue.path) == Absences()


def counted(**changes: float) -> Absences:
    """Return the state in which agent2 was tried a minute ago, and has been away for 300 seconds."""
    now = time.time()
    return Absences({"agent2": dataclasses.replace(Absence(now - 400, now - 60, 300.0), **changes)})


@pytest.mark.parametrize("field", ["since", "tried_at", "seconds"])
@pytest.mark.parametrize("damage", [1e300, -1.0, "{"])
def test_a_damaged_count_of_absences_begins_anew(run: Run, queue: QueueStore, field: str, damage: float | str) -> None:
    queue.path.mkdir(mode=0o700)
    if isinstance(damage, str):
        (queue.path / "absent-agents").write_text(damage)
    else:
        save_absences(queue.path, Absences(), counted(**{field: damage}))
    assert load_absences(queue.path) == Absences()
    run(Reconcile, ARGUMENTS, answers("agent2"))
    assert load_absences(queue.path).agents["agent2"].seconds == 0


@pytest.mark.parametrize("asked", [["agent2"], ["agent2", "agent3"]])
def test_a_run_that_asks_some_agents_counts_no_absence(run: Run, queue: QueueStore, asked: list[str]) -> None:
    before = counted(seconds=600.0)
    facts = holders(plan(failure_policy="terminate"))
    record(queue, plan(failure_policy="terminate"))
    save_absences(queue.path, Absences(), before)
    variables = answers("agent2", **facts)
    variables["hostvars"] |= {name: {} for name in AGENTS if name not in asked}
    result = run(Reconcile, ARGUMENTS, variables)
    assert (result["end"], result["warnings"], load_absences(queue.path)) == ({}, [], before)


def test_a_run_that_reconciles_twice_counts_an_absence_once(run: Run, queue: QueueStore) -> None:
    queue.path.mkdir(mode=0o700)
    args = {**ARGUMENTS, "started_at": time.time() - 30}
    save_absences(queue.path, Absences(), counted())
    run(Reconcile, args, answers("agent2"))
    once = load_absences(queue.path).agents["agent2"].seconds
    run(Reconcile, args, answers("agent2"))
    assert once > 300
    assert load_absences(queue.path).agents["agent2"].seconds == once


def test_session_whose_time_is_up_ends(run: Run, queue: QueueStore, printed: list[str]) -> None:
    facts = holders(plan(idle_timeout=600), lived=4000, idle=600)
    record(queue, plan(idle_timeout=600))
    assert run(Reconcile, ARGUMENTS, answers(**facts))["end"] == {"agent1": [SESSION_ID], "agent2": [SESSION_ID]}
    assert [entry.record["reason"] for entry in queue.entries()] == [
        "it was idle for session_idle_timeout, 600 seconds"
    ]
    assert printed == ["Session train-llm is TERMINATED: it was idle for session_idle_timeout, 600 seconds."]


def test_the_plan_of_a_start_of_which_nothing_is_left_is_forgotten_without_a_line(
    run: Run, queue: QueueStore, printed: list[str]
) -> None:
    queue.save(requested(asked=spec(), id=SESSION_ID, plan=plan(), updated_at=time.time() - 60))
    run(Reconcile, {**ARGUMENTS, "started_at": time.time() - 30}, answers("agent2"))
    assert [bool(entry.plan) for entry in queue.entries()] == [True]
    run(Reconcile, {**ARGUMENTS, "started_at": time.time() - 30}, answers())
    assert [(entry.state, entry.plan) for entry in queue.entries()] == [("PENDING", None)]
    assert printed == []


def test_pending_timeout_is_shown(run: Run, queue: QueueStore, printed: list[str]) -> None:
    queue.save(requested(pending_timeout=60, enqueued_at=time.time() - 61))
    run(Reconcile, ARGUMENTS, answers())
    assert [(entry.state, entry.record["status"]) for entry in queue.entries()] == [("TERMINATED", "CANCELLED")]
    assert printed == ["Session session-1 is CANCELLED: it waited longer than session_pending_timeout, 60 seconds."]


@pytest.mark.usefixtures("printed")
@pytest.mark.parametrize(
    ("days", "age", "kept"), [(30, 29.9, True), (30, 30.1, False), (0, 0.1, False), (None, 29.9, True)]
)
def test_history_is_kept_for_history_days(
    run: Run, queue: QueueStore, days: int | None, age: float, kept: bool
) -> None:
    queue.save(requested(1, state="TERMINATED", spec=None, updated_at=time.time() - age * DAY))
    queue.save(requested(2, updated_at=0.0))
    run(Reconcile, {**ARGUMENTS, **({} if days is None else {"history_days": days})}, answers())
    assert [entry.state for entry in queue.entries()] == ["TERMINATED"] * kept + ["PENDING"]


@pytest.mark.usefixtures("printed")
def test_history_is_kept_while_it_tells_how_often_a_session_was_skipped(run: Run, queue: QueueStore) -> None:
    queue.save(requested(1))
    queue.save(*(requested(n, state="TERMINATED", spec=None, has_started=True, updated_at=1.0) for n in (2, 3, 4)))
    run(Reconcile, {**ARGUMENTS, "max_skips": 2}, answers())
    assert [entry.id for entry in queue.entries()] == [requested(number).id for number in (1, 3, 4)]
    queue.remove(requested(1).id)
    run(Reconcile, {**ARGUMENTS, "max_skips": 2}, answers())
    assert queue.entries() == []


@pytest.mark.usefixtures("printed")
def test_check_mode_reconciles_without_writing(run: Run, queue: QueueStore) -> None:
    queue.save(requested(1, pending_timeout=1, enqueued_at=1.0))
    queue.save(requested(2, state="TERMINATED", spec=None, updated_at=1.0))
    record(queue)
    before = {path: path.stat().st_mtime_ns for path in queue.path.rglob("*")}
    args = {**ARGUMENTS, "started_at": time.time()}
    result = run(Reconcile, args, answers(**finished()), check_mode=True)
    assert result["agents"] == ["agent1", "agent2"]
    assert {path: path.stat().st_mtime_ns for path in queue.path.rglob("*")} == before


# ---- what gateways are told


ROUTED = dataclasses.replace(plan(), published=(PublishedPort("ssh", "tcp", 22, "192.0.2.1", 30001),))


def routed() -> dict[str, AgentFacts]:
    """Return the facts of agents with a session that publishes its SSH port."""
    return holders(ROUTED)


@pytest.mark.usefixtures("printed")
def test_without_started_at_all_ended_sessions_are_sent(run: Run, queue: QueueStore) -> None:
    queue.save(requested(1, state="TERMINATED", spec=None, updated_at=time.time() - DAY))
    assert run(Reconcile, ARGUMENTS, answers())["routes"] == {
        "routes": [],
        "ended": [requested(1).id],
        "vacated": [],
        "changed": True,
    }


@pytest.mark.usefixtures("printed")
def test_gateways_get_sessions_ended_in_this_run(run: Run, queue: QueueStore) -> None:
    began = time.time()
    queue.save(requested(1, state="TERMINATED", spec=None, updated_at=began - 1))
    record(queue)
    args = {**ARGUMENTS, "started_at": began}
    assert run(Reconcile, args, answers())["routes"] == {
        "routes": [],
        "ended": [],
        "vacated": [],
        "changed": False,
    }
    ending = run(Reconcile, args, answers(**finished()))["routes"]
    assert ending == {"routes": [], "ended": [SESSION_ID], "vacated": [], "changed": True}


@pytest.mark.usefixtures("printed")
@pytest.mark.parametrize("check_mode", [True, False])
def test_running_sessions_of_the_record_are_sent_only_with_all_routes(
    run: Run, queue: QueueStore, check_mode: bool
) -> None:
    hostvars, args = answers(**routed()), {**ARGUMENTS, "started_at": "0.0"}
    assert run(Reconcile, {**args, "all_routes": True}, hostvars, check_mode=check_mode)["routes"]["routes"] == []
    record(queue, ROUTED)
    assert run(Reconcile, args, hostvars, check_mode=check_mode)["routes"]["routes"] == []
    routes = run(Reconcile, {**args, "all_routes": True}, hostvars, check_mode=check_mode)["routes"]
    assert [route["id"] for route in routes["routes"]] == [SESSION_ID]
    assert (routes["ended"], routes["changed"]) == ([], True)


@pytest.mark.usefixtures("printed")
def test_ended_sessions_are_sent_with_all_routes(run: Run, queue: QueueStore) -> None:
    queue.save(requested(1, state="TERMINATED", spec=None, updated_at=time.time() - DAY))
    hostvars = answers()
    args = {**ARGUMENTS, "started_at": time.time(), "sent": [requested(1).id]}
    assert run(Reconcile, args, hostvars)["routes"] == {
        "routes": [],
        "ended": [],
        "vacated": [],
        "changed": False,
    }
    everything = run(Reconcile, {**args, "all_routes": True}, hostvars)["routes"]
    assert everything == {"routes": [], "ended": [requested(1).id], "vacated": [], "changed": True}


@pytest.mark.usefixtures("printed")
def test_finished_session_on_agents_has_no_route(run: Run, queue: QueueStore) -> None:
    queue.save(requested(id=SESSION_ID, name="train-llm", state="TERMINATING", spec=None, agents=("agent1",)))
    routes = run(Reconcile, {**ARGUMENTS, "started_at": 0.0, "all_routes": True}, answers(**routed()))["routes"]
    assert routes == {"routes": [], "ended": [SESSION_ID], "vacated": [], "changed": True}


@pytest.mark.usefixtures("printed")
def test_sent_routes_are_not_sent_again(run: Run, queue: QueueStore) -> None:
    record(queue)
    args = {**ARGUMENTS, "started_at": time.time()}
    first = run(Reconcile, args, answers(**finished()))
    again = run(Reconcile, {**args, "sent": first["routes"]["ended"]}, answers())["routes"]
    assert (first["routes"]["changed"], again) == (
        True,
        {"routes": [], "ended": [SESSION_ID], "vacated": [], "changed": False},
    )


@pytest.mark.usefixtures("printed")
def test_a_session_that_an_earlier_run_marked_is_sent_before_its_agent_ends_it(run: Run, queue: QueueStore) -> None:
    record(queue)
    facts = finished()
    run(Reconcile, ARGUMENTS, answers("agent2", **facts))
    result = run(Reconcile, {**ARGUMENTS, "started_at": time.time() + 60}, answers(**facts))
    assert (result["end"]["agent2"], result["routes"]["ended"]) == ([SESSION_ID], [SESSION_ID])


@pytest.mark.usefixtures("printed", "queue")
def test_reserved_ports_are_sent_to_gateways_with_all_routes_only(run: Run) -> None:
    hostvars = answers(agent2=agent_facts("agent2", reserved_ports={SESSION_ID: [30001, 30002]}))
    plain = run(Reconcile, {**ARGUMENTS, "started_at": time.time()}, hostvars)
    assert (plain["reserving"], plain["routes"]["vacated"], plain["routes"]["changed"]) == ([], [], False)
    full = run(Reconcile, {**ARGUMENTS, "all_routes": True}, hostvars)
    vacated = [{"id": SESSION_ID, "address": "192.0.2.2"}]
    assert (full["reserving"], full["routes"]["vacated"], full["routes"]["changed"]) == (["agent2"], vacated, True)
    assert full["agents"] == []


@pytest.mark.usefixtures("printed", "queue")
def test_ports_reserved_at_an_address_of_another_agent_are_not_sent(run: Run) -> None:
    hostvars = answers("agent1", agent2=agent_facts("agent2", reserved_ports={SESSION_ID: [30001]}))
    hostvars["hostvars"]["agent1"]["ansible_host"] = "192.0.2.2"
    full = run(Reconcile, {**ARGUMENTS, "all_routes": True}, hostvars)
    assert (full["reserving"], full["routes"]["vacated"], full["routes"]["changed"]) == ([], [], False)


@pytest.mark.usefixtures("printed")
def test_check_mode_sends_no_ended_sessions(run: Run, queue: QueueStore) -> None:
    record(queue)
    args = {**ARGUMENTS, "started_at": time.time()}
    result = run(Reconcile, args, answers(**finished()), check_mode=True)
    assert (result["agents"], result["routes"]["ended"], result["routes"]["changed"]) == (
        ["agent1", "agent2"],
        [],
        False,
    )
