"""The program on an agent, asked outside of a task."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from ansible.errors import AnsibleActionFail, AnsibleConnectionFailure

from ansible_collections.backendai.cluster.plugins.plugin_utils.agent_program import AgentProgram

LOCAL = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}
TEXT = "{{ lookup('pipe', 'touch /tmp/proof') }}"


def render(value: Any) -> Any:
    return value.replace("{{ here }}", "/here") if isinstance(value, str) else value


def program(**variables: Any) -> AgentProgram:
    """Return the program on this machine; ``{{ here }}`` is the template of its variables."""
    return AgentProgram({**LOCAL, **variables}, render)


@pytest.mark.usefixtures("home")
def test_an_agent_gets_what_is_asked_as_it_is_and_its_own_places() -> None:
    asked = program(agent_state_path="{{ here }}/state")
    for _again in range(2):
        request = asked.call("echo", {"kernel": TEXT}, 7)["request"]
        assert request == {
            "phase": "echo",
            "options": {"kernel": TEXT, "docker_host": "unix:///var/run/docker.sock", "state_path": "/here/state"},
            "check_mode": False,
            "diff": False,
            "seconds": 7,
        }


def test_an_agent_installs_the_program_that_is_missing(home: Path) -> None:
    assert program().call("echo", {}, 7)["ran"].startswith(str(home))


@pytest.mark.usefixtures("home")
def test_what_goes_wrong_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(AnsibleActionFail, match=r"^/no/python does not run on this host: .*; install Python 3\.9"):
        program(ansible_python_interpreter="/no/python").call("echo", {}, 7)
    ssh = tmp_path / "ssh"
    ssh.write_text("#!/bin/sh\necho 'no route to host' >&2; exit 255\n")
    ssh.chmod(0o755)
    away = {"ansible_connection": "ssh", "ansible_ssh_executable": str(ssh), "inventory_hostname": "agent1"}
    with pytest.raises(AnsibleConnectionFailure, match="no route to host"):
        program(**away).call("echo", {}, 7)


@pytest.mark.usefixtures("home")
def test_an_agent_whose_python_would_be_discovered_runs_the_first_one_of_ansibles_list() -> None:
    names = {"ansible_interpreter_python_fallback": ["no-python", sys.executable]}
    assert program(ansible_python_interpreter="auto", **names).call("echo", {}, 7)["request"]["seconds"] == 7


def test_an_agent_may_have_a_python_of_its_own() -> None:
    assert program(agent_python="{{ here }}/venv/bin/python").command.startswith("/here/venv/bin/python -c ")
    assert program(agent_python="").command.startswith(f"{sys.executable} -c ")
