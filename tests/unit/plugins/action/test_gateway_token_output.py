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
    route: dict[str, Any] = {"version": 3, "id": ONE, "name": "train-llm", "apps": [], "ssh": None, "ssh_port": None}
    (created / "routes" / f"{ONE}.json").write_text(json.dumps(route))
    return created


def ansible(
    tmp_path: Path, *arguments: str, ssh: str = HERE, pipelining: bool = True
) -> subprocess.CompletedProcess[str]:
    """Run a module of the collection with the SSH plugin."""
    shim = tmp_path / "ssh"
    shim.write_text(ssh)
    shim.chmod(0o755)
    variables = {
        "ansible_ssh_executable": str(shim),
        "ansible_pipelining": pipelining,
        "ansible_python_interpreter": sys.executable,
        "ansible_remote_tmp": str(tmp_path / "remote"),
    }
    command = [str(Path(sys.executable).with_name("ansible")), "all", "-i", "gateway1,", "-e", json.dumps(variables)]
    environment = {**os.environ, "ANSIBLE_LOCAL_TEMP": str(tmp_path / "local"), "ANSIBLE_NOCOLOR": "1"}
    return subprocess.run(
        [*command, *arguments], capture_output=True, text=True, check=False, cwd=REPOSITORY, env=environment
    )


def test_token_is_not_in_the_output(folder: Path, tmp_path: Path) -> None:
    arguments = f"name=train-llm path={tmp_path}/my.token state_path={folder}"
    run = ansible(tmp_path, "-vvvvv", "--diff", "-m", "backendai.cluster.gateway_token", "-a", arguments)
    token = (tmp_path / "my.token").read_text().strip()
    assert run.returncode == 0, run.stdout
    assert token.count(".") == 2
    assert "stdout and stderr censored due to no log" in run.stdout
    assert not [part for part in token.split(".") if part in run.stdout + run.stderr]


def test_output_of_other_tasks_is_printed(folder: Path, tmp_path: Path) -> None:
    run = ansible(tmp_path, "-vvv", "-m", "backendai.cluster.gateway_token", "-a", f"state=ready state_path={folder}")
    assert run.returncode == 0, run.stdout
    assert "stdout and stderr censored" not in run.stdout


@pytest.mark.parametrize("pipelining", [True, False])
def test_connection_error_of_the_gateway_is_printed(tmp_path: Path, pipelining: bool) -> None:
    arguments = f"name=train-llm path={tmp_path}/my.token state_path={tmp_path}"
    run = ansible(
        tmp_path, "-m", "backendai.cluster.gateway_token", "-a", arguments, ssh=NOWHERE, pipelining=pipelining
    )
    assert "UNREACHABLE!" in run.stdout + run.stderr
    assert "No route to host" in run.stdout + run.stderr
    assert not (tmp_path / "my.token").exists()
