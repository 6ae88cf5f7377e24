"""The module that reads logs, run whole: what it returns, and how it fails."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ansible_collections.backendai.cluster.plugins.module_utils._host.store import Held, Store
from ansible_collections.backendai.cluster.plugins.modules import session_logs
from tests.unit.builders import SESSION_ID, held, plan
from tests.unit.plugins.modules.test_failures import NOWHERE, result_of


@pytest.fixture
def state_path(tmp_path: Path) -> str:
    """Return the folder of an agent that is provisioned and holds a session that is not committed."""
    (tmp_path / "sessions").mkdir()
    Store(str(tmp_path)).save(held(plan({"agent1": 1}), expires_at=1.0))
    return str(tmp_path)


@pytest.mark.parametrize("check_mode", [False, True], ids=["run", "check mode"])
@pytest.mark.parametrize("named", [{"name": "train-llm"}, {"session_id": SESSION_ID}], ids=["name", "id"])
def test_every_part_of_that_name_or_id_is_read(
    named: dict[str, str],
    check_mode: bool,
    state_path: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def logs_of(client: str, of: Held, kernel: str, lines: int) -> dict[str, Any]:
        return {"asked": [client, of.plan.name, kernel, lines]}

    monkeypatch.setattr(session_logs, "connect", lambda host: f"client of {host}")
    monkeypatch.setattr(session_logs, "logs_of", logs_of)
    args = {**named, "state_path": state_path, "docker_host": NOWHERE}
    result = result_of("session_logs", args, capsys, check_mode=check_mode)
    assert (result["changed"], result["unfit"]) == (False, None)
    assert result["parts"] == [{"asked": [f"client of {NOWHERE}", "train-llm", "", 100]}]
    result = result_of("session_logs", {**args, "kernel": "sub1", "lines": 7}, capsys)
    assert result["parts"][0]["asked"][2:] == ["sub1", 7]


def test_an_agent_that_holds_nothing_of_the_session_needs_no_engine(
    state_path: str, capsys: pytest.CaptureFixture[str]
) -> None:
    args = {"name": "other", "state_path": state_path, "docker_host": NOWHERE}
    result = result_of("session_logs", args, capsys)
    assert (result["parts"], result["unfit"]) == ([], None)


def test_an_agent_whose_engine_is_down_is_unfit_and_no_failure(
    state_path: str, capsys: pytest.CaptureFixture[str]
) -> None:
    args = {"name": "train-llm", "state_path": state_path, "docker_host": NOWHERE}
    result = result_of("session_logs", args, capsys)
    assert (result.get("failed", False), result["parts"]) == (False, [])
    assert result["unfit"].startswith(f"the Docker engine at {NOWHERE} does not answer the Docker SDK for Python ")


@pytest.mark.parametrize("lines", [0, 100_001])
def test_a_number_of_lines_that_is_not_allowed_is_refused(
    lines: int, state_path: str, capsys: pytest.CaptureFixture[str]
) -> None:
    result = result_of("session_logs", {"name": "train-llm", "lines": lines, "state_path": state_path}, capsys)
    assert (result["failed"], result["msg"]) == (True, f"lines: {lines} must be a whole number from 1 to 100000.")
