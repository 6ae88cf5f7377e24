"""Managers and gateways with sessions are not given back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.backendai.cluster.plugins.module_utils._gateway.routes import Endpoint, Route
from ansible_collections.backendai.cluster.plugins.module_utils._gateway.store import GatewayStore
from tests.unit.module_runs import result_of

IDS = [f"{number:08x}-3c0e-4f5e-9d0a-0f3c1d2e4b6a" for number in range(3)]


@pytest.fixture
def look(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Any:
    """Return a function that looks for sessions in the queue of a manager."""

    def run(**options: Any) -> dict[str, Any]:
        return result_of("manager_removal", {"queue_path": str(tmp_path), **options}, capsys)

    return run


def test_a_manager_whose_sessions_have_not_ended_is_refused(look: Any, tmp_path: Path) -> None:
    for session_id, state in zip(IDS, ("RUNNING", "PENDING", "TERMINATED"), strict=True):
        entry = {"id": session_id, "name": f"my-{state.lower()}", "state": state}
        (tmp_path / f"{session_id}.json").write_text(json.dumps(entry))
    assert look()["msg"] == (
        "sessions of this manager have not ended: my-pending, my-running; end them, or run this playbook with -e"
        " remove_sessions=true, which ends them first."
    )
    assert look(end_sessions=True)["sessions"] == {IDS[0]: "my-running", IDS[1]: "my-pending"}


def test_a_session_that_agents_may_still_hold_is_named_with_them(look: Any, tmp_path: Path) -> None:
    entry = {"id": IDS[0], "name": "train", "state": "TERMINATING", "agents": ["agent2", "agent3"]}
    (tmp_path / f"{IDS[0]}.json").write_text(json.dumps(entry))
    assert look()["msg"].startswith(
        "sessions of this manager have not ended: train (agent2, agent3 may still hold a part of it); end them"
    )


def test_a_manager_without_a_queue_has_no_sessions(look: Any, tmp_path: Path) -> None:
    (tmp_path / ".hidden.json").write_text("x")
    (tmp_path / "notes.json").write_text("x")
    assert look()["sessions"] == {}
    assert look(queue_path=str(tmp_path / "none"))["sessions"] == {}


@pytest.mark.parametrize("text", ["{", "[]", "{}"])
def test_a_damaged_entry_is_named(look: Any, tmp_path: Path, text: str) -> None:
    (tmp_path / f"{IDS[0]}.json").write_text(text)
    assert look(end_sessions=True)["msg"].startswith(f"{tmp_path}/{IDS[0]}.json is damaged (")


def test_a_gateway_with_routes_is_refused_unless_they_are_to_be_closed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = {"state_path": str(tmp_path)}
    assert result_of("gateway_removal", given, capsys)["sessions"] == []
    (tmp_path / "routes").mkdir()
    (tmp_path / "routes" / f"{IDS[1]}.json").write_text("{")
    route = Route(IDS[0], "train", (), Endpoint("192.0.2.11", 30001))
    for file in GatewayStore(str(tmp_path)).plan_route_files({IDS[0]: route}, [IDS[1]]):
        file.path.write_text(file.content or "")
    refused = result_of("gateway_removal", given, capsys)["msg"]
    assert refused.startswith(f"this gateway has routes to {IDS[1]}, train: end these sessions with")
    closed = result_of("gateway_removal", {**given, "close_routes": True}, capsys)
    assert closed["sessions"] == [IDS[1], "train"]
