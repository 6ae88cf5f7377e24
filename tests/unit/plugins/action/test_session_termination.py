"""The action session_termination: the session is marked before anything is changed, and then moved to the history."""

from __future__ import annotations

import dataclasses
import json
import time
from pathlib import Path
from typing import Any

import pytest
from ansible.errors import AnsibleActionFail

from ansible_collections.backendai.cluster.plugins.action.session_termination import ActionModule
from ansible_collections.backendai.cluster.plugins.plugin_utils._queue.entry import mark_terminating
from ansible_collections.backendai.cluster.plugins.plugin_utils._queue.store import QueueStore
from ansible_collections.backendai.cluster.plugins.plugin_utils._report.record import (
    ended_record,
    session_record,
    unplanned_record,
)
from tests.unit.builders import NOW, SESSION_ID, agent_facts, holders, plan, requested, result
from tests.unit.plugins.action.conftest import Run

MADE = plan()
OTHER_ID = "00000000-3c0e-4f5e-9d0a-0f3c1d2e4b6a"
AGENTS = ["agent1", "agent2", "agent3"]
ENDED: dict[str, Any] = {"state": "ended", "started_at": 0.0}
BEGUN: dict[str, Any] = {"state": "begun", "agents": AGENTS}

RECORD = ended_record(session_record(MADE, "TERMINATED"), "TERMINATED", "terminate_session was run", None, NOW, NOW)
RUNNING = requested(9, id=MADE.id, name="train-llm", state="RUNNING", plan=MADE)
NOTE = mark_terminating(RUNNING, RECORD, MADE.agents, NOW)
NEVER_THERE = unplanned_record(None, "ghost", "TERMINATED")


def answers(**results: dict[str, Any]) -> dict[str, Any]:
    """Return the variables of a run in which agents run the session, with other results for some."""
    hostvars = {**holders(MADE), "agent3": agent_facts("agent3")}
    return {
        "hostvars": {name: {"__session_agent": results.get(name, result(facts))} for name, facts in hostvars.items()}
    }


AWAY = answers(agent2={"unreachable": True, "msg": "Failed to connect"})


@pytest.mark.parametrize(
    "expected",
    [{"name": "train-llm"}, {"name": "train-llm", "id": ""}, {"id": SESSION_ID}, {"name": "", "id": SESSION_ID}],
    ids=["name", "name, empty id", "id", "id, empty name"],
)
def test_session_is_found_and_saved_as_terminating(run: Run, queue: QueueStore, expected: dict[str, str]) -> None:
    queue.save(RUNNING)
    result = run(ActionModule, {**BEGUN, **expected}, answers())
    assert (result["agents"], result["unreachable_agents"]) == (["agent1", "agent2"], [])
    assert (result["changed"], result["record"]["status"]) == (False, "TERMINATED")
    (entry,) = queue.entries()
    assert (entry.id, entry.state, entry.agents) == (SESSION_ID, "TERMINATING", ("agent1", "agent2"))
    # Before the agents remove it.
    assert (result["routes"]["ended"], result["routes"]["changed"]) == ([SESSION_ID], True)


@pytest.mark.parametrize("expected", [{"name": "other"}, {"id": OTHER_ID}, {"name": "train", "id": ""}])
def test_unknown_session_needs_no_termination(run: Run, queue: QueueStore, expected: dict[str, str]) -> None:
    result = run(ActionModule, {**BEGUN, **expected}, answers())
    assert (result["agents"], result["changed"]) == ([], False)
    assert queue.entries() == []


def test_session_without_a_record_is_ended_by_its_id(run: Run, queue: QueueStore) -> None:
    with pytest.raises(AnsibleActionFail, match="this control node has no record of 'train-llm', and agents"):
        run(ActionModule, {**BEGUN, "name": "train-llm"}, answers())
    result = run(ActionModule, {**BEGUN, "id": SESSION_ID}, answers())
    assert (result["agents"], result["record"]["name"]) == (["agent1", "agent2"], "train-llm")
    assert [(entry.id, entry.state) for entry in queue.entries()] == [(SESSION_ID, "TERMINATING")]


def test_partial_termination_is_rejected(run: Run, queue: QueueStore) -> None:
    queue.save(RUNNING)
    with pytest.raises(AnsibleActionFail) as refused:
        run(ActionModule, {**BEGUN, "name": "train-llm"}, AWAY)
    assert str(refused.value) == (
        "the session 'train-llm' has containers on agents that cannot be used, so nothing was ended:"
        " agent2: Failed to connect; with session_force it is removed from them when they return."
    )
    assert [entry.state for entry in queue.entries()] == ["RUNNING"]


def test_force_skips_unreachable_agents(run: Run, queue: QueueStore) -> None:
    queue.save(RUNNING)
    result = run(ActionModule, {**BEGUN, "name": "train-llm", "force": True}, AWAY)
    assert (result["agents"], result["unreachable_agents"]) == (["agent1"], ["agent2"])
    assert result["warnings"] == ["agent2 is left out: Failed to connect."]
    assert [entry.agents for entry in queue.entries()] == [("agent1", "agent2")]


def test_unread_agent_may_run_an_unknown_session(run: Run, queue: QueueStore) -> None:
    hidden = answers()
    hidden["hostvars"]["agent3"] = {}
    args = {**BEGUN, "id": OTHER_ID}
    with pytest.raises(AnsibleActionFail) as refused:
        run(ActionModule, args, hidden)
    assert str(refused.value) == (
        f"this control node has no record of the session {OTHER_ID}, and not all agents are available: agent3: hidden"
        " by --limit; with session_force it is removed from them when they return."
    )
    result = run(ActionModule, {**args, "force": True}, hidden)
    assert (result["unreachable_agents"], result["changed"]) == (["agent3"], True)
    assert [(entry.state, entry.agents) for entry in queue.entries()] == [("TERMINATING", ("agent3",))]


def test_cancelling_a_pending_session_is_a_change(run: Run, queue: QueueStore) -> None:
    queue.save(requested(1))
    result = run(ActionModule, {**BEGUN, "name": "session-1"}, answers())
    assert (result["changed"], result["record"]["status"]) == (True, "CANCELLED")
    assert [(entry.state, entry.spec) for entry in queue.entries()] == [("TERMINATED", None)]


@pytest.mark.parametrize(("name", "changed"), [("train-llm", False), ("session-1", True)])
def test_check_mode_saves_nothing(run: Run, queue: QueueStore, name: str, changed: bool) -> None:
    queue.save(requested(1), RUNNING)
    before = queue.entries()
    result = run(ActionModule, {**BEGUN, "name": name}, answers(), check_mode=True)
    assert (result["changed"], queue.entries()) == (changed, before)


# ---- when it has gone


def test_session_removed_from_all_agents_moves_to_the_history(run: Run, queue: QueueStore, printed: list[str]) -> None:
    queue.save(NOTE)
    result = run(ActionModule, {**ENDED, "record": RECORD, "unreachable_agents": []}, {})
    (entry,) = queue.entries()
    assert (entry.id, entry.state, entry.record, entry.agents) == (MADE.id, "TERMINATED", RECORD, ())
    assert printed == ["Session train-llm is TERMINATED."]
    assert (result["record"], result["changed"], result["waiting"]) == (RECORD, False, False)


def test_unreachable_agents_are_kept_and_shown(run: Run, queue: QueueStore, printed: list[str]) -> None:
    queue.save(NOTE)
    result = run(ActionModule, {**ENDED, "record": RECORD, "unreachable_agents": ["agent2"]}, {})
    (entry,) = queue.entries()
    assert (entry.state, entry.agents, result["waiting"]) == ("TERMINATING", ("agent2",), True)
    assert printed == [
        "Session train-llm is TERMINATED.",
        "  agent2: the next run that reaches it removes the session there.",
    ]


def test_failed_removal_is_kept_like_an_unreachable_agent(run: Run, queue: QueueStore, printed: list[str]) -> None:
    queue.save(NOTE)
    removed = {"agent1": {"changed": True}, "agent2": {"unreachable": True}, "agent3": {"failed": True}}
    assert (
        run(ActionModule, {**ENDED, "record": RECORD, "unreachable_agents": ["agent4"], "removed": removed}, {})[
            "waiting"
        ]
        is True
    )
    (entry,) = queue.entries()
    assert (entry.state, entry.agents) == ("TERMINATING", ("agent4", "agent2", "agent3"))
    assert printed[1] == "  agent4, agent2, agent3: the next run that reaches it removes the session there."


@pytest.mark.usefixtures("printed")
def test_record_says_whether_the_grace_was_exceeded_and_what_was_lost(run: Run, queue: QueueStore) -> None:
    queue.save(NOTE)
    removed = {
        "agent1": {"sessions": {MADE.id: {}}},
        "agent2": {"sessions": {MADE.id: {"grace_exceeded": True, "lost_output": ["sub1: no room"]}}},
    }
    record = run(ActionModule, {**ENDED, "record": RECORD, "removed": removed}, {})["record"]
    assert (record["grace_exceeded"], record["lost_output"]) == (True, ["sub1: no room"])
    assert [entry.record for entry in queue.entries()] == [record]
    del removed["agent2"]
    assert run(ActionModule, {**ENDED, "record": RECORD, "removed": removed}, {})["record"]["grace_exceeded"] is False


@pytest.mark.usefixtures("printed")
def test_record_is_written(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "record.json"
    run(ActionModule, {**ENDED, "record": RECORD, "path": str(path)}, {})
    assert json.loads(path.read_text()) == RECORD


@pytest.mark.parametrize(
    "record", [NEVER_THERE, {**NEVER_THERE, "id": "other"}, {**NEVER_THERE, "id": MADE.id}], ids=["none", "no", "an id"]
)
def test_unknown_session_is_not_saved(run: Run, queue: QueueStore, printed: list[str], record: dict[str, Any]) -> None:
    run(ActionModule, {**ENDED, "record": record}, {})
    assert (queue.entries(), printed) == ([], ["Session ghost is TERMINATED."])


@pytest.mark.usefixtures("printed")
@pytest.mark.parametrize(
    "entry",
    [
        dataclasses.replace(NOTE, state="TERMINATED", agents=()),
        requested(id=MADE.id, state="PENDING"),
        requested(id=MADE.id, state="CREATING", spec=None),
    ],
    ids=["history", "waits", "starts"],
)
def test_entry_that_is_not_terminating_is_kept(run: Run, queue: QueueStore, entry: Any) -> None:
    queue.save(entry)
    before = queue.entries()
    run(ActionModule, {**ENDED, "record": RECORD}, {})
    assert queue.entries() == before


@pytest.mark.usefixtures("printed")
@pytest.mark.parametrize(
    ("changes", "waiting"), [({}, True), ({"state": "TERMINATED", "spec": None}, False)], ids=["waits", "history"]
)
def test_pending_sessions_are_processed_after_a_termination(
    run: Run, queue: QueueStore, changes: dict[str, Any], waiting: bool
) -> None:
    queue.save(NOTE)
    queue.save(requested(2, **changes))
    assert run(ActionModule, {**ENDED, "record": RECORD}, {})["waiting"] is waiting


@pytest.mark.usefixtures("printed")
def test_gateways_get_the_ended_session(run: Run, queue: QueueStore) -> None:
    began = time.time()
    queue.save(requested(1, state="TERMINATED", spec=None, updated_at=began - 1))
    queue.save(NOTE)
    ended = run(ActionModule, {**ENDED, "record": RECORD, "started_at": began}, {})["routes"]
    assert ended == {"routes": [], "ended": [MADE.id], "vacated": [], "changed": True}


@pytest.mark.usefixtures("printed")
def test_session_on_unreachable_agents_is_ended_for_gateways(run: Run, queue: QueueStore) -> None:
    began = time.time()
    queue.save(RUNNING)
    run(ActionModule, {**BEGUN, "name": "train-llm", "force": True}, AWAY)
    ended = run(ActionModule, {**ENDED, "record": RECORD, "unreachable_agents": ["agent2"], "started_at": began}, {})[
        "routes"
    ]
    assert ([entry.state for entry in queue.entries()], ended["ended"], ended["changed"]) == (
        ["TERMINATING"],
        [MADE.id],
        True,
    )


@pytest.mark.usefixtures("printed", "queue")
def test_no_ended_session_sends_no_update(run: Run) -> None:
    ended = run(ActionModule, {**ENDED, "record": NEVER_THERE, "started_at": time.time()}, {})
    assert ended["routes"] == {"routes": [], "ended": [], "vacated": [], "changed": False}


def test_check_mode_writes_nothing_and_shows_it(
    run: Run, queue: QueueStore, printed: list[str], tmp_path: Path
) -> None:
    queue.save(NOTE)
    path = tmp_path / "record.json"
    run(ActionModule, {**ENDED, "record": RECORD, "path": str(path)}, {}, check_mode=True)
    assert (queue.entries(), path.exists()) == ([NOTE], False)
    assert printed == ["Session train-llm was not touched: this is check mode."]
