"""Tokens are not in the output of Ansible at any verbosity, with the real SSH plugin."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.backendai.cluster.plugins.module_utils._gateway.token import make_token_key
from tests.unit.builders import REPOSITORY
from tests.unit.gateway import ONE, provisioned

# In place of ssh: one that runs the command, its last argument, on this host, and one that reaches nobody.
HERE = """#!/bin/sh
for command; do :; done
exec sh -c "$command"
"""
NOWHERE = """#!/bin/sh
echo "connect to host gateway1 port 22: No route to host" >&2
exit 255
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return the folder of a gateway with the route of one session."""
    created = provisioned(tmp_path / "state")
    make_token_key(created / "token.key")
    app = {"name": "web", "protocol": "http", "endpoint": {"address": "192.0.2.11", "port": 30001}}
    route: dict[str, Any] = {"version": 3, "id": ONE, "name": "train-llm", "apps": [app], "ssh": None, "ssh_port": None}
    (created / "routes" / f"{ONE}.json").write_text(json.dumps(route))
    return created


def ansible(
    tmp_path: Path, module: str, arguments: str, *words: str, ssh: str = HERE, pipelining: bool = True
) -> subprocess.CompletedProcess[str]:
    """Run a module of the collection on this host, which reaches gateway1 with the SSH plugin."""
    shim = tmp_path / "ssh"
    shim.write_text(ssh)
    shim.chmod(0o755)
    variables = {
        "ansible_ssh_executable": str(shim),
        "ansible_pipelining": pipelining,
        "ansible_python_interpreter": sys.executable,
        "ansible_remote_tmp": str(tmp_path / "remote"),
        "gateway_group": "all",
        "gateway_state_path": str(tmp_path / "state"),
    }
    program = str(Path(sys.executable).with_name("ansible"))
    command = [program, "localhost", "-i", "gateway1,", "-e", json.dumps(variables)]
    environment = {**os.environ, "ANSIBLE_LOCAL_TEMP": str(tmp_path / "local"), "ANSIBLE_NOCOLOR": "1"}
    return subprocess.run(
        [*command, "-m", f"backendai.cluster.{module}", "-a", arguments, *words],
        capture_output=True,
        text=True,
        check=False,
        cwd=REPOSITORY,
        env=environment,
    )


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("pipelining", [True, False])
def test_token_is_not_in_the_output(tmp_path: Path, pipelining: bool) -> None:
    arguments = f"name=train-llm path={tmp_path}/my.token"
    run = ansible(tmp_path, "session_token", arguments, "-vvvvv", "--diff", pipelining=pipelining)
    assert run.returncode == 0, run.stdout + run.stderr
    token = (tmp_path / "my.token").read_text().strip()
    assert token.count(".") == 2
    assert not [part for part in token.split(".") if part in run.stdout + run.stderr]


@pytest.mark.usefixtures("folder")
def test_token_is_in_the_links_for_people(tmp_path: Path) -> None:
    run = ansible(tmp_path, "session_token", f"name=train-llm path={tmp_path}/my.token format=text")
    assert run.returncode == 0, run.stdout + run.stderr
    token = (tmp_path / "my.token").read_text().strip()
    assert f"The token for session train-llm is in {tmp_path}/my.token." in run.stdout
    assert f"https://train-llm--web.apps.example.org/?token={token}" in run.stdout


@pytest.mark.parametrize("pipelining", [True, False])
def test_connection_error_of_the_gateway_is_printed(tmp_path: Path, pipelining: bool) -> None:
    arguments = f"name=train-llm path={tmp_path}/my.token"
    run = ansible(tmp_path, "session_token", arguments, ssh=NOWHERE, pipelining=pipelining)
    assert run.returncode == 2
    assert "gateway1 is unavailable: " in run.stdout + run.stderr
    assert "No route to host" in run.stdout + run.stderr
    assert not (tmp_path / "my.token").exists()
