"""The action session_report with verification: a table, a file and an exit code."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from ansible.errors import AnsibleActionFail

from ansible_collections.backendai.cluster.plugins.action.session_report import ActionModule
from ansible_collections.backendai.cluster.plugins.plugin_utils._queue.store import QueueStore
from tests.unit.builders import SESSION_ID, plan, queued
from tests.unit.plugins.action.conftest import Run
from tests.unit.plugins.plugin_utils._report.test_verification import part

MADE = plan({"agent1": 1, "agent2": 1}, mounts=[{"source": "/mnt/data", "target": "/data"}])
AGENTS = ["agent1", "agent2", "agent3"]
VERIFY: dict[str, Any] = {"kind": "verification", "agents": AGENTS}
SIGHT = {"/data": {"marker": True, "folder": "1:1", "names": "abc"}}
MISSED = {"/data": {"marker": False, "folder": "1:1", "names": "abc"}}
REPAIR = "repair_session, or create_session with the same variables, repairs what differs from the plan."


@pytest.fixture
def run(run: Run, queue: QueueStore) -> Run:
    """Return what runs the action on a control node that has started the session."""
    queue.save(queued(9, id=SESSION_ID, name="train-llm", state="RUNNING", plan=MADE))
    return run


def answers(**changes: dict[str, Any]) -> dict[str, Any]:
    """Return the variables of a run with a healthy session, with changes."""
    marked = {"__session_marker_created": {"created": ["/data"]}, "__session_marker_removed": {"leftover": []}}
    skipped = {"__session_marker_created": {"skipped": True}, "__session_marker_removed": {"skipped": True}}
    results: dict[str, dict[str, Any]] = {
        "agent1": {**marked, "__session_marker_observed": {"observed": {"main1": SIGHT}}},
        "agent2": {**skipped, "__session_marker_observed": {"observed": {"sub1": SIGHT}}},
        "agent3": {"__session_verify": {"parts": [], "error": None}},
    }
    for agent in MADE.agents:
        results[agent]["__session_verify"] = {"parts": [part(MADE, agent)], "error": None}
    return {"hostvars": {agent: {**variables, **changes.get(agent, {})} for agent, variables in results.items()}}


def test_healthy_session_is_shown_and_written(run: Run, printed: list[str], tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    result = run(ActionModule, {**VERIFY, "name": "train-llm", "path": str(path)}, answers())
    assert (result["changed"], result["report"]["healthy"]) == (False, True)
    assert json.loads(path.read_text()) == result["report"]
    assert printed == [
        "from   main1  sub1",
        "main1  ok     ok",
        "sub1   ok     ok",
        "mount /data: the same in all containers (compared by a marker file of main1)",
        "Session train-llm is healthy.",
    ]


def test_check_mode_shows_and_writes_nothing(run: Run, printed: list[str], tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    run(ActionModule, {**VERIFY, "id": SESSION_ID, "path": str(path)}, answers(), check_mode=True)
    assert (printed[-1], path.exists()) == ("Session train-llm is healthy.", False)


@pytest.mark.parametrize(
    ("verified", "reason"),
    [
        ({"unreachable": True, "msg": "Failed to\nconnect."}, "Failed to connect"),
        ({"failed": True, "msg": "boom"}, "boom"),
        ({"failed": True}, "it returned no result"),
        ({"parts": [], "error": "the engine does not answer."}, "the engine does not answer"),
        ({}, "hidden by --limit"),
    ],
    ids=["unreachable", "failed", "silent", "error", "hidden"],
)
def test_unreachable_agent_is_shown_and_fails(
    run: Run, printed: list[str], verified: dict[str, Any], reason: str
) -> None:
    with pytest.raises(AnsibleActionFail) as refused:
        run(ActionModule, {**VERIFY, "name": "train-llm"}, answers(agent2={"__session_verify": verified}))
    assert f"agent2 is unavailable: {reason}." in printed
    assert "1 unavailable agent, 2 unchecked pairs;" in str(refused.value)


def test_differing_mounts_fail(run: Run, printed: list[str], tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    other = answers(agent2={"__session_marker_observed": {"observed": {"sub1": MISSED}}})
    with pytest.raises(AnsibleActionFail) as refused:
        run(ActionModule, {**VERIFY, "name": "train-llm", "path": str(path)}, other)
    assert str(refused.value) == (f"the session 'train-llm' is not healthy: 1 mount with differing contents; {REPAIR}")
    assert json.loads(path.read_text())["mounts"][0]["differing"] == ["sub1"]
    assert printed[-1] == "Session train-llm is not healthy."


def test_marker_with_failed_removal_is_reported(run: Run, printed: list[str]) -> None:
    lost = answers(agent1={"__session_marker_removed": {"unreachable": True, "msg": "it is down"}})
    with pytest.raises(AnsibleActionFail):
        run(ActionModule, {**VERIFY, "name": "train-llm"}, lost)
    assert "mount /data: the marker file could not be removed (compared by a marker file of main1)" in printed


def test_missing_session_fails(run: Run, queue: QueueStore, printed: list[str], tmp_path: Path) -> None:
    queue.save(queued(1))
    path = tmp_path / "report.json"
    for name, sentence in (
        ("ghost", "this control node has no record of the session 'ghost'."),
        ("session-1", "the session 'session-1' is PENDING: no agent holds it."),
    ):
        with pytest.raises(AnsibleActionFail) as refused:
            run(
                ActionModule,
                {**VERIFY, "name": name, "path": str(path)},
                answers(
                    agent1={"__session_verify": {"parts": [], "error": None}},
                    agent2={"__session_verify": {"parts": [], "error": None}},
                ),
            )
        assert str(refused.value) == sentence
        assert json.loads(path.read_text())["error"] == sentence
    assert printed == []
