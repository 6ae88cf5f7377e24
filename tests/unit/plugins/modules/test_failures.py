"""How modules end where there is no engine, and where options are missing: run whole, on this host."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Any

import pytest
from ansible.module_utils.testing import patch_module_args

from tests.unit.builders import SESSION_ID, plan

MADE = plan({"agent1": 1}).to_dict()
NOWHERE = "unix:///nowhere/docker.sock"
CLAIM = {"plan": MADE, "request": {}, "agent": "agent1", "nonce": "n"}
IMAGE = {"session_id": SESSION_ID, "nonce": "n", "seconds": 60, "name": "lab/python:1", "reference": "lab/python:1"}
SLICE = {
    "plan": MADE,
    "agent": "agent1",
    "nonce": "n",
    "public_keys": {},
    "hosts": "",
    "ssh_config": "",
    # A secret value that is also a word of the message: it must not be censored there.
    "environments": '{"main1": {"A": "engine"}}',
    "environment_files": {"main1": "A=engine\n"},
}


def result_of(
    module: str, args: dict[str, Any], capsys: pytest.CaptureFixture[str], *, check_mode: bool = False
) -> dict[str, Any]:
    """Run a module of the collection in this process and return the result that it prints."""
    main = importlib.import_module(f"ansible_collections.backendai.cluster.plugins.modules.{module}").main
    with patch_module_args({**args, "_ansible_check_mode": check_mode}), pytest.raises(SystemExit):
        main()
    return dict(json.loads(capsys.readouterr().out))


@pytest.mark.parametrize("check_mode", [False, True], ids=["run", "check mode"])
@pytest.mark.parametrize(
    ("module", "args"),
    [
        ("session_claim", CLAIM),
        ("session_image", IMAGE),
        ("session_overlay", {"plan": MADE, "nonce": "n"}),
        ("session_slice", SLICE),
        ("session_slice", {"state": "absent", "session_id": SESSION_ID}),
        ("session_check", {"session_id": SESSION_ID, "nonce": "n"}),
    ],
    ids=["claim", "image", "overlay", "slice", "end", "check"],
)
def test_an_engine_that_is_down_fails_with_one_sentence(
    module: str, args: dict[str, Any], check_mode: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    where = {"docker_host": NOWHERE, **({} if module == "session_image" else {"state_path": str(tmp_path)})}
    result = result_of(module, {**args, **where}, capsys, check_mode=check_mode)
    assert result["failed"] is True
    assert result["msg"].startswith(f"the Docker engine at {NOWHERE} does not answer the Docker SDK for Python ")
    assert result["msg"].endswith(
        ": start docker on this host, or run backendai.cluster.provision_agents on this host."
    )
    assert list(tmp_path.iterdir()) == []


def test_an_agent_whose_engine_is_down_is_unfit_and_no_failure(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    result = result_of("agent_info", {"docker_host": NOWHERE, "state_path": str(tmp_path)}, capsys)
    assert (result.get("failed", False), result["agent"]) == (False, None)
    assert result["unfit"].startswith(f"the Docker engine at {NOWHERE} does not answer")


@pytest.mark.parametrize(
    ("module", "args", "sentence"),
    [
        (
            "session_slice",
            {"nonce": "n", "plan": MADE},
            (
                "state is present but all of the following are missing: agent, public_keys, hosts, ssh_config,"
                " environments, environment_files"
            ),
        ),
        ("session_slice", {"state": "absent"}, "state is absent but all of the following are missing: session_id"),
        ("session_claim", {**CLAIM, "nonce": None}, "missing required arguments: nonce"),
        ("session_check", {"session_id": SESSION_ID}, "missing required arguments: nonce"),
        ("session_image", {**IMAGE, "nonce": None}, "missing required arguments: nonce"),
        (
            "session_image",
            {**IMAGE, "reference": None},
            "parameters are required together: name, reference",
        ),
        (
            "session_image",
            {**IMAGE, "username": "reader"},
            "parameters are required together: username, password",
        ),
        ("session_overlay", {"plan": MADE}, "missing required arguments: nonce"),
    ],
)
def test_an_option_that_is_missing_is_named(
    module: str, args: dict[str, Any], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    given = {key: value for key, value in args.items() if value is not None}
    result = result_of(module, given, capsys)
    assert (result["failed"], result["msg"]) == (True, sentence)
