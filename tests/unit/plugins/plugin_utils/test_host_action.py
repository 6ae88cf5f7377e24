"""Requests to the program on a host, and its installation."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from ansible import constants
from ansible.errors import AnsibleActionFail, AnsibleConnectionFailure

from ansible_collections.backendai.cluster.plugins.plugin_utils import host_program
from ansible_collections.backendai.cluster.plugins.plugin_utils.host_action import HostAction
from tests.unit.connection import Answer, Become, Sent, Way

OPTIONS = {"name": "train-llm", "password": "hunter2", "text": "é\n\t"}


def ask(way: Way, variables: dict[str, Any] | None = None, **task: Any) -> dict[str, Any]:
    """Return the result of an action that calls the program on the host."""
    return way.action(OPTIONS, **task).run(task_vars=variables or {})


def test_what_all_workers_send_is_read_before_ansible_forks_them() -> None:
    module = HostAction.__module__
    line = f"import {module} as action; print(action.host_program.archive.cache_info().currsize)"
    search = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    process = subprocess.run([sys.executable, "-c", line], env=search, capture_output=True, text=True, check=True)
    assert process.stdout.strip() == "1"


def fails(_sent: Sent) -> Answer:
    return 1, b"", b"Killed\n"


def is_cut(_sent: Sent) -> Answer:
    raise AnsibleConnectionFailure("the connection was closed")


# ---- the program


@pytest.mark.parametrize("diff", [False, True])
def test_program_gets_the_request(way: Way, diff: bool) -> None:
    request = {"phase": "echo", "options": OPTIONS, "check_mode": False, "diff": diff, "seconds": 7}
    assert ask(way, diff=diff)["request"] == request


def test_program_that_is_missing_is_sent_once(way: Way, home: Path) -> None:
    first, again = ask(way), ask(way)
    assert first == again
    assert first["ran"].startswith(f"{home}/{host_program.program_digest()}-")
    assert [host_program.archive() in sent.data for sent in way.sent] == [False, True, False]


def test_program_that_does_not_arrive_is_not_sent_again_and_again(way: Way) -> None:
    way.answer = lambda _sent: (0, b'backendai-reply {"missing": true}\n', b"")
    with pytest.raises(AnsibleActionFail, match=r"^the program on this host returned a reply without a result\.$"):
        ask(way)
    assert len(way.sent) == 2


def test_check_mode_leaves_nothing_on_the_host(way: Way, home: Path) -> None:
    assert ask(way, check_mode=True)["request"]["check_mode"] is True
    assert not home.exists()


def test_units_run_the_program_that_is_installed(way: Way, home: Path) -> None:
    def install(**how: bool) -> bool:
        return way.action({}, **how).install({})

    assert (install(check_mode=True), home.exists()) == (True, False)
    assert install() is True
    assert (home / "current").resolve().name.startswith(host_program.program_digest())
    assert (install(), install(check_mode=True)) == (False, False)


def test_units_run_nothing_that_a_request_has_installed(way: Way, home: Path) -> None:
    ask(way)
    assert not (home / "current").is_symlink()


def test_program_runs_in_the_environment_of_the_task(way: Way) -> None:
    ask(way, environment=[{"NO_PROXY": "a b"}])
    assert "NO_PROXY='\"'\"'a b'\"'\"' " in way.sent[0].command


# ---- by standard input, or by a file


def test_request_goes_by_standard_input_and_not_by_the_command(way: Way) -> None:
    ask(way)
    assert {sent.path for sent in way.sent} == {None}
    assert "hunter2" not in f"{way.commands}"
    assert b"hunter2" in way.sent[0].data


def without_input(way: Way, _patch: pytest.MonkeyPatch) -> None:
    way.connection.has_pipelining = False


def through_su(way: Way, _patch: pytest.MonkeyPatch) -> None:
    way.connection.set_become_plugin(Become("root", pipelining=False))


def switched_off(way: Way, _patch: pytest.MonkeyPatch) -> None:
    way.connection.set_options(var_options={"ansible_pipelining": False})


def switched_off_in_the_environment(way: Way, patch: pytest.MonkeyPatch) -> None:
    patch.setenv("ANSIBLE_PIPELINING", "false")
    way.connection.set_options()


def files_are_kept(_way: Way, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(constants, "DEFAULT_KEEP_REMOTE_FILES", True)


BY_FILE = pytest.mark.parametrize(
    "how", [without_input, through_su, switched_off, switched_off_in_the_environment, files_are_kept]
)
Arrange = Callable[[Way, pytest.MonkeyPatch], None]


@BY_FILE
def test_request_goes_by_a_file_of_its_own_where_there_is_no_other_way(
    way: Way, monkeypatch: pytest.MonkeyPatch, how: Arrange, tmp_path: Path
) -> None:
    how(way, monkeypatch)
    assert ask(way)["request"]["options"] == OPTIONS
    assert [sent.mode for sent in way.sent] == [0o600, 0o600]
    assert b"hunter2" in way.sent[0].data
    assert "hunter2" not in f"{way.commands}"
    assert [path for path in (tmp_path / "remote").rglob("*") if path.is_file()] == []
    assert not any(sent.path and sent.path.parent.exists() for sent in way.sent)


@BY_FILE
@pytest.mark.parametrize("answer", [fails, is_cut])
def test_file_is_removed_when_the_command_fails(
    way: Way, monkeypatch: pytest.MonkeyPatch, how: Arrange, answer: Callable[[Sent], Answer]
) -> None:
    how(way, monkeypatch)
    way.answer = answer
    with pytest.raises((AnsibleActionFail, AnsibleConnectionFailure)):
        ask(way)
    (sent,) = way.sent
    assert sent.path
    assert not sent.path.parent.exists()


def test_the_request_file_is_readable_by_an_unprivileged_become_user(way: Way, monkeypatch: pytest.MonkeyPatch) -> None:
    received: list[Any] = []

    def give(_action: HostAction, paths: list[str], execute: bool = True) -> None:
        received.append((paths, execute))

    monkeypatch.setattr(HostAction, "_fixup_perms2", give)
    way.connection.set_become_plugin(Become("operator", pipelining=False))
    ask(way)
    assert received == [([f"{sent.path.parent}/", str(sent.path)], False) for sent in way.sent if sent.path]
    assert len(received) == 2


def switched_on(way: Way, _patch: pytest.MonkeyPatch) -> None:
    way.connection.set_options(var_options={"ansible_pipelining": True})


def nothing_said(way: Way, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(way.connection, "get_option_and_origin", lambda _option, **_how: (False, "default"))


def no_such_option(way: Way, patch: pytest.MonkeyPatch) -> None:
    def get(option: str, **_how: Any) -> None:
        raise KeyError(option)

    patch.setattr(way.connection, "get_option_and_origin", get)


def through_sudo(way: Way, _patch: pytest.MonkeyPatch) -> None:
    way.connection.set_become_plugin(Become("root", pipelining=True))


@pytest.mark.parametrize("how", [switched_on, nothing_said, no_such_option, through_sudo])
def test_request_goes_by_standard_input_wherever_it_can(
    way: Way, monkeypatch: pytest.MonkeyPatch, how: Arrange
) -> None:
    how(way, monkeypatch)
    ask(way)
    assert [sent.path for sent in way.sent] == [None, None]


# ---- the interpreter


def interpreter_of(sent: Sent) -> str:
    return sent.command.removeprefix("/bin/sh -c '").split()[0]


@pytest.fixture
def dumb(way: Way) -> Way:
    """Return a connection to a host with a program that replies for any interpreter."""
    way.answer = lambda _sent: (0, b'backendai-reply {"result": {}}\n', b"")
    return way


@pytest.mark.parametrize(
    ("variables", "environment", "used"),
    [
        ({"ansible_python_interpreter": "/opt/python"}, "/usr/bin/other", "/opt/python"),
        ({}, "/opt/python", "/opt/python"),
        ({"ansible_facts": {"discovered_interpreter_python": "/opt/found"}}, "auto_silent", "/opt/found"),
        ({"ansible_facts": {"discovered_interpreter_python": "/opt/found"}}, "/opt/python", "/opt/python"),
        ({"agent_python": "/opt/venv/python", "ansible_python_interpreter": "/opt/python"}, "", "/opt/venv/python"),
        ({"agent_python": "", "ansible_python_interpreter": "/opt/python"}, "/usr/bin/other", "/opt/python"),
    ],
    ids=["variable", "configuration", "found before", "configuration rather than found before", "agent", "no agent"],
)
def test_interpreter_is_the_one_that_modules_would_use(
    dumb: Way, monkeypatch: pytest.MonkeyPatch, variables: dict[str, Any], environment: str, used: str
) -> None:
    monkeypatch.setenv("ANSIBLE_PYTHON_INTERPRETER", environment)
    assert ask(dumb, variables) == {}
    assert [interpreter_of(sent) for sent in dumb.sent] == [used]
    assert len(dumb.commands) == 1


@pytest.mark.parametrize("mode", ["auto", "auto_silent"])
def test_interpreter_that_is_found_is_a_fact_for_the_next_task(
    dumb: Way, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    monkeypatch.setenv("ANSIBLE_PYTHON_INTERPRETER", mode)
    tried = ["/nowhere/python3", sys.executable]
    variables = {"inventory_hostname": "agent1", "ansible_interpreter_python_fallback": tried}
    assert ask(dumb, variables) == {"ansible_facts": {"discovered_interpreter_python": sys.executable}}
    assert interpreter_of(dumb.sent[0]) == sys.executable


def test_interpreter_may_be_a_template(dumb: Way) -> None:
    from ansible.template import trust_as_template

    ask(dumb, {"ansible_python_interpreter": trust_as_template("{{ '/opt' }}/python")})
    assert interpreter_of(dumb.sent[0]) == "/opt/python"
