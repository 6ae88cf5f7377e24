"""Containers as hosts: the command for agents, what runs there, and host names."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.backendai.cluster.plugins.plugin_utils import session_hosts
from ansible_collections.backendai.cluster.plugins.plugin_utils.session_hosts import SessionHost
from tests.unit.builders import SESSION_ID, plan

OTHER_ID = "ffffffff-3c0e-4f5e-9d0a-0f3c1d2e4b6a"


MAIN1 = "a" * 64


def recorded(hostname: str, container_id: str, session_id: str = SESSION_ID) -> str:
    """Return the line about the recorded id of a container."""
    return f"/var/lib/backendai/sessions/{session_id}/containers/{hostname}:{container_id}\n"


def host(**changes: Any) -> SessionHost:
    (first,) = session_hosts.find_hosts("agent1", f"{MAIN1}\n{recorded('main1', MAIN1)}", [plan()])
    return replace(first, **changes)


def docker(folder: Path, script: str) -> None:
    """Install a Docker client with that script in the PATH."""
    (folder / "docker").write_text(f"#!/bin/sh\n{script}\n")
    (folder / "docker").chmod(0o755)


@pytest.fixture(autouse=True)
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Install a client that records its arguments."""
    docker(tmp_path, 'echo "$@" > "${0}.asked"; echo ' + MAIN1)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")


def run_command(state_path: str = "/nothing", seconds: int = 5) -> subprocess.CompletedProcess[str]:
    question = session_hosts.list_command("unix:///its.sock", state_path, seconds)
    return subprocess.run(["/bin/sh", "-c", question], capture_output=True, text=True, check=False)


# ---- the command


def test_the_command_lists_running_containers(tmp_path: Path) -> None:
    for name in ("main1", "sub1"):
        path = tmp_path / "a state" / "sessions" / SESSION_ID / "containers" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(MAIN1 if name == "main1" else "another")
    assert run_command().stdout == f"{MAIN1}\n"
    completed = run_command(str(tmp_path / "a state"))
    assert (completed.returncode, completed.stderr) == (0, "")
    hosts = session_hosts.find_hosts("agent1", completed.stdout, [plan()])
    assert [container.container for container in hosts] == ["backendai-train-llm-main1"]
    label = "label=ai.backend.owner=backendai.cluster"
    output = (tmp_path / "docker.asked").read_text()
    assert output == f"--host unix:///its.sock ps --no-trunc --filter {label} --format {{{{.ID}}}}\n"


def test_an_engine_error_fails_the_whole_listing(tmp_path: Path) -> None:
    docker(tmp_path, "echo no engine >&2; exit 3")
    completed = run_command()
    assert (completed.returncode, completed.stderr) == (3, "no engine\n")


def test_an_engine_that_hangs_is_given_up(tmp_path: Path) -> None:
    docker(tmp_path, "exec sleep 60")
    completed = run_command(seconds=1)
    reason = session_hosts.error_reason(completed.returncode, completed.stderr, 1)
    assert (
        session_hosts.unavailable_warning("agent1", reason) == "agent1 is left out: it did not answer within 1 seconds."
    )


def test_an_agent_that_fails_without_a_word_is_left_out_with_the_exit_code() -> None:
    assert session_hosts.error_reason(9, "", 5) == "the command that lists its sessions ended with 9"


# ---- the output


def test_only_running_containers_of_the_plan_on_this_agent_are_hosts() -> None:
    running = "".join(
        [
            f"{MAIN1}\nb\nc\nd\n",
            recorded("main1", MAIN1),
            recorded("sub1", "stopped"),
            recorded("sub2", "b"),
            recorded("sub1", "c", OTHER_ID),
        ]
    )
    (only,) = session_hosts.find_hosts("agent1", running, [plan()])
    assert only == SessionHost(
        session_id=SESSION_ID,
        session_name="train-llm",
        role="main",
        index=1,
        rank=0,
        hostname="main1",
        agent="agent1",
        container="backendai-train-llm-main1",
        address=plan().kernels[0].address,
    )
    assert session_hosts.find_hosts("agent3", running, [plan()]) == []


# ---- host names


def test_a_host_has_its_name_and_groups() -> None:
    container = host(agent="agent-1.example")
    assert session_hosts.assign_host_names([container], []) == ({"main1.train-llm": container}, [])
    assert container.groups == ("session_train_llm", "role_main", "agent_agent_1_example")
    assert container.variables == {
        "backendai_session_id": SESSION_ID,
        "backendai_session_name": "train-llm",
        "backendai_role": "main",
        "backendai_index": 1,
        "backendai_rank": 0,
        "backendai_agent": "agent-1.example",
        "backendai_container": "backendai-train-llm-main1",
        "backendai_address": container.address,
    }


def test_hosts_of_sessions_of_the_same_name_have_id_suffixes() -> None:
    first, other = host(), host(session_id=OTHER_ID, agent="agent2")
    assigned, warnings = session_hosts.assign_host_names([other, first], [])
    assert assigned == {"main1.train-llm.5f0c6a52": first, "main1.train-llm.ffffffff": other}
    assert warnings == [
        "2 sessions are called train-llm: the names of their hosts end with the beginnings of their ids."
    ]


def test_a_host_that_is_there_already_is_never_replaced() -> None:
    assigned, warnings = session_hosts.assign_host_names([host()], ["main1.train-llm"])
    assert assigned == {}
    assert warnings == [
        "agent1: the container backendai-train-llm-main1 is left out: the inventory already has a host main1.train-llm."
    ]


def test_a_container_that_two_agents_name_is_the_first_ones() -> None:
    assigned, warnings = session_hosts.assign_host_names([host(agent="agent2"), host()], [])
    assert assigned == {"main1.train-llm": host()}
    assert len(warnings) == 1


def test_settings_of_an_agent_are_referred_to_and_not_copied() -> None:
    assert session_hosts.variable_references("agent's", ["ansible_password"]) == {
        "ansible_password": """{{ hostvars["agent's"]['ansible_password'] }}"""
    }
