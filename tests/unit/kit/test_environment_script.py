"""The script of the kit that derives the environment: it follows the rules of the planner, after the user's script."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ansible_collections.backendai.cluster.plugins.module_utils._model.environment import (
    build_environment,
    interface_variables,
    session_environment,
)
from tests.unit.builders import REPOSITORY, plan

SCRIPT = (REPOSITORY / "roles/agent/files/kit/environment").read_text()
WRITTEN = "/var/lib/backendai/environment"
PERSONAL = ("HOME", "LOGNAME", "PWD", "SHELL", "TERM", "USER")
INTERFACES = interface_variables(plan({"agent1": 2, "agent2": 2}))
BASE = {"PATH": os.environ["PATH"], **dict.fromkeys(INTERFACES, "ib0")}

VALUES = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=6)
SETTINGS = st.fixed_dictionaries(
    {},
    optional={
        "MASTER_ADDR": VALUES,
        "MASTER_PORT": VALUES,
        "TF_CONFIG": VALUES,
        "BACKENDAI_DIST_MASTER_PORT": st.one_of(st.just(""), st.integers(1, 65535).map(str)),
        **dict.fromkeys(("http_proxy", "HTTPS_PROXY", "all_proxy", "no_proxy", "NO_PROXY"), VALUES),
        "base": VALUES,
        "IFS": VALUES,
    },
)


def run(tmp_path: Path, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """Run the script like user processes do; it writes to a file of the test."""
    script = SCRIPT.replace(WRITTEN, str(tmp_path / "environment"))
    return subprocess.run(["sh", "-c", script], env=environment, capture_output=True, text=True, check=False)


def written(tmp_path: Path, environment: dict[str, str]) -> dict[str, str]:
    """Return the environment of a shell that reads the written file and has no other variable."""
    done = run(tmp_path, environment)
    assert done.returncode == 0, done.stderr
    read = f". {tmp_path / 'environment'}; exec /usr/bin/env -0"
    printed = subprocess.run(["/bin/sh", "-c", read], env={}, capture_output=True, check=True).stdout.decode()
    seen = dict(entry.partition("=")[::2] for entry in printed.split("\0") if entry)
    return {key: value for key, value in seen.items() if key not in (*PERSONAL, "OLDPWD", "SHLVL", "_", "PS1")}


@settings(max_examples=60)
@given(asked=SETTINGS, rank=st.integers(0, 3))
def test_script_derives_the_same_variables_as_the_planner(
    tmp_path_factory: pytest.TempPathFactory, asked: dict[str, str], rank: int
) -> None:
    made = plan({"agent1": 2, "agent2": 2})
    session = session_environment(made, made.kernels[rank])
    expected = build_environment(BASE, {**asked, **session}, "")
    seen = written(tmp_path_factory.mktemp("container"), {**BASE, **asked, **session})
    assert {**seen, "IFS": ""} == {**expected, "IFS": ""}


def test_variables_that_name_the_interface_are_those_of_the_container_and_of_the_users_script(tmp_path: Path) -> None:
    made = plan({"agent1": 2})
    session = {**session_environment(made, made.kernels[0]), "PATH": os.environ["PATH"]}
    chosen = {"NCCL_SOCKET_IFNAME": "cluster0", "UCX_NET_DEVICES": "", "FI_TCP_IFACE": "ib0"}
    seen = written(tmp_path, {**session, **chosen})
    assert {name: seen[name] for name in INTERFACES if name in seen} == chosen


def test_session_of_one_container_has_no_derived_variables(tmp_path: Path) -> None:
    made = plan({"agent1": 1})
    session = {**BASE, **session_environment(made, made.kernels[0])}
    assert written(tmp_path, session) == session


@pytest.mark.parametrize("port", ["http", "0", "029500", "65536", "123456", "-1"])
def test_invalid_base_port_is_rejected_by_name(tmp_path: Path, port: str) -> None:
    made = plan({"agent1": 2})
    session = session_environment(made, made.kernels[0])
    done = run(tmp_path, {**BASE, **session, "BACKENDAI_DIST_MASTER_PORT": port})
    assert (done.returncode, done.stderr) == (1, f"BACKENDAI_DIST_MASTER_PORT: '{port}' is not a port.\n")
    assert not (tmp_path / "environment").exists()


def test_personal_variables_are_not_written_and_prompt_has_the_hostname(tmp_path: Path) -> None:
    made = plan({"agent1": 2})
    session = session_environment(made, made.kernels[0])
    mine = dict.fromkeys(PERSONAL, "root")
    assert run(tmp_path, {**BASE, **session, **mine}).returncode == 0
    names = [line.split("=")[0] for line in (tmp_path / "environment").read_text().splitlines()]
    assert not {f"export {name}" for name in PERSONAL} & set(names)
    assert names[-1] == "export PS1"
    assert run(tmp_path, {**BASE, **session, "PS1": "mine> "}).returncode == 0
    assert (tmp_path / "environment").read_text().count("PS1") == 1


def test_workers_have_their_rank_and_consecutive_ports(tmp_path: Path) -> None:
    made = plan({"agent1": 2})
    session = session_environment(made, made.kernels[1])
    seen = written(tmp_path, {**BASE, **session, "BACKENDAI_DIST_MASTER_PORT": "31000"})
    assert json.loads(seen["TF_CONFIG"]) == {
        "cluster": {"worker": ["main1:31000", "sub1:31001"]},
        "task": {"type": "worker", "index": 1},
    }
