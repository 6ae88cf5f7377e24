"""The modules that look at a session without changing it, run whole: what they return, and how they fail."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Any

import pytest
from ansible.module_utils.testing import patch_module_args

from ansible_collections.backendai.cluster.plugins.module_utils._host.store import Store
from ansible_collections.backendai.cluster.plugins.module_utils._model.plan import SessionPlan
from ansible_collections.backendai.cluster.plugins.modules import session_mark
from tests.unit.builders import SESSION_ID, held, plan

NOWHERE = "unix:///nowhere/docker.sock"


@pytest.fixture
def state_path(tmp_path: Path) -> str:
    """Return the folder of an agent that is provisioned and holds a session."""
    (tmp_path / "sessions").mkdir()
    Store(str(tmp_path)).save(held(plan({"agent1": 1})))
    return str(tmp_path)


@pytest.fixture
def capture(capsys: pytest.CaptureFixture[str]) -> Any:
    """Return what runs a module of the collection in this process and gives the result that it prints."""

    def run(module: str, args: dict[str, Any], *, check_mode: bool = False) -> Any:
        loaded = importlib.import_module(f"ansible_collections.backendai.cluster.plugins.modules.{module}")
        with patch_module_args({**args, "_ansible_check_mode": check_mode}), pytest.raises(SystemExit):
            loaded.main()
        return json.loads(capsys.readouterr().out)

    return run


def test_an_agent_that_holds_nothing_of_the_session_needs_no_engine(capture: Any, state_path: str) -> None:
    result = capture("session_verify", {"name": "other", "state_path": state_path, "docker_host": NOWHERE})
    assert (result["changed"], result["parts"], result["unfit"]) == (False, [], None)


@pytest.mark.parametrize("check_mode", [False, True], ids=["run", "check mode"])
def test_an_agent_whose_engine_is_down_is_unfit_and_no_failure(capture: Any, state_path: str, check_mode: bool) -> None:
    args = {"session_id": SESSION_ID, "state_path": state_path, "docker_host": NOWHERE}
    result = capture("session_verify", args, check_mode=check_mode)
    assert (result.get("failed", False), result["parts"]) == (False, [])
    assert result["unfit"].startswith(f"the Docker engine at {NOWHERE} does not answer the Docker SDK for Python ")


def test_a_session_that_cannot_be_read_makes_the_agent_unfit(capture: Any, state_path: str) -> None:
    (Store(state_path).folder(SESSION_ID) / "session.json").write_text("{")
    result = capture("session_verify", {"name": "train-llm", "state_path": state_path})
    assert "session.json is damaged" in result["unfit"]


def test_an_option_that_is_missing_is_named(capture: Any) -> None:
    result = capture("session_mark", {"session_id": SESSION_ID, "act": "look"})
    assert (result["failed"], result["msg"]) == (True, "missing required arguments: mark")


def test_a_mark_for_a_session_that_is_not_here_is_refused(capture: Any, tmp_path: Path) -> None:
    args = {"session_id": SESSION_ID, "mark": "m", "act": "look", "state_path": str(tmp_path)}
    result = capture("session_mark", args)
    assert (result["failed"], result["msg"]) == (True, f"the session {SESSION_ID} is not on this agent.")


def test_a_mark_needs_an_engine(capture: Any, state_path: str) -> None:
    args = {"session_id": SESSION_ID, "mark": "m", "act": "look", "state_path": state_path, "docker_host": NOWHERE}
    result = capture("session_mark", args)
    assert result["failed"]
    assert result["msg"].startswith(f"the Docker engine at {NOWHERE} does not answer")


@pytest.mark.parametrize("check_mode", [False, True], ids=["run", "check mode"])
def test_check_mode_leaves_no_mark(
    capture: Any, state_path: str, monkeypatch: pytest.MonkeyPatch, check_mode: bool
) -> None:
    did: list[str] = []

    def act(name: str, gives: Any) -> None:
        def acted(_client: None, _plan: SessionPlan, mark: str) -> Any:
            did.append(f"{name} {mark}")
            return gives

        monkeypatch.setattr(session_mark, name, acted)

    monkeypatch.setattr(session_mark, "connect", lambda _host: None)
    act("leave", ["/data"])
    act("look", {"main1": {}})
    act("remove", [])
    args = {"session_id": SESSION_ID, "mark": "m", "state_path": state_path}
    results = [
        capture("session_mark", {**args, "act": one}, check_mode=check_mode) for one in ("leave", "look", "remove")
    ]
    assert did == (["look m"] if check_mode else ["leave m", "look m", "remove m"])
    assert (results[0]["left"], results[1]["seen"], results[2]["stays"]) == (
        [] if check_mode else ["/data"],
        {"main1": {}},
        [],
    )
    assert [result["changed"] for result in results] == [False] * 3
