"""Sessions are shown as a table, and written as a list of records."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
from ansible.errors import AnsibleActionFail

from ansible_collections.backendai.cluster.plugins.action.session_list import ActionModule
from ansible_collections.backendai.cluster.plugins.plugin_utils._lifecycle.due import note_of_end
from ansible_collections.backendai.cluster.plugins.plugin_utils._queue.folder import QueueFolder, me
from ansible_collections.backendai.cluster.plugins.plugin_utils._report.record import session_record, unplanned_record
from tests.unit.builders import NOW, SESSION_ID, holders, plan, requested, result
from tests.unit.plugins.action.conftest import Run

MADE = plan()
THERE: dict[str, Any] = {
    "hostvars": {
        **{name: {"__session_agent": result(facts)} for name, facts in holders(MADE).items()},
        "agent3": {"__session_agent": {"unreachable": True, "msg": "no route to host"}},
    }
}
AGENTS = ["agent1", "agent2", "agent3"]


def test_the_table_is_shown_to_people(run: Run, said: list[str]) -> None:
    run(ActionModule, {"agents": AGENTS}, THERE)
    assert [line.split()[:5] for line in said] == [
        ["NAME", "MODE", "SIZE", "STATUS", "AGENTS"],
        ["train-llm", "Multi-node", "4", "RUNNING", "agent1,agent2"],
    ]


@pytest.mark.usefixtures("said")
def test_records_are_written_and_that_is_no_change(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "list.json"
    first = run(ActionModule, {"agents": AGENTS, "path": str(path)}, THERE)
    assert json.loads(path.read_text()) == first["sessions"]
    assert [(one["name"], one["status"], len(one["kernels"])) for one in first["sessions"]] == [
        ("train-llm", "RUNNING", 4)
    ]
    assert first["warnings"] == ["agent3 is left out: no route to host."]
    assert first["changed"] is False


@pytest.mark.parametrize(
    ("history", "listed"),
    [
        (False, {"train-llm": "RUNNING", "session-1": "PENDING", "session-2": "PENDING"}),
        (
            True,
            {
                "train-llm": "RUNNING",
                "session-1": "PENDING",
                "session-2": "PENDING",
                "session-3": "CANCELLED",
                "ending": "TERMINATED",
            },
        ),
    ],
)
def test_what_waits_or_starts_is_listed_and_what_has_ended_on_demand(
    run: Run, queue: QueueFolder, said: list[str], history: bool, listed: dict[str, str]
) -> None:
    queue.save(requested(1))
    queue.save(requested(2, state="starting", owner=me()))
    over = requested(3, state="ended", spec=None)
    queue.save(dataclasses.replace(over, record={**over.record, "status": "CANCELLED"}))
    away = dataclasses.replace(plan({"agent3": 1}, name="ending"), id="00000000-3c0e-4f5e-9d0a-0f3c1d2e4b6a")
    queue.save(note_of_end(away, session_record(away, "TERMINATED"), NOW))
    result = run(ActionModule, {"agents": AGENTS, "history": history}, THERE)
    assert {one["name"]: one["status"] for one in result["sessions"]} == listed
    assert len(said) == 1 + len(listed)


@pytest.mark.usefixtures("said")
@pytest.mark.parametrize("state", [{"state": "starting", "owner": me()}, {"state": "waiting"}])
def test_what_agents_hold_is_told_as_they_hold_it_and_once(run: Run, queue: QueueFolder, state: dict[str, Any]) -> None:
    queue.save(requested(id=SESSION_ID, name="train-llm", **state))
    result = run(ActionModule, {"agents": AGENTS}, THERE)
    assert [(one["name"], one["status"]) for one in result["sessions"]] == [("train-llm", "RUNNING")]


@pytest.mark.usefixtures("said")
def test_what_has_to_go_is_not_told_as_running(run: Run, queue: QueueFolder) -> None:
    queue.save(note_of_end(MADE, session_record(MADE, "TERMINATED"), NOW))
    result = run(ActionModule, {"agents": AGENTS}, THERE)
    assert result["sessions"] == []
    assert result["warnings"][1:] == [
        "the session train-llm has ended, and agent1, agent2 may still hold a part of it."
    ]


@pytest.mark.usefixtures("said")
def test_what_is_known_by_its_id_alone_is_warned_of_by_it(run: Run, queue: QueueFolder) -> None:
    record = unplanned_record(None, None, "TERMINATED", SESSION_ID)
    queue.save(requested(id=SESSION_ID, name="", state="ending", spec=None, record=record, agents=("agent3",)))
    assert run(ActionModule, {"agents": AGENTS}, THERE)["warnings"][1:] == [
        f"the session {SESSION_ID} has ended, and agent3 may still hold a part of it."
    ]


@pytest.mark.usefixtures("said")
def test_check_mode_writes_no_list(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "list.json"
    run(ActionModule, {"agents": AGENTS, "path": str(path)}, THERE, check_mode=True)
    assert not path.exists()


@pytest.mark.usefixtures("said")
def test_a_list_that_cannot_be_written_is_one_sentence_and_leaves_nothing(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "folder"
    path.mkdir()
    with pytest.raises(AnsibleActionFail) as refused:
        run(ActionModule, {"agents": AGENTS, "path": str(path)}, THERE)
    assert str(refused.value) == f"{str(path)!r} cannot be written: Is a directory."
    assert list(tmp_path.iterdir()) == [path]
