"""Connections to agents according to their variables, with and without become."""

from __future__ import annotations

from pathlib import Path

import pytest
from ansible.errors import AnsibleConnectionFailure, AnsibleError

from ansible_collections.backendai.cluster.plugins.plugin_utils import agent_connection
from ansible_collections.backendai.cluster.plugins.plugin_utils.agent_connection import AgentConnection

LOCAL = {"ansible_connection": "local"}


def program(folder: Path, name: str, script: str) -> str:
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return str(path)


def test_a_command_gets_its_data_and_gives_its_code_output_and_errors() -> None:
    connection = AgentConnection(LOCAL)
    assert connection.run("cat; echo oops >&2; exit 3", b"\x00data\r\n") == (3, b"\x00data\r\n", b"oops\n")
    assert connection.run("echo again") == (0, b"again\n", b"")
    connection.close()


def test_a_command_becomes_root_as_the_agent_says_and_its_data_arrives(tmp_path: Path) -> None:
    sudo = program(
        tmp_path, "sudo", f'echo "$@" > {tmp_path}/asked; while [ "$1" != /bin/sh ]; do shift; done; exec "$@"'
    )
    connection = AgentConnection(
        {**LOCAL, "ansible_become": "yes", "ansible_become_exe": sudo, "ansible_become_user": "operator"}
    )
    assert connection.run("cat; exit 4", b"data") == (4, b"data", b"")
    assert (tmp_path / "asked").read_text().startswith("-H -S -n -u operator /bin/sh -c echo BECOME-SUCCESS-")


def test_a_password_is_sent_and_is_on_no_command_line(tmp_path: Path) -> None:
    asks = 'while [ "$1" != /bin/sh ]; do [ "$1" != -p ] || prompt=$2; shift; done; printf %s "$prompt" >&2'
    sudo = program(
        tmp_path,
        "sudo",
        f'echo "$@" > {tmp_path}/asked; {asks}; read -r word; echo "$word" > {tmp_path}/word; exec "$@"',
    )
    connection = AgentConnection(
        {**LOCAL, "ansible_become": True, "ansible_become_exe": sudo, "ansible_become_user": "operator"}
        | {"ansible_become_password": "secret"}
    )
    code, output, _errors = connection.run("cat", b"data")
    assert (code, output) == (0, b"data")
    assert (tmp_path / "word").read_text() == "secret\n"
    assert "secret" not in (tmp_path / "asked").read_text()


def test_become_is_skipped_for_the_login_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOGNAME", "root")
    sudo = program(tmp_path, "sudo", "exit 9")
    connection = AgentConnection({**LOCAL, "ansible_become": True, "ansible_become_exe": sudo})
    assert connection.run("echo hello") == (0, b"hello\n", b"")


def test_ssh_uses_the_agents_variables_and_no_terminal(tmp_path: Path) -> None:
    ssh = program(tmp_path, "ssh", f'for word; do echo "$word"; done > {tmp_path}/asked; [ -t 0 ] || cat')
    connection = AgentConnection(
        {
            "ansible_connection": "ssh",
            "inventory_hostname": "agent1",
            "ansible_host": "192.0.2.11",
            "ansible_port": 2222,
            "ansible_user": "operator",
            "ansible_private_key_file": "/keys/one",
            "ansible_ssh_common_args": "-o ProxyJump=door",
            "ansible_ssh_executable": ssh,
            "ansible_ssh_use_tty": True,
            "ansible_timeout": 7,
        }
    )
    assert connection.run("the command", b"data") == (0, b"data", b"")
    arguments = (tmp_path / "asked").read_text().splitlines()
    assert arguments[-2:] == ["192.0.2.11", "the command"]
    expected = {'User="operator"', "Port=2222", 'IdentityFile="/keys/one"', "ProxyJump=door", "ConnectTimeout=7"}
    assert expected <= set(arguments)
    connection.run("no data")
    assert "-tt" not in (tmp_path / "asked").read_text().splitlines()


def test_an_agent_that_cannot_be_reached_is_a_connection_failure(tmp_path: Path) -> None:
    ssh = program(tmp_path, "ssh", "echo no route >&2; exit 255")
    connection = AgentConnection({"inventory_hostname": "agent1", "ansible_ssh_executable": ssh})
    with pytest.raises(AnsibleConnectionFailure, match="no route"):
        connection.run("true")


@pytest.mark.parametrize("option", ["ansible_connection", "ansible_become_method"])
def test_a_plugin_that_is_not_there_is_named_with_the_option(option: str) -> None:
    with pytest.raises(AnsibleError, match=f"{option}: there is no (connection|become) plugin 'no.such.plugin'"):
        AgentConnection({**LOCAL, "ansible_become": True, option: "no.such.plugin"})


def test_the_variables_of_both_plugins_count_and_no_others() -> None:
    names = agent_connection.connection_variables("ssh", "sudo")
    assert {"ansible_host", "ansible_password", "ansible_ssh_common_args", "ansible_become_password"} <= names
    assert {"ansible_connection", "ansible_become", "ansible_become_method", "ansible_timeout"} <= names
    assert not {"ansible_python_interpreter", "agent_slots"} & names
    assert "ansible_host" not in agent_connection.connection_variables("local", "sudo")


@pytest.mark.parametrize(
    ("variables", "seconds"),
    [({}, 10), ({"ansible_timeout": "7"}, 7), ({"ansible_timeout": 7, "ansible_ssh_timeout": 3}, 3)],
)
def test_the_time_that_an_agent_has_is_that_of_its_connection(variables: dict[str, object], seconds: int) -> None:
    assert agent_connection.timeout_of(variables) == seconds
