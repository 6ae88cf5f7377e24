# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the Python of a host gets to run the program of this collection, and what its output means."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from ansible.errors import AnsibleActionFail
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator

from ..module_utils._model.plain_data import DataError
from ..module_utils._model.printable import printable, printable_data
from ..module_utils._model.strict_json import parse_json
from ..module_utils._program.launcher import MARK
from ..module_utils._program.reply import MAX_REPLY
from . import host_program
from .host_replies import check_reply, reason_in
from .option_text import decode_brackets

T = TypeVar("T")

HOME = "/usr/local/lib/backendai"

# Keys that Ansible acts upon in any result: a host must not add hosts, since tasks would then run on those.
RESERVED_KEYS = ("add_host", "add_group", "ansible_", "_ansible_")

# Standard input begins with the size of the launcher in bytes, then the launcher. No modules are imported from the
# current folder.
COMMAND = "import sys;sys.path[:]=filter(None,sys.path);s=sys.stdin.buffer;exec(s.read(int(s.readline())))"


def coerce(spec: Mapping[str, Any], values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return values coerced by an argument specification, with its defaults.

    ``prefix`` is that of the variables that contain the values; options of the task have none. Raises
    :class:`AnsibleActionFail` with a sentence for each problem.
    """
    checked = ArgumentSpecValidator(dict(spec)).validate(dict(values))
    if checked.error_messages:
        origin = f"{prefix}*: " if prefix else ""
        raise AnsibleActionFail(" ".join(f"{origin}{text}." for text in checked.error_messages))
    coerced: dict[str, Any] = checked.validated_parameters
    return coerced


def coerce_variables(
    spec: Mapping[str, Any], prefix: str, variables: Mapping[str, Any], template: Callable[[Any], Any]
) -> dict[str, Any]:
    """Return the host's variables of an argument specification, which begin with ``prefix``, coerced."""
    values = {name: template(variables[f"{prefix}{name}"]) for name in spec if f"{prefix}{name}" in variables}
    for name, value in values.items():
        if spec[name].get("type") in ("list", "dict"):
            try:
                values[name] = decode_brackets(value)
            except ValueError as error:
                raise AnsibleActionFail(f"{prefix}{name}: {error}.") from None
    return coerce(spec, values, prefix)


def build_request(
    phase: str, options: Mapping[str, Any], seconds: int, *, check_mode: bool = False, diff: bool = False
) -> bytes:
    """Return the request for a phase, with a timeout in seconds."""
    return json.dumps(
        {"phase": phase, "options": options, "check_mode": check_mode, "diff": diff, "seconds": seconds}
    ).encode()


def command_of(interpreter: str) -> str:
    """Return the shell command that runs the launcher."""
    return f"{interpreter} -c {shlex.quote(COMMAND)}"


def build_payload(archive: bytes, request: bytes, *, check_mode: bool) -> bytes:
    """Return the launcher and its input."""
    header = {
        "digest": host_program.program_digest(),
        "release": host_program.release(),
        "home": HOME,
        "size": len(archive),
        "provision": not request,
        "check": check_mode,
    }
    launcher = host_program.launcher()
    return b"%d\n%s%s\n%s%s" % (len(launcher), launcher, json.dumps(header).encode(), archive, request)


def send_request(
    request: bytes, exchange: Callable[[bytes], dict[str, Any]], *, check_mode: bool = False
) -> dict[str, Any]:
    """Return the reply to a request; ``exchange`` runs the launcher, again with the program if the host lacks it."""
    reply = exchange(build_payload(b"", request, check_mode=check_mode))
    if reply.get("missing"):
        reply = exchange(build_payload(host_program.archive(), request, check_mode=check_mode))
    return reply


def parse_output(interpreter: str, code: int, output: str, errors: str) -> dict[str, Any]:
    """Return the reply in what the launcher has printed. Raises :class:`AnsibleActionFail` if there is none.

    What is larger than a reply of the program can be is not looked at.
    """
    if len(output) > MAX_REPLY:
        raise AnsibleActionFail(f"this host sent {len(output)} bytes, and a reply has at most {MAX_REPLY}.")
    replies = [line for line in output.splitlines() if line.startswith(MARK)]
    try:
        text = replies[-1][len(MARK) :]
        reply = printable_data(parse_json(text), text)
    except (IndexError, ValueError):
        raise AnsibleActionFail(_describe_missing_reply(interpreter, code, output, errors)) from None
    if not isinstance(reply, dict):
        raise AnsibleActionFail("the program on this host returned a reply that is not a mapping.")
    return reply


def answer_of(reply: Mapping[str, Any], name: str, kind: type[T]) -> T:
    """Return a field of a reply. Raises :class:`AnsibleActionFail` with the host's error message."""
    if "failed" in reply:
        raise AnsibleActionFail(reason_in(reply["failed"]))
    answer = reply.get(name)
    if not isinstance(answer, kind):
        raise AnsibleActionFail("the program on this host returned a reply without a result.")
    return answer


def result_of(phase: str, reply: Mapping[str, Any]) -> dict[str, Any]:
    """Return the result of a phase: the fields that it has, and text that is safe to print.

    Raises :class:`AnsibleActionFail`.
    """
    answer = answer_of(reply, "result", dict)
    result = {name: value for name, value in answer.items() if not name.startswith(RESERVED_KEYS)}
    try:
        return check_reply(phase, result)
    except DataError as error:
        raise AnsibleActionFail(f"{error}.") from None


def _describe_missing_reply(interpreter: str, code: int, output: str, errors: str) -> str:
    """Return a sentence for why a host returned no reply, from the output of its shell."""
    lines = [line for line in f"{output}\n{errors}".splitlines() if line.strip()]
    last = f": {printable(lines[-1].strip())}" if lines else ""
    if code in (126, 127):
        return (
            f"{interpreter} does not run on this host{last}; install Python 3.9 or later there, or set"
            " ansible_python_interpreter to one."
        )
    return f"the program on this host ended with {code} and without a reply{last}."
