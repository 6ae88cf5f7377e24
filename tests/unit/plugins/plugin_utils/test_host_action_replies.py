"""Replies of hosts: a result or one error message, neither of which is printed."""

from __future__ import annotations

import json
import resource
from collections.abc import Callable
from typing import Any

import pytest
from ansible.errors import AnsibleActionFail, AnsibleConnectionFailure
from ansible.plugins.action import display

from ansible_collections.backendai.cluster.plugins.module_utils._program.launcher import MARK
from ansible_collections.backendai.cluster.plugins.plugin_utils import host_request, reply_memory
from ansible_collections.backendai.cluster.plugins.plugin_utils.host_replies import NO_REASON
from ansible_collections.backendai.cluster.plugins.plugin_utils.host_request import coerce
from tests.unit.connection import Answer, Sent, Way

GOOD = f'{MARK}{{"result": {{"answer": 7}}}}'
PYTHON = {"ansible_python_interpreter": "/opt/python"}
REMEDY = "install Python 3.9 or later there, or set ansible_python_interpreter to one."


def ask(way: Way) -> dict[str, Any]:
    return way.action({}).run(task_vars=PYTHON)


def answering(way: Way, output: str, errors: str = "", code: int = 0) -> Callable[[Sent], Answer]:
    """Make the host reply like this, and return its connection."""
    way.answer = lambda _sent: (code, output.encode(), errors.encode())
    return way.answer


def failure(way: Way) -> str:
    """Return the error message of a failed action, one sentence."""
    with pytest.raises(AnsibleActionFail) as failed:
        ask(way)
    sentence = str(failed.value)
    assert (sentence.count("\n"), sentence[-1]) == (0, ".")
    return sentence


# ---- replies


def test_what_is_larger_than_a_reply_is_not_looked_at(way: Way, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_request, "MAX_REPLY", 100)
    answering(way, GOOD.ljust(100))
    assert ask(way) == {"answer": 7}
    answering(way, GOOD.ljust(101))
    assert failure(way) == "this host sent 101 bytes, and a reply has at most 100."


def test_host_that_sends_without_end_takes_a_limited_amount_of_memory(
    way: Way, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reply_memory, "MEMORY", 64 << 20)
    before, sent = resource.getrlimit(resource.RLIMIT_DATA), [0]

    def send(_sent: Sent) -> Answer:
        received = bytearray()
        while len(received) < 1 << 30:
            received += bytes(1 << 20)
            sent[0] = len(received)
        return 0, bytes(received), b""

    way.answer = send
    assert failure(way) == "this host sent so much that it does not fit into 512 MiB."
    assert sent[0] < 80 << 20
    assert resource.getrlimit(resource.RLIMIT_DATA) == before
    answering(way, GOOD)
    assert ask(way) == {"answer": 7}


@pytest.mark.parametrize(
    "output",
    [
        GOOD,
        f"Welcome to agent1!\nLast login: today\n{GOOD}\n",
        f"{GOOD}\nbye\n{{}}\n",
        f"\r\n\x1b[0m\n{GOOD}\nlogout",
        f"{MARK}not json\n{GOOD}",
        f"\ufffd\x85{MARK}\n{GOOD}",
    ],
    ids=["alone", "after a greeting", "before a goodbye", "between", "after one that is none", "other line ends"],
)
def test_reply_is_found_among_what_logins_print(way: Way, output: str) -> None:
    answering(way, output, "mesg: ttyname failed")
    assert ask(way) == {"answer": 7}


def test_reply_counts_whatever_the_exit_code(way: Way) -> None:
    answering(way, GOOD, code=1)
    assert ask(way) == {"answer": 7}


@pytest.mark.parametrize("key", ["add_host", "add_group", "ansible_facts", "_ansible_no_log", "_ansible_notify"])
def test_host_has_no_say_in_what_ansible_does_next(way: Way, key: str) -> None:
    answering(way, f'{MARK}{{"result": {{"answer": 7, "{key}": {{"host_name": "agent9"}}}}}}')
    assert ask(way) == {"answer": 7}


@pytest.mark.parametrize(
    ("output", "errors", "code", "sentence"),
    [
        ("", "", 0, "the program on this host ended with 0 and without a reply."),
        ("Welcome!\n", "", 1, "the program on this host ended with 1 and without a reply: Welcome!."),
        (
            "Welcome!\n",
            "Traceback:\n\n  MemoryError \n\n",
            137,
            "the program on this host ended with 137 and without a reply: MemoryError.",
        ),
        (f"{MARK}{{not json", "", 0, f"the program on this host ended with 0 and without a reply: {MARK}{{not json."),
        (f"{MARK}[1]", "", 0, "the program on this host returned a reply that is not a mapping."),
        (f"{MARK}null", "", 0, "the program on this host returned a reply that is not a mapping."),
        (f"{MARK}{{}}", "", 0, "the program on this host returned a reply without a result."),
        (f'{MARK}{{"result": []}}', "", 0, "the program on this host returned a reply without a result."),
        (
            "",
            "sh: 1: /opt/python: not found\n",
            127,
            f"/opt/python does not run on this host: sh: 1: /opt/python: not found; {REMEDY}",
        ),
        (
            "",
            "",
            126,
            f"/opt/python does not run on this host; {REMEDY}",
        ),
    ],
)
def test_host_without_a_reply_says_why(way: Way, output: str, errors: str, code: int, sentence: str) -> None:
    answering(way, output, errors, code)
    assert failure(way) == sentence


@pytest.mark.parametrize("output", [f"{MARK}{{}}", f'{MARK}{{"installed": "maybe"}}'])
def test_program_that_does_not_say_whether_it_was_installed_is_a_failure(way: Way, output: str) -> None:
    answering(way, output)
    with pytest.raises(AnsibleActionFail, match=r"^the program on this host returned a reply without a result\.$"):
        way.action({}).install(PYTHON)


def test_interpreter_that_is_not_there_is_said(way: Way) -> None:
    remedy = r"install Python 3\.9 or later there, or set ansible_python_interpreter"
    with pytest.raises(
        AnsibleActionFail, match=rf"^/nowhere/python does not run on this host: .*/nowhere/python.*; {remedy}"
    ):
        way.action({}).run(task_vars={"ansible_python_interpreter": "/nowhere/python"})


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the output at -vvv."""
    lines: list[str] = []
    monkeypatch.setattr(display, "vvv", lambda text, **_where: lines.append(text))
    return lines


def test_sentence_of_a_host_is_that_of_the_task(way: Way, shown: list[str]) -> None:
    answering(way, f'{MARK}{{"failed": "agent1 is full."}}')
    assert failure(way) == "agent1 is full."
    assert [text for text in shown if not text.startswith("EXEC")] == []


@pytest.mark.parametrize(
    ("failed", "sentence"), [('["x"]', r"\['x'\]"), ("null", NO_REASON), ('""', NO_REASON), ('" \\n."', NO_REASON)]
)
def test_failure_that_is_no_text_is_a_failure(way: Way, failed: str, sentence: str) -> None:
    answering(way, f'{MARK}{{"failed": {failed}}}')
    with pytest.raises(AnsibleActionFail, match=f"^{sentence}$"):
        ask(way)


def test_a_traceback_is_shown_at_high_verbosity(way: Way, shown: list[str]) -> None:
    answering(way, f'{MARK}{{"failed": "KeyError: x.", "traceback": "Traceback (most recent call last): …"}}')
    assert failure(way) == "KeyError: x."
    assert "Traceback (most recent call last): …" in shown


# ---- control characters


EVIL = "\x1b]0;owned\x07\x1b[2J\u202e\x9b31m\r\n\tEnd"
SHOWN = "\\x1b]0;owned\\x07\\x1b[2J\\u202e\\x9b31m\\r\n\tEnd"


@pytest.mark.parametrize("ascii_only", [True, False])
def test_text_of_a_result_is_safe_to_print_and_keeps_its_lines(way: Way, ascii_only: bool) -> None:
    result = {"diff": {"before": EVIL, "after": ""}, "warnings": [EVIL], EVIL: 1}
    # A terminal between would have changed this line.
    answering(way, MARK + json.dumps({"result": result}, ensure_ascii=ascii_only))
    assert ask(way) == {"diff": {"before": SHOWN, "after": ""}, "warnings": [SHOWN], SHOWN: 1}


def test_sentence_of_a_host_is_safe_to_print(way: Way, shown: list[str]) -> None:
    answering(way, MARK + json.dumps({"failed": f"{EVIL}.", "traceback": EVIL}))
    with pytest.raises(AnsibleActionFail) as failed:
        ask(way)
    assert str(failed.value) == f"{SHOWN}."
    assert SHOWN in shown


def test_output_of_a_host_without_a_reply_is_safe_to_print(way: Way) -> None:
    answering(way, "", "\x1b[2J\x1b]0;owned\x07 killed\n", 137)
    assert failure(way) == (
        "the program on this host ended with 137 and without a reply: \\x1b[2J\\x1b]0;owned\\x07 killed."
    )


def test_banner_of_an_unreachable_host_is_safe_to_print(way: Way) -> None:
    def refuse(_command: str, **_how: Any) -> Answer:
        raise AnsibleConnectionFailure("Failed to connect to the host via ssh: \x1b[2J\x1b]0;owned\x07 closed")

    way.connection.exec_command = refuse
    assert failure_message(way) == "Failed to connect to the host via ssh: \\x1b[2J\\x1b]0;owned\\x07 closed"


# ---- no output


FILES = pytest.mark.parametrize("by_file", [False, True], ids=["by standard input", "by a file"])


@FILES
@pytest.mark.parametrize("before", [False, True])
def test_connection_is_quiet_while_a_request_is_under_way(way: Way, before: bool, by_file: bool) -> None:
    way.context.no_log = before
    way.connection.has_pipelining = not by_file
    answering(way, GOOD)
    ask(way)
    assert [sent.quiet for sent in way.sent] == [True]
    assert way.context.no_log is before


@FILES
def test_connection_is_quiet_no_longer_when_a_request_has_failed(way: Way, by_file: bool) -> None:
    way.connection.has_pipelining = not by_file
    answering(way, "")
    failure(way)
    assert way.context.no_log is False


class Unreachable:
    """An unreachable host; like ssh, it prints the error unless output is suppressed."""

    def __init__(self, way: Way, *, comes_back: bool = False) -> None:
        self.way, self.comes_back = way, comes_back
        self.commands: list[tuple[str, bool]] = []
        way.connection.exec_command = self.exec

    def exec(self, command: str, in_data: bytes | None = None, sudoable: bool = True) -> Answer:
        assert sudoable or in_data is None
        quiet = self.way.context.no_log
        self.commands.append((command, quiet))
        if self.comes_back and not quiet:
            return 0, b"", b""
        reason = "<error censored due to no log>" if quiet else "no route to host"
        raise AnsibleConnectionFailure(f"Failed to connect to the host via ssh: {reason}")


def failure_message(way: Way) -> str:
    with pytest.raises(AnsibleConnectionFailure) as failed:
        ask(way)
    return str(failed.value)


def test_why_a_host_is_unreachable_is_said_all_the_same(way: Way) -> None:
    host = Unreachable(way)
    assert failure_message(way) == "Failed to connect to the host via ssh: no route to host"
    assert [quiet for _command, quiet in host.commands] == [True, False]
    assert "sys.stdin" not in host.commands[1][0]
    assert way.context.no_log is False


def test_host_that_comes_back_meanwhile_was_unreachable(way: Way) -> None:
    Unreachable(way, comes_back=True)
    assert "censored" in failure_message(way)
    assert way.context.no_log is False


def test_why_a_host_is_unreachable_is_not_said_where_the_task_is_secret(way: Way) -> None:
    way.context.no_log = True
    host = Unreachable(way)
    assert "censored" in failure_message(way)
    assert len(host.commands) == 1
    assert way.context.no_log is True


def test_connection_that_says_why_is_asked_once(way: Way) -> None:
    calls: list[str] = []

    def refuse(command: str, **_how: Any) -> Answer:
        calls.append(command)
        raise AnsibleConnectionFailure("no route to host")

    way.connection.exec_command = refuse
    assert (failure_message(way), len(calls), way.context.no_log) == ("no route to host", 1, False)


# ---- options


SPEC = {"docker_host": {"type": "str", "default": "unix:///x"}, "number": {"type": "int", "required": True}}


def test_options_are_coerced_and_have_defaults(way: Way) -> None:
    action = way.action({})
    assert action.options(SPEC, {"number": "7"}) == {"docker_host": "unix:///x", "number": 7}
    variables = {"agent_number": "8", "agent_docker_host": "unix:///y", "number": 9}
    assert action.variables(SPEC, "agent_", variables) == {"docker_host": "unix:///y", "number": 8}


def test_variables_are_templated(way: Way) -> None:
    from ansible.template import trust_as_template

    variables = {"agent_number": trust_as_template("{{ 3 + 4 }}")}
    assert way.action({}).variables(SPEC, "agent_", variables)["number"] == 7


@pytest.mark.parametrize(
    ("values", "prefix", "sentence"),
    [
        ({}, "", "missing required arguments: number."),
        ({}, "agent_", "agent_*: missing required arguments: number."),
        ({"number": "many"}, "agent_", "agent_*: argument 'number' is of type"),
    ],
)
def test_options_that_are_wrong_are_one_sentence(values: dict[str, Any], prefix: str, sentence: str) -> None:
    with pytest.raises(AnsibleActionFail) as refused:
        coerce(SPEC, values, prefix)
    assert str(refused.value).startswith(sentence)
    assert str(refused.value).endswith(".")
