"""Links to hosts according to their variables and the command line, with and without become."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from ansible import constants, context
from ansible.errors import AnsibleConnectionFailure, AnsibleError
from ansible.parsing.dataloader import DataLoader
from ansible.playbook.play_context import PlayContext
from ansible.utils.context_objects import CLIArgs
from ansible.utils.display import Display

from ansible_collections.backendai.cluster.plugins.plugin_utils import host_link
from ansible_collections.backendai.cluster.plugins.plugin_utils.host_link import (
    HostLink,
    InventoryHosts,
    Passwords,
    interpreter_of,
    typed_passwords,
)

LOCAL = {"ansible_connection": "local"}
ASKS = 'while [ "$1" != /bin/sh ]; do [ "$1" != -p ] || prompt=$2; shift; done; printf %s "$prompt" >&2'


def given(monkeypatch: pytest.MonkeyPatch, **arguments: Any) -> None:
    """Give Ansible's command line these arguments."""
    monkeypatch.setattr(context, "CLIARGS", CLIArgs(arguments))


def plain(value: Any) -> Any:
    return value


def program(folder: Path, name: str, script: str) -> str:
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return str(path)


def test_a_command_gets_its_data_and_gives_its_code_output_and_errors() -> None:
    link = HostLink(LOCAL)
    assert link.run("cat; echo oops >&2; exit 3", b"\x00data\r\n") == (3, b"\x00data\r\n", b"oops\n")
    assert link.run("echo again") == (0, b"again\n", b"")
    link.close()


def test_a_command_becomes_root_as_the_agent_says_and_its_data_arrives(tmp_path: Path) -> None:
    sudo = program(
        tmp_path, "sudo", f'echo "$@" > {tmp_path}/asked; while [ "$1" != /bin/sh ]; do shift; done; exec "$@"'
    )
    link = HostLink({**LOCAL, "ansible_become": "yes", "ansible_become_exe": sudo, "ansible_become_user": "operator"})
    assert link.run("cat; exit 4", b"data") == (4, b"data", b"")
    assert (tmp_path / "asked").read_text().startswith("-H -S -n -u operator /bin/sh -c echo BECOME-SUCCESS-")


def test_a_password_is_sent_and_is_on_no_command_line(tmp_path: Path) -> None:
    sudo = program(
        tmp_path,
        "sudo",
        f'echo "$@" > {tmp_path}/asked; {ASKS}; read -r word; echo "$word" > {tmp_path}/word; exec "$@"',
    )
    link = HostLink(
        {**LOCAL, "ansible_become": True, "ansible_become_exe": sudo, "ansible_become_user": "operator"}
        | {"ansible_become_password": "secret"}
    )
    code, output, _errors = link.run("cat", b"data")
    assert (code, output) == (0, b"data")
    assert (tmp_path / "word").read_text() == "secret\n"
    assert "secret" not in (tmp_path / "asked").read_text()


def test_become_is_skipped_for_the_login_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOGNAME", "root")
    sudo = program(tmp_path, "sudo", "exit 9")
    link = HostLink({**LOCAL, "ansible_become": True, "ansible_become_exe": sudo})
    assert link.run("echo hello") == (0, b"hello\n", b"")


def test_ssh_uses_the_hosts_variables_and_no_terminal_for_data(tmp_path: Path) -> None:
    ssh = program(tmp_path, "ssh", f'for word; do echo "$word"; done > {tmp_path}/asked; [ -t 0 ] || cat')
    link = HostLink(
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
    assert link.run("the command", b"data") == (0, b"data", b"")
    arguments = (tmp_path / "asked").read_text().splitlines()
    assert arguments[-2:] == ["192.0.2.11", "/bin/sh -c 'the command'"]
    expected = {'User="operator"', "Port=2222", 'IdentityFile="/keys/one"', "ProxyJump=door", "ConnectTimeout=7"}
    assert expected <= set(arguments)
    assert "-tt" not in arguments


def test_an_agent_that_cannot_be_reached_is_a_connection_failure(tmp_path: Path) -> None:
    ssh = program(tmp_path, "ssh", "echo no route >&2; exit 255")
    link = HostLink({"inventory_hostname": "agent1", "ansible_ssh_executable": ssh})
    with pytest.raises(AnsibleConnectionFailure, match="no route"):
        link.run("true")


@pytest.mark.parametrize("option", ["ansible_connection", "ansible_become_method"])
def test_a_plugin_that_is_not_there_is_named_with_the_option(option: str) -> None:
    with pytest.raises(AnsibleError, match=f"{option}: there is no (connection|become) plugin 'no.such.plugin'"):
        HostLink({**LOCAL, "ansible_become": True, option: "no.such.plugin"})


def test_the_variables_of_both_plugins_count_and_no_others() -> None:
    names = host_link.connection_variables("ssh", "sudo")
    assert {"ansible_host", "ansible_password", "ansible_ssh_common_args", "ansible_become_password"} <= names
    assert {"ansible_connection", "ansible_become", "ansible_become_method", "ansible_timeout"} <= names
    assert not {"ansible_python_interpreter", "agent_slots"} & names
    assert "ansible_host" not in host_link.connection_variables("local", "sudo")


@pytest.mark.parametrize(
    ("variables", "arguments", "seconds"),
    [
        ({}, {}, 10),
        ({"ansible_timeout": "7"}, {"timeout": 4}, 7),
        ({"ansible_timeout": 7, "ansible_ssh_timeout": 3}, {}, 3),
        ({}, {"timeout": 4}, 4),
    ],
)
def test_a_host_has_the_time_to_connect_that_its_variables_or_the_command_line_say(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    variables: dict[str, object],
    arguments: dict[str, object],
    seconds: int,
) -> None:
    given(monkeypatch, **arguments)
    ssh = program(tmp_path, "ssh", f'for word; do echo "$word"; done > {tmp_path}/asked')
    HostLink({**variables, "ansible_ssh_executable": ssh, "ansible_host": "192.0.2.11"}).run("true")
    assert f"ConnectTimeout={seconds}" in (tmp_path / "asked").read_text().splitlines()


def test_the_command_line_says_who_logs_in_and_whether_to_become_root(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given(monkeypatch, remote_user="operator", become=True, become_method="sudo", become_user="chief", connection="ssh")
    ssh = program(tmp_path, "ssh", f'for word; do echo "$word"; done > {tmp_path}/asked; echo BECOME-SUCCESS-x')
    settings = {"ansible_ssh_executable": ssh, "ansible_host": "192.0.2.11"}
    HostLink(settings).run("true", b"")
    arguments = (tmp_path / "asked").read_text().splitlines()
    assert 'User="operator"' in arguments
    assert "sudo -H -S -n -u chief /bin/sh" in " ".join(arguments[-1].split())
    HostLink({**settings, "ansible_user": "root", "ansible_become": False}).run("true", b"")
    arguments = (tmp_path / "asked").read_text().splitlines()
    assert ('User="root"' in arguments, "sudo" in arguments[-1]) == (True, False)


def test_a_password_that_was_typed_is_sent(tmp_path: Path) -> None:
    sudo = program(tmp_path, "sudo", f'{ASKS}; read -r word; echo "$word" > {tmp_path}/word; exec "$@"')
    settings = {**LOCAL, "ansible_become": True, "ansible_become_exe": sudo, "ansible_become_user": "operator"}
    assert HostLink(settings, Passwords(become="typed")).run("cat", b"data")[:2] == (0, b"data")
    assert (tmp_path / "word").read_text() == "typed\n"
    HostLink({**settings, "ansible_become_password": "own"}, Passwords(become="typed")).run("cat", b"data")
    assert (tmp_path / "word").read_text() == "own\n"


def test_a_wrong_become_password_is_an_error_of_the_host_that_does_not_quote_it(tmp_path: Path) -> None:
    refuses = 'read -r word; echo "Sorry, try again." >&2; printf %s "$prompt" >&2; read -r word; exit 1'
    sudo = program(tmp_path, "sudo", f"{ASKS}; {refuses}")
    link = HostLink(
        {**LOCAL, "ansible_become": True, "ansible_become_exe": sudo, "ansible_become_user": "operator"}
        | {"ansible_become_password": "secret-word"}
    )
    try:
        code, _output, errors = link.run("cat", b"data")
    except AnsibleError as error:
        said = str(error)
        assert "password" in said.lower()
    else:
        # Before ansible-core 2.19 the local connection sees no second prompt.
        said = errors.decode()
        assert (code, "Sorry, try again." in said) == (1, True)
    assert "secret-word" not in said


@pytest.mark.parametrize(
    "settings",
    [{"ansible_pipelining": False}, {"ansible_become": True, "ansible_become_method": "su"}],
    ids=["pipelining is off", "su"],
)
def test_data_goes_through_a_file_of_its_own_where_a_command_has_no_input(
    tmp_path: Path, settings: dict[str, Any]
) -> None:
    su = program(tmp_path, "su", 'while [ "$1" != -c ]; do shift; done; exec /bin/sh -c "$2"')
    folder = tmp_path / "remote"
    link = HostLink(
        {
            **LOCAL,
            "ansible_remote_tmp": str(folder),
            "ansible_become_exe": su,
            "ansible_become_user": "chief",
            **settings,
        }
    )
    code, output, _errors = link.run("cat; readlink /proc/self/fd/0; exit 5", b"some\ndata\n")
    *data, path = output.decode().split()
    assert (code, data) == (5, ["some", "data"])
    assert path.startswith(f"{folder}/backendai-")
    assert list(folder.iterdir()) == []


def test_a_become_plugin_that_does_not_say_whether_it_leaves_an_input_does_so_unless_it_is_su() -> None:
    class Older:
        def __init__(self, name: str) -> None:
            self.name = name

    plugins: list[Any] = [None, Older("sudo"), Older("su"), Older("community.general.doas")]
    assert [host_link.leaves_input(plugin) for plugin in plugins] == [True, True, False, True]


def test_a_host_without_room_for_that_file_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    link = HostLink({**LOCAL, "ansible_pipelining": False, "ansible_remote_tmp": str(tmp_path / "file" / "below")})
    with pytest.raises(AnsibleError, match="no temporary folder can be made below ansible_remote_tmp on this host: "):
        link.run("cat", b"data")


def test_ssh_leaves_the_shared_connection_after_a_command_was_given_up(tmp_path: Path) -> None:
    ssh = program(tmp_path, "ssh", f'echo "$@" >> {tmp_path}/asked')
    settings = {"ansible_ssh_executable": ssh, "ansible_host": "192.0.2.11"}
    HostLink(settings).run("first")
    renewed = HostLink(settings, renewed=True)
    renewed.run("second")
    renewed.run("third")
    asked = [line for line in (tmp_path / "asked").read_text().splitlines() if line]
    assert [word for line in asked for word in ("first", "-O stop", "second", "third") if word in line] == [
        "first",
        "-O stop",
        "second",
        "third",
    ]


def test_what_hosts_send_is_not_shown_at_vvv_and_the_reason_of_a_failure_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given(monkeypatch, verbosity=4)
    shown: list[str] = []
    monkeypatch.setattr(Display, "vvv", lambda _self, text, *_where, **_how: shown.append(str(text)))
    ssh = program(tmp_path, "ssh", "cat; echo secret-reply")
    HostLink({"ansible_ssh_executable": ssh, "ansible_host": "192.0.2.11"}).run("cat", b"secret-request")
    assert shown
    assert not [text for text in shown if "secret" in text]
    away = program(tmp_path, "away", "echo no route to host >&2; exit 255")
    with pytest.raises(AnsibleConnectionFailure, match="no route to host"):
        HostLink({"ansible_ssh_executable": away, "ansible_host": "192.0.2.11"}).run("cat", b"data")


# ---- the Python of a host


def first_of(command: str, path: str) -> str:
    """Return what the shell command of a Python prints, with these folders in PATH."""
    line = ["/bin/sh", "-c", f"{command} -c 'import sys; print(sys.argv)' given"]
    return subprocess.run(line, env={"PATH": path}, capture_output=True, text=True, check=False).stdout.strip()


@pytest.mark.parametrize(
    ("variables", "python"),
    [
        ({"agent_python": "/OPT/bin/python", "ansible_python_interpreter": "/x"}, "/opt/bin/python"),
        ({"ansible_python_interpreter": "/USR/bin/python3.13"}, "/usr/bin/python3.13"),
        (
            {"ansible_python_interpreter": "auto", "ansible_facts": {host_link.DISCOVERED: "/usr/bin/python3.9"}},
            "/usr/bin/python3.9",
        ),
    ],
)
def test_a_host_has_its_own_python_or_the_one_that_was_discovered(variables: dict[str, Any], python: str) -> None:
    def lower(value: Any) -> Any:
        return value.lower() if isinstance(value, str) else value

    assert interpreter_of(variables, lower) == (python, python)


def test_the_shell_of_a_host_finds_the_first_python_of_ansibles_list(tmp_path: Path) -> None:
    program(tmp_path, "python-b", 'echo b "$@"')
    program(tmp_path, "python-c", 'echo c "$@"')
    names = ["python-a", "python-b", "python-c"]
    variables = {"ansible_python_interpreter": "auto_silent", "ansible_interpreter_python_fallback": names}
    found = interpreter_of(variables, plain)
    assert found.name == "/usr/bin/python3"
    assert first_of(found.command, str(tmp_path)) == "b -c import sys; print(sys.argv) given"
    nothing = interpreter_of({**variables, "ansible_interpreter_python_fallback": ["no-python"]}, plain)
    assert first_of(nothing.command, "/nothing") == "['-c', 'given']"


# ---- the hosts of an inventory


class Variables(dict[str, Mapping[str, Any]]):
    """The variables of hosts, as Ansible hands them to a task."""

    def raw_get(self, name: str) -> Mapping[str, Any]:
        return self[name]


@pytest.fixture
def hosts() -> InventoryHosts:
    names = {f"agent{number}": {"ansible_host": f"192.0.2.{number}", "gate": "10.0.0.1"} for number in range(1, 5)}
    variables = {"hostvars": Variables(names), "groups": {"all": list(names), "agents": ["agent1", "agent2", "agent3"]}}
    return InventoryHosts(variables, DataLoader())


def test_hosts_are_found_by_a_pattern(hosts: InventoryHosts) -> None:
    assert hosts.matching("agents") == ["agent1", "agent2", "agent3"]
    assert hosts.matching("agents:!agent2") == ["agent1", "agent3"]
    assert ("agent4" in hosts, "agent5" in hosts) == (True, False)


@pytest.mark.parametrize(
    ("limit", "shown"),
    [
        (None, ["agent1", "agent2"]),
        ("localhost,agent2", ["agent2"]),
        ("all:!agent2", ["agent1"]),
        ("~agent[13]", ["agent1"]),
        ("@FILE", ["agent2"]),
    ],
)
def test_a_limit_hides_hosts(
    hosts: InventoryHosts, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, limit: str | None, shown: list[str]
) -> None:
    (tmp_path / "failed").write_text("agent2\nagent4\n")
    given(monkeypatch, subset=limit and limit.replace("FILE", str(tmp_path / "failed")))
    assert hosts.within_limit(["agent1", "agent2"]) == shown


def test_a_value_is_rendered_with_the_variables_of_its_own_host(hosts: InventoryHosts) -> None:
    variables, template = hosts.variables("agent1")
    assert variables["ansible_host"] == "192.0.2.1"
    assert template(trusted("-o ProxyJump={{ gate }}")) == "-o ProxyJump=10.0.0.1"
    assert template(trusted("{{ hostvars.agent2.ansible_host }}")) == "192.0.2.2"


def trusted(text: str) -> str:
    """Return a text that Ansible takes as a template, as those of an inventory."""
    try:
        from ansible.template import trust_as_template
    except ImportError:
        return text
    made: str = trust_as_template(text)
    return made


# ---- passwords


@pytest.mark.parametrize(
    ("arguments", "own", "passwords"),
    [
        ({"ask_pass": True, "become_ask_pass": True}, {}, ("typed-k", "typed-K")),
        ({"connection_password_file": "x", "become_password_file": "x"}, {}, ("typed-k", "typed-K")),
        ({}, {}, ("", "")),
        ({"ask_pass": True, "become_ask_pass": True}, {"ansible_password": 1, "ansible_become_password": 1}, ("", "")),
    ],
    ids=["typed", "from files", "not asked for", "those of the control node"],
)
def test_only_passwords_that_were_typed_go_to_hosts(
    monkeypatch: pytest.MonkeyPatch, arguments: dict[str, Any], own: dict[str, Any], passwords: tuple[str, str]
) -> None:
    given(monkeypatch, **arguments)
    made = PlayContext(passwords={"conn_pass": "typed-k", "become_pass": "typed-K"})
    assert typed_passwords(made, own) == passwords


def test_as_many_hosts_at_a_time_as_the_command_line_says(monkeypatch: pytest.MonkeyPatch) -> None:
    given(monkeypatch, forks=3)
    assert host_link.forks() == 3
    given(monkeypatch)
    assert host_link.forks() == constants.DEFAULT_FORKS
