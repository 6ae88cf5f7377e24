"""The modules about the end of containers, run whole: what they return, and how they fail."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Any

import pytest
from ansible.module_utils.testing import patch_module_args

from ansible_collections.backendai.cluster.plugins.module_utils._host.store import Store
from tests.unit.builders import SESSION_ID, held, plan
from tests.unit.engine import Engine
from tests.unit.kernel import kernel_of_names

BATCH = plan({"agent1": 1}, command="python train.py")
NOWHERE = "unix:///nowhere/docker.sock"


@pytest.fixture
def state_path(tmp_path: Path) -> str:
    """Return the folder of an agent that is provisioned."""
    (tmp_path / "sessions").mkdir()
    (tmp_path / "lock").touch()
    return str(tmp_path)


@pytest.fixture
def capture(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    """Return what runs a module of the collection in this process and gives the result that it prints."""

    def run(module: str, args: dict[str, Any], *, engine: Engine | None = None, check_mode: bool = False) -> Any:
        loaded = importlib.import_module(f"ansible_collections.backendai.cluster.plugins.modules.{module}")
        if engine is not None:
            monkeypatch.setattr(loaded, "connect", lambda _host: engine)
        given = {**args, "_ansible_check_mode": check_mode}
        with patch_module_args(given), kernel_of_names(), pytest.raises(SystemExit):
            loaded.main()
        return json.loads(capsys.readouterr().out)

    return run


@pytest.mark.parametrize("check_mode", [False, True], ids=["run", "check mode"])
def test_the_command_is_started_unless_in_check_mode(capture: Any, state_path: str, check_mode: bool) -> None:
    store = Store(state_path)
    store.save(held(BATCH))
    folder = store.kernel_folder(SESSION_ID, "main1")
    folder.mkdir()
    args = {"session_id": SESSION_ID, "nonce": "nonce-1", "state_path": state_path}
    result = capture("session_command", args, check_mode=check_mode)
    assert result["changed"] is True
    assert result["diff"] == {"before": "", "after": "command of train-llm in main1: started\n"}
    assert (folder / "go").exists() is not check_mode
    assert capture("session_command", args)["changed"] is check_mode


def test_a_command_of_a_session_that_is_not_here_is_refused_with_one_sentence(capture: Any, state_path: str) -> None:
    result = capture("session_command", {"session_id": SESSION_ID, "nonce": "nonce-1", "state_path": state_path})
    assert (result["failed"], result["msg"]) == (
        True,
        f"the session {SESSION_ID} is not claimed on this agent: its claim expired, or was removed.",
    )


def test_the_end_of_a_container_that_is_gone_is_told(capture: Any) -> None:
    result = capture("session_wait", {"session_id": SESSION_ID}, engine=Engine())
    assert (result["changed"], result["ended"], result["exit_code"]) == (False, True, None)


@pytest.mark.parametrize("check_mode", [False, True], ids=["run", "check mode"])
def test_what_fails_for_one_session_does_not_fail_the_module(capture: Any, state_path: str, check_mode: bool) -> None:
    store, lost = Store(state_path), "00000000-3c0e-4f5e-9d0a-0f3c1d2e4b6a"
    store.save(held(BATCH))
    args = {"end": [SESSION_ID], "restart": [lost], "state_path": state_path}
    result = capture("session_reap", args, engine=Engine(), check_mode=check_mode)
    assert (result.get("failed", False), result["changed"]) == (False, True)
    assert result["failures"] == {lost: f"the session {lost} is not on this agent"}
    assert result["diff"] == {"before": "session train-llm: held\n", "after": ""}
    assert (store.session(SESSION_ID) is not None) is check_mode


def test_claims_are_swept_unless_told_otherwise(capture: Any, state_path: str) -> None:
    Store(state_path).save(held(BATCH, expires_at=1.0))
    args = {"state_path": state_path}
    assert capture("session_reap", {**args, "expired": False}, engine=Engine())["changed"] is False
    assert capture("session_reap", args, engine=Engine())["changed"] is True


@pytest.mark.parametrize(("module", "args"), [("session_wait", {"session_id": SESSION_ID}), ("session_reap", {})])
def test_an_engine_that_is_down_fails_with_one_sentence(capture: Any, module: str, args: dict[str, Any]) -> None:
    result = capture(module, {**args, "docker_host": NOWHERE})
    assert result["failed"] is True
    assert result["msg"].startswith(f"the Docker engine at {NOWHERE} does not answer the Docker SDK for Python ")


@pytest.mark.parametrize(
    ("module", "args", "sentence"),
    [
        ("session_command", {"session_id": SESSION_ID}, "missing required arguments: nonce"),
        ("session_wait", {}, "missing required arguments: session_id"),
    ],
)
def test_an_option_that_is_missing_is_named(capture: Any, module: str, args: dict[str, Any], sentence: str) -> None:
    result = capture(module, args)
    assert (result["failed"], result["msg"]) == (True, sentence)
