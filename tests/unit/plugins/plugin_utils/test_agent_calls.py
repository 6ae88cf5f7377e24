"""Several agents are asked the same thing: each answers, or there is a reason why not."""

from __future__ import annotations

import errno
import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from ansible.errors import AnsibleActionFail
from ansible.parsing.dataloader import DataLoader

from ansible_collections.backendai.cluster.plugins.module_utils._program.launcher import MARK
from ansible_collections.backendai.cluster.plugins.plugin_utils import agent_calls, reply_memory
from ansible_collections.backendai.cluster.plugins.plugin_utils.agent_calls import AgentCalls, Failure, Mode
from ansible_collections.backendai.cluster.plugins.plugin_utils.host_link import InventoryHosts, Template
from ansible_collections.backendai.cluster.plugins.plugin_utils.interruption import InterruptionError
from ansible_collections.backendai.cluster.plugins.plugin_utils.link_pool import LinkPool
from tests.unit.kit.container import wait_until

LOCAL = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}
Calls = Callable[..., AgentCalls]


class Variables(dict[str, Mapping[str, Any]]):
    """The variables of hosts, as Ansible hands them to a task."""

    def raw_get(self, name: str) -> Mapping[str, Any]:
        return self[name]


@pytest.fixture
def calls() -> Iterator[Calls]:
    """Return a function that returns what asks agents, from their variables."""
    with LinkPool(4) as pool:

        def make(agents: Mapping[str, Mapping[str, Any]], **options: Any) -> AgentCalls:
            hosts = InventoryHosts({"hostvars": Variables(agents), "groups": {}}, DataLoader())
            return AgentCalls(hosts, pool, **options)

        yield make


def options_of(_name: str, variables: Mapping[str, Any], template: Template) -> dict[str, Any]:
    return {"own": template(variables.get("own", ""))}


def script(folder: Path, name: str, text: str) -> dict[str, Any]:
    """Return the variables of an agent behind a program that stands in for ssh."""
    path = folder / name
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return {"ansible_connection": "ssh", "ansible_ssh_executable": str(path), "ansible_host": "192.0.2.11"}


def owns(answers: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the agents were asked, or why there is no answer."""
    return {
        name: answer if isinstance(answer, Failure) else answer["request"]["options"]["own"]
        for name, answer in answers.items()
    }


@pytest.mark.parametrize("check_mode", [False, True])
def test_each_agent_answers_and_gets_the_program_that_it_lacks(calls: Calls, home: Path, check_mode: bool) -> None:
    agents = {f"agent{number}": {**LOCAL, "own": number} for number in range(5)}
    asked = calls(agents, mode=Mode(check=check_mode))
    for _again in range(2):
        answers = asked.ask("echo", agents, options_of, 7)
        assert list(answers) == list(agents)
        assert owns(answers) == {f"agent{number}": number for number in range(5)}
        assert {answer["request"]["check_mode"] for answer in answers.values() if isinstance(answer, dict)} == {
            check_mode
        }
    assert home.exists() is not check_mode


@pytest.mark.usefixtures("home")
def test_what_is_wrong_with_an_agent_is_its_own_answer(calls: Calls, tmp_path: Path) -> None:
    def options(name: str, variables: Mapping[str, Any], template: Template) -> dict[str, Any]:
        if name == "refused":
            raise AnsibleActionFail("agent_slots: it must be a list.")
        return options_of(name, variables, template)

    agents = {
        "away": script(tmp_path, "away", "echo 'no route to host\x1b[2J' >&2; exit 255"),
        "no python": {**LOCAL, "ansible_python_interpreter": "/no/python"},
        "no reply": script(tmp_path, "odd", "cat > /dev/null; echo Welcome; exit 3"),
        "no mapping": script(tmp_path, "list", f"cat > /dev/null; echo '{MARK}[]'"),
        "no plugin": {"ansible_connection": "no.such.plugin"},
        "no number": {**LOCAL, "ansible_timeout": "soon"},
        "refused": {**LOCAL, "own": "refused"},
        "well": {**LOCAL, "own": "well"},
    }
    answers = owns(calls(agents).ask("echo", agents, options, 7))
    assert answers.pop("well") == "well"
    assert {name: answer.unreachable for name, answer in answers.items()} == {
        name: name == "away" for name in agents if name != "well"
    }
    expected = {
        "away": "no route to host\\x1b[2J",
        "no python": "/no/python does not run on this host: ",
        "no reply": "the program on this host ended with 3 and without a reply: Welcome.",
        "no mapping": "the program on this host returned a reply that is not a mapping.",
        "no plugin": "ansible_connection: there is no connection plugin 'no.such.plugin'",
        "no number": "invalid literal for int() with base 10: 'soon'",
        "refused": "agent_slots: it must be a list.",
    }
    for name, text in expected.items():
        assert text in answers[name].message


def test_the_control_node_works_meanwhile_once_all_agents_have_been_asked(calls: Calls, tmp_path: Path) -> None:
    go_on, reply = tmp_path / "go-on", json.dumps({"failed": "it went on."})
    waits = f"cat > /dev/null; until [ -e {go_on} ]; do sleep 0.05; done; echo '{MARK}{reply}'"
    agents = {name: script(tmp_path, name, f"touch {tmp_path}/{name}-asked; {waits}") for name in ("agent1", "agent2")}

    def meanwhile() -> None:
        wait_until(lambda: all((tmp_path / f"{name}-asked").exists() for name in agents))
        go_on.touch()

    answers = calls(agents).ask("echo", agents, options_of, 20, meanwhile=meanwhile)
    assert answers == dict.fromkeys(agents, Failure("it went on."))


@pytest.mark.usefixtures("home")
def test_an_agent_that_is_given_up_is_asked_again_over_a_new_link(
    calls: Calls, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agent_calls, "GRACE", 0)
    begins = f'[ "$2" != -O ] || exit 1; [ -e {tmp_path}/well ] || exec sleep 600'
    hangs = f'{begins}\nfor word; do last=$word; done; exec sh -c "$last"'
    asked = calls({"agent1": {**LOCAL, **script(tmp_path, "ssh", hangs), "own": 1}})
    answers = asked.ask("echo", ["agent1"], options_of, 2)
    assert answers == {"agent1": Failure("it did not answer within 2 seconds")}
    (tmp_path / "well").touch()
    assert owns(asked.ask("echo", ["agent1"], options_of, 60)) == {"agent1": 1}


@pytest.mark.usefixtures("home")
def test_an_agent_that_sends_without_end_takes_no_memory_of_others(
    calls: Calls, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reply_memory, "MEMORY", 96 << 20)
    flood = {f"flood{number}": script(tmp_path, "flood", "exec cat /dev/zero") for number in range(3)}
    agents = {**flood, "agent1": {**LOCAL, "own": 1}, "agent2": {**LOCAL, "own": 2}}
    answers = owns(calls(agents).ask("echo", agents, options_of, 60))
    too_much = Failure(reply_memory.TOO_MUCH)
    assert answers == {**dict.fromkeys(flood, too_much), "agent1": 1, "agent2": 2}


@pytest.mark.usefixtures("home")
def test_an_agent_for_whose_connection_there_was_no_memory_is_asked_again(
    calls: Calls, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempts: list[None] = []

    class Process(subprocess.Popen[bytes]):
        def __init__(self, *arguments: Any, **options: Any) -> None:
            attempts.append(None)
            if len(attempts) == 1:
                raise OSError(errno.ENOMEM, "Cannot allocate memory")
            super().__init__(*arguments, **options)

    agent = script(tmp_path, "ssh", 'for word; do last=$word; done; exec sh -c "$last"')
    asked = calls({"agent1": {**LOCAL, **agent, "own": 1}})
    monkeypatch.setattr(subprocess, "Popen", Process)
    assert owns(asked.ask("echo", ["agent1"], options_of, 60)) == {"agent1": 1}
    assert len(attempts) > 1


@pytest.mark.usefixtures("home")
def test_the_traceback_of_an_agent_is_noted_and_not_part_of_the_answer(calls: Calls, tmp_path: Path) -> None:
    noted: list[str] = []
    reply = '{"failed": "it failed.", "traceback": "the traceback"}'
    agent = script(tmp_path, "ssh", f"cat > /dev/null; echo '{MARK}{reply}'")
    answers = calls({"agent1": agent}, note=noted.append).ask("echo", ["agent1"], options_of, 7)
    assert (answers, noted) == ({"agent1": Failure("it failed.")}, ["the traceback"])


def test_who_asks_for_what_cannot_be_sent_is_interrupted_too() -> None:
    def interrupt() -> None:
        raise InterruptionError("the process of this run has gone")

    hosts = InventoryHosts(
        {"hostvars": Variables({"agent1": {**LOCAL, "own": "{{ absent }}"}}), "groups": {}}, DataLoader()
    )
    with LinkPool(1, interrupt) as pool, pytest.raises(InterruptionError):
        AgentCalls(hosts, pool).ask("echo", ["agent1"], options_of, 7)
