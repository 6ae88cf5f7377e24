"""A session that has ended goes to the history, unless agents that are away have yet to be cleared."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.backendai.cluster.plugins.action.session_ended import ActionModule
from ansible_collections.backendai.cluster.plugins.plugin_utils._lifecycle.due import note_of_end
from ansible_collections.backendai.cluster.plugins.plugin_utils._queue.folder import QueueFolder
from ansible_collections.backendai.cluster.plugins.plugin_utils._report.record import (
    ended_record,
    session_record,
    unplanned_record,
)
from tests.unit.builders import NOW, plan, requested
from tests.unit.plugins.action.conftest import Run

MADE = plan()
RECORD = ended_record(session_record(MADE, "TERMINATED"), "TERMINATED", "terminate_session was run", None, NOW, NOW)
NOTE = note_of_end(MADE, RECORD, NOW)
NEVER_THERE = unplanned_record(None, "ghost", "TERMINATED")


def test_when_all_agents_are_cleared_the_session_is_history(run: Run, queue: QueueFolder, said: list[str]) -> None:
    queue.save(NOTE)
    result = run(ActionModule, {"record": RECORD, "away": []}, {})
    (entry,) = queue.entries()
    assert (entry.id, entry.state, entry.record, entry.agents) == (MADE.id, "ended", RECORD, ())
    assert said == ["Session train-llm is TERMINATED."]
    assert (result["record"], result["changed"], result["waiting"]) == (RECORD, False, False)


def test_agents_that_are_away_stay_noted_and_are_told(run: Run, queue: QueueFolder, said: list[str]) -> None:
    queue.save(NOTE)
    result = run(ActionModule, {"record": RECORD, "away": ["agent2"]}, {})
    (entry,) = queue.entries()
    assert (entry.state, entry.agents, result["waiting"]) == ("ending", ("agent2",), True)
    assert said == [
        "Session train-llm is TERMINATED.",
        "  agent2 will be cleared by the next run that can use it.",
    ]


def test_an_agent_that_was_lost_on_the_way_stays_noted_like_one_that_was_away(
    run: Run, queue: QueueFolder, said: list[str]
) -> None:
    queue.save(NOTE)
    removed = {"agent1": {"changed": True}, "agent2": {"unreachable": True}, "agent3": {"failed": True}}
    assert run(ActionModule, {"record": RECORD, "away": ["agent4"], "removed": removed}, {})["waiting"] is True
    (entry,) = queue.entries()
    assert (entry.state, entry.agents) == ("ending", ("agent4", "agent2", "agent3"))
    assert said[1] == "  agent4, agent2, agent3 will be cleared by the next run that can use it."


@pytest.mark.usefixtures("said")
def test_the_record_is_written(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "record.json"
    run(ActionModule, {"record": RECORD, "path": str(path)}, {})
    assert json.loads(path.read_text()) == RECORD


@pytest.mark.parametrize(
    "record", [NEVER_THERE, {**NEVER_THERE, "id": "other"}, {**NEVER_THERE, "id": MADE.id}], ids=["none", "no", "an id"]
)
def test_a_session_that_was_never_there_leaves_no_note(
    run: Run, queue: QueueFolder, said: list[str], record: dict[str, Any]
) -> None:
    run(ActionModule, {"record": record}, {})
    assert (queue.entries(), said) == ([], ["Session ghost is TERMINATED."])


@pytest.mark.usefixtures("said")
@pytest.mark.parametrize(
    "entry",
    [
        dataclasses.replace(NOTE, state="ended", agents=()),
        requested(id=MADE.id, state="waiting"),
        requested(id=MADE.id, state="starting", spec=None),
    ],
    ids=["history", "waits", "starts"],
)
def test_an_entry_that_says_no_end_is_left_as_it_is(run: Run, queue: QueueFolder, entry: Any) -> None:
    queue.save(entry)
    before = queue.entries()
    run(ActionModule, {"record": RECORD}, {})
    assert queue.entries() == before


@pytest.mark.usefixtures("said")
@pytest.mark.parametrize(
    ("changes", "waiting"), [({}, True), ({"state": "ended", "spec": None}, False)], ids=["waits", "history"]
)
def test_who_waits_is_told_that_room_is_free(
    run: Run, queue: QueueFolder, changes: dict[str, Any], waiting: bool
) -> None:
    queue.save(NOTE)
    queue.save(requested(2, **changes))
    assert run(ActionModule, {"record": RECORD}, {})["waiting"] is waiting


def test_check_mode_writes_nothing_and_says_so(run: Run, queue: QueueFolder, said: list[str], tmp_path: Path) -> None:
    queue.save(NOTE)
    path = tmp_path / "record.json"
    run(ActionModule, {"record": RECORD, "path": str(path)}, {}, check_mode=True)
    assert (queue.entries(), path.exists()) == ([NOTE], False)
    assert said == ["Session train-llm was not touched: this is check mode."]
