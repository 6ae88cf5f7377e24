"""The action session_report with logs: lines, a file and an exit code."""

from __future__ import annotations

import json
import stat
from pathlib import Path
from typing import Any

import pytest
from ansible.errors import AnsibleActionFail

from ansible_collections.backendai.cluster.plugins.action.session_report import ActionModule
from ansible_collections.backendai.cluster.plugins.plugin_utils._queue.store import QueueStore
from tests.unit.builders import SESSION_ID, plan, queued, record
from tests.unit.plugins.action.conftest import Run
from tests.unit.plugins.plugin_utils._report.test_logs import logged

MADE = plan({"agent1": 1, "agent2": 1})
AGENTS = ["agent1", "agent2", "agent3"]
LOGS: dict[str, Any] = {"kind": "logs", "agents": AGENTS}
NOTHING: dict[str, Any] = {"parts": [], "error": None}
UNKNOWN = (
    "this control node has no record of the session 'ghost'; give session_id for one that was started elsewhere, which"
    " list_sessions shows."
)


@pytest.fixture
def run(run: Run, queue: QueueStore) -> Run:
    """Return what runs the action on a control node that has started the session."""
    queue.save(queued(9, id=SESSION_ID, name="train-llm", state="RUNNING", plan=MADE))
    return run


def answers(**changes: dict[str, Any]) -> dict[str, Any]:
    """Return the variables of a run with the logs of all agents, with changes."""
    results: dict[str, Any] = {agent: {"parts": [logged(MADE, agent)], "error": None} for agent in MADE.agents}
    results = {**results, "agent3": NOTHING, **changes}
    return {"hostvars": {agent: {"__session_logs": result} for agent, result in results.items()}}


def test_logs_are_shown_and_written(run: Run, printed: list[str], tmp_path: Path) -> None:
    path = tmp_path / "logs.json"
    result = run(ActionModule, {**LOGS, "name": "train-llm", "path": str(path)}, answers())
    assert (result["changed"], result["logs"]["error"]) == (False, None)
    assert json.loads(path.read_text()) == result["logs"]
    assert printed == ["== main1 on agent1: running ==", "I am main1", "== sub1 on agent2: running ==", "I am sub1"]


def test_logs_of_one_container_are_shown(run: Run, printed: list[str]) -> None:
    run(ActionModule, {**LOGS, "id": SESSION_ID, "kernel": "sub1"}, answers())
    assert printed == ["== sub1 on agent2: running ==", "I am sub1"]


def test_check_mode_shows_and_writes_nothing(run: Run, printed: list[str], tmp_path: Path) -> None:
    path = tmp_path / "logs.json"
    run(ActionModule, {**LOGS, "name": "train-llm", "path": str(path)}, answers(), check_mode=True)
    assert (printed[-1], path.exists()) == ("I am sub1", False)


@pytest.mark.parametrize(
    ("result", "reason"),
    [
        ({"unreachable": True, "msg": "Failed to\nconnect."}, "Failed to connect"),
        ({"failed": True}, "it returned no result"),
        ({"parts": [], "error": "the engine does not answer."}, "the engine does not answer"),
        ({}, "hidden by --limit"),
    ],
    ids=["unreachable", "silent", "error", "hidden"],
)
def test_available_logs_are_shown_before_an_unreachable_agent_fails(
    run: Run, printed: list[str], tmp_path: Path, result: dict[str, Any], reason: str
) -> None:
    path = tmp_path / "logs.json"
    args = {**LOGS, "name": "train-llm", "path": str(path)}
    with pytest.raises(AnsibleActionFail) as refused:
        run(ActionModule, args, answers(agent2=result))
    assert str(refused.value) == (
        f"not all logs of the session 'train-llm' could be read: agent2 is unavailable: {reason}."
    )
    assert printed == [
        "== main1 on agent1: running ==",
        "I am main1",
        "== sub1 on agent2: unknown ==",
        f"== sub1: agent2 is unavailable: {reason} ==",
    ]
    assert json.loads(path.read_text())["agents"] == {"agent2": reason}


@pytest.mark.parametrize(
    ("args", "sentence"),
    [
        (
            {"name": "ghost"},
            UNKNOWN,
        ),
        ({"name": "session-1"}, "the session 'session-1' is PENDING: no agent holds it."),
        (
            {"name": "session-2"},
            "the session 'session-2' is TERMINATED: it was ended by alice; no agent has kept its output.",
        ),
    ],
    ids=["unknown", "waiting", "over"],
)
def test_unknown_session_fails(
    run: Run, queue: QueueStore, printed: list[str], tmp_path: Path, args: dict[str, str], sentence: str
) -> None:
    queue.save(queued(1))
    queue.save(
        queued(2, state="TERMINATED", spec=None, record=record(status="TERMINATED", reason="it was ended by alice"))
    )
    path = tmp_path / "logs.json"
    with pytest.raises(AnsibleActionFail) as refused:
        run(
            ActionModule,
            {**LOGS, **args, "path": str(path), "queue_path": str(queue.path)},
            answers(agent1=NOTHING, agent2=NOTHING),
        )
    assert (str(refused.value), printed) == (sentence, [])
    assert json.loads(path.read_text())["error"] == sentence


def test_unknown_container_is_rejected(run: Run, printed: list[str]) -> None:
    with pytest.raises(AnsibleActionFail) as refused:
        run(ActionModule, {**LOGS, "name": "train-llm", "kernel": "sub9"}, answers())
    assert str(refused.value) == "session_kernel: 'sub9' is not a container of 'train-llm'; it has main1, sub1."
    assert printed == []


def test_file_has_the_lines_of_a_container_as_they_are_and_the_terminal_does_not(
    run: Run, printed: list[str], tmp_path: Path
) -> None:
    path, line = tmp_path / "logs.json", "\x1b]0;owned\x07\u202e\x9b31m"
    part = logged(MADE, "agent1")
    part["logs"]["main1"]["log"] = json.dumps([line])
    variables = answers(agent1={"parts": [part], "error": None})
    result = run(ActionModule, {**LOGS, "name": "train-llm", "path": str(path)}, variables)
    assert json.loads(path.read_text())["kernels"][0]["log"] == [line]
    shown = "\\x1b]0;owned\\x07\\u202e\\x9b31m"
    assert printed[1] == shown
    assert result["logs"]["kernels"][0]["log"] == [shown]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
