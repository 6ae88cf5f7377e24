"""Containers as hosts: the command for agents, the parser of its output, and host names."""

from __future__ import annotations

import json
import subprocess
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.backendai.cluster.plugins.module_utils._host.store import Store
from ansible_collections.backendai.cluster.plugins.plugin_utils import session_hosts
from ansible_collections.backendai.cluster.plugins.plugin_utils.session_hosts import SessionHost
from tests.unit.builders import SESSION_ID, held, plan

OTHER_ID = "ffffffff-3c0e-4f5e-9d0a-0f3c1d2e4b6a"


def line(agent: str = "agent1", **changes: Any) -> str:
    """Return the line that an agent prints for the session."""
    of = replace(held(plan(), agent), expires_at=None, **changes)
    return json.dumps({**asdict(of), "plan": of.plan.to_dict()})


def host(**changes: Any) -> SessionHost:
    (first, *_others), _warnings = session_hosts.parse_listing("agent1", f"{line()}\nbackendai-train-llm-main1\n")
    return replace(first, **changes)


def docker(folder: Path, script: str) -> None:
    """Install a Docker client with that script in the PATH."""
    (folder / "docker").write_text(f"#!/bin/sh\n{script}\n")
    (folder / "docker").chmod(0o755)


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the state of an agent with one session, and a client that records its arguments."""
    folder = tmp_path / "its state"
    (folder / "sessions").mkdir(parents=True)
    Store(str(folder)).save(replace(held(plan()), expires_at=None))
    docker(tmp_path, 'echo "$@" > "${0}.asked"; echo backendai-train-llm-main1')
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    return folder


def run_command(state: Path, seconds: int = 5) -> subprocess.CompletedProcess[str]:
    question = session_hosts.list_command(str(state), "unix:///its.sock", seconds)
    return subprocess.run(["/bin/sh", "-c", question], capture_output=True, text=True, check=False)


# ---- the command


def test_the_command_lists_sessions_and_running_containers(state: Path, tmp_path: Path) -> None:
    completed = run_command(state)
    assert (completed.returncode, completed.stderr) == (0, "")
    hosts, warnings = session_hosts.parse_listing("agent1", completed.stdout)
    assert [container.container for container in hosts] == ["backendai-train-llm-main1"]
    assert warnings == []
    label = "label=ai.backend.owner=backendai.cluster"
    output = (tmp_path / "docker.asked").read_text()
    assert output == f"--host unix:///its.sock ps --filter {label} --format {{{{.Names}}}}\n"


def test_an_agent_without_sessions_prints_none(state: Path) -> None:
    for path in sorted((state / "sessions").rglob("*"), reverse=True):
        path.unlink() if path.is_file() else path.rmdir()
    assert run_command(state).stdout == "backendai-train-llm-main1\n"


def test_an_agent_that_is_not_provisioned_says_what_to_do(tmp_path: Path) -> None:
    completed = run_command(tmp_path / "nowhere")
    assert completed.returncode == 1
    assert completed.stderr == (
        f"{tmp_path}/nowhere/sessions cannot be entered: run backendai.cluster.provision_agents, or reach the agent as"
        " root\n"
    )
    assert session_hosts.unavailable_warning("agent1", session_hosts.error_reason(1, completed.stderr, 5)) == (
        f"agent1 is left out: {completed.stderr.strip()}."
    )


def test_an_engine_error_fails_the_whole_listing(state: Path, tmp_path: Path) -> None:
    docker(tmp_path, "echo no engine >&2; exit 3")
    completed = run_command(state)
    assert (completed.returncode, completed.stderr) == (3, "no engine\n")


def test_an_engine_that_hangs_is_given_up(state: Path, tmp_path: Path) -> None:
    docker(tmp_path, "exec sleep 60")
    completed = run_command(state, seconds=1)
    reason = session_hosts.error_reason(completed.returncode, completed.stderr, 1)
    assert (
        session_hosts.unavailable_warning("agent1", reason) == "agent1 is left out: it did not answer within 1 seconds."
    )


def test_an_agent_that_fails_without_a_word_is_left_out_with_the_exit_code() -> None:
    assert session_hosts.error_reason(9, "", 5) == "the command that lists its sessions ended with 9"


# ---- the output


def test_only_running_containers_of_this_agent_are_hosts() -> None:
    running = "backendai-train-llm-main1\nbackendai-train-llm-sub2\nanother\n"
    hosts, warnings = session_hosts.parse_listing("first", f"{line()}\n{running}")
    assert warnings == []
    (only,) = hosts
    assert only == SessionHost(
        session_id=SESSION_ID,
        session_name="train-llm",
        role="main",
        index=1,
        rank=0,
        hostname="main1",
        agent="first",
        container="backendai-train-llm-main1",
        address=plan().kernels[0].address,
    )


def test_a_session_that_is_not_committed_has_no_hosts() -> None:
    of = held(plan(), expires_at=1.0)
    text = json.dumps({**asdict(of), "version": 3, "plan": of.plan.to_dict()})
    assert session_hosts.parse_listing("agent1", f"{text}\nbackendai-train-llm-main1") == ([], [])


@pytest.mark.parametrize("damaged", ["{", "{}", '{"plan": 1}', line().replace("train-llm", "{{ 1 }}")])
def test_an_unreadable_session_is_a_warning_and_hides_no_other(damaged: str) -> None:
    hosts, warnings = session_hosts.parse_listing("agent1", f"{damaged}\n{line()}\nbackendai-train-llm-main1")
    assert [container.hostname for container in hosts] == ["main1"]
    assert warnings == ["agent1: a stored session cannot be read, so its containers are left out."]


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
