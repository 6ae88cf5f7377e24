# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Base class of actions that call the program on a host: request on standard input, reply on standard output."""

from __future__ import annotations

import contextlib
import json
import shlex
from collections.abc import Iterator, Mapping
from typing import Any

from ansible import constants
from ansible.errors import AnsibleActionFail, AnsibleConnectionFailure
from ansible.executor.interpreter_discovery import discover_interpreter
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from ansible.plugins.action import ActionBase

from ..module_utils._model.plain_data import DataError
from ..module_utils._model.printable import printable, printable_data
from ..module_utils._model.strict_json import parse_json
from ..module_utils._program.launcher import MARK
from . import host_program
from .host_replies import check_reply

HOME = "/usr/local/lib/backendai"
DISCOVER = ("auto", "auto_silent", "auto_legacy", "auto_legacy_silent", "")
DISCOVERED = "discovered_interpreter_python"

# Keys that Ansible acts upon in any result: a host must not add hosts, since tasks would then run on those.
RESERVED_KEYS = ("add_host", "add_group", "ansible_", "_ansible_")

# Standard input begins with the size of the launcher in bytes, then the launcher. No modules are imported from the
# current folder.
COMMAND = "import sys;sys.path[:]=filter(None,sys.path);s=sys.stdin.buffer;exec(s.read(int(s.readline())))"


class HostAction(ActionBase):
    """An action that calls the program on a host, and installs it if it is missing."""

    TRANSFERS_FILES = False

    def call(self, phase: str, options: Mapping[str, Any], task_vars: dict[str, Any], seconds: int) -> dict[str, Any]:
        """Return the result of a phase on the host, with a timeout in seconds; its text is safe to print.

        Raises :class:`AnsibleActionFail` with the error message of the host, or why there was no reply.
        """
        request = {
            "phase": phase,
            "options": options,
            "check_mode": self._task.check_mode,
            "diff": self._task.diff,
            "seconds": seconds,
        }
        reply = self._send_request(json.dumps(request).encode(), task_vars)
        result = {name: value for name, value in reply["result"].items() if not name.startswith(RESERVED_KEYS)}
        try:
            check_reply(phase, result)
        except DataError as error:
            raise AnsibleActionFail(f"{error}.") from None
        return {**result, **self._interpreter_fact()}

    def install(self, task_vars: dict[str, Any]) -> bool:
        """Install this program for the systemd units, and return whether that is a change."""
        return bool(self._send_request(b"", task_vars)["installed"])

    def options(self, spec: Mapping[str, Any], values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
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

    def variables(self, spec: Mapping[str, Any], prefix: str, task_vars: Mapping[str, Any]) -> dict[str, Any]:
        """Return the host's variables of an argument specification, which begin with ``prefix``, coerced."""
        values = {name: task_vars[f"{prefix}{name}"] for name in spec if f"{prefix}{name}" in task_vars}
        return self.options(spec, {name: self._templar.template(value) for name, value in values.items()}, prefix)

    def _send_request(self, request: bytes, task_vars: dict[str, Any]) -> dict[str, Any]:
        """Send a request, with the program if the host lacks it, and return the reply.

        An empty request installs the program for the systemd units.
        """
        try:
            interpreter = self._interpreter(task_vars)
            reply = self._exchange(interpreter, self._payload(b"", request))
            if reply.get("missing"):
                reply = self._exchange(interpreter, self._payload(host_program.archive(), request))
        except AnsibleConnectionFailure as error:
            # ssh quotes what the host says before a login.
            raise AnsibleConnectionFailure(printable(str(error))) from None
        if "failed" in reply:
            if reply.get("traceback"):
                self._display.vvv(str(reply["traceback"]))
            raise AnsibleActionFail(str(reply["failed"]))
        if not (isinstance(reply.get("result"), dict) if request else isinstance(reply.get("installed"), bool)):
            raise AnsibleActionFail("the program on this host returned a reply without a result.")
        return reply

    def _exchange(self, interpreter: str, payload: bytes) -> dict[str, Any]:
        """Run the launcher with its input, and return its reply."""
        command = f"{self._compute_environment_string()} {interpreter} -c {shlex.quote(COMMAND)}".strip()
        with self._suppress_output():
            if self._accepts_stdin():
                completed = self._low_level_execute_command(command, in_data=payload)
            else:
                completed = self._run_with_file(command, payload)
        replies = [line for line in completed["stdout"].splitlines() if line.startswith(MARK)]
        try:
            text = replies[-1][len(MARK) :]
            reply = printable_data(parse_json(text), text)
        except (IndexError, ValueError):
            raise AnsibleActionFail(_describe_missing_reply(interpreter, completed)) from None
        if not isinstance(reply, dict):
            raise AnsibleActionFail("the program on this host returned a reply that is not a mapping.")
        return reply

    def _run_with_file(self, command: str, payload: bytes) -> dict[str, Any]:
        """Run a command with its input from a temporary file, for connections or ``become`` plugins without stdin."""
        folder = self._make_tmp_path()
        path = self._connection._shell.join_path(folder, "request")
        try:
            self._transfer_data(path, payload)
            if self._is_become_unprivileged():
                self._fixup_perms2([folder, path], execute=False)
            else:
                self._remote_chmod([path], "0600")
            completed: dict[str, Any] = self._low_level_execute_command(f"{command} < {shlex.quote(path)}")
            return completed
        finally:
            self._remove_tmp_path(folder, force=True)

    def _payload(self, archive: bytes, request: bytes) -> bytes:
        """Return the launcher and its input."""
        header = {
            "digest": host_program.program_digest(),
            "release": host_program.release(),
            "home": HOME,
            "size": len(archive),
            "provision": not request,
            "check": self._task.check_mode,
        }
        launcher = host_program.launcher()
        return b"%d\n%s%s\n%s%s" % (len(launcher), launcher, json.dumps(header).encode(), archive, request)

    def _accepts_stdin(self) -> bool:
        """Return whether commands accept standard input; not if pipelining was disabled explicitly."""
        become = self._connection.become
        able = self._connection.has_pipelining and (not become or become.pipelining)
        return able and self._wants_pipelining() and not constants.DEFAULT_KEEP_REMOTE_FILES

    def _wants_pipelining(self) -> bool:
        try:
            _value, origin = self._connection.get_option_and_origin("pipelining")
        except KeyError:
            return True
        return bool(_value) or origin == "default"

    @contextlib.contextmanager
    def _suppress_output(self) -> Iterator[None]:
        """Suppress the connection's output of replies at -vvv; the error of an unreachable host is still shown."""
        context, before = self._connection._play_context, self._connection._play_context.no_log
        context.no_log = True
        try:
            yield
        except AnsibleConnectionFailure as error:
            if before or "censored" not in str(error):
                raise
            context.no_log = False
            self._low_level_execute_command(":")
            raise
        finally:
            context.no_log = before

    def _interpreter(self, task_vars: dict[str, Any]) -> str:
        """Return the host's Python, discovered in the same way as for modules."""
        chosen = constants.config.get_config_value("INTERPRETER_PYTHON", variables=task_vars)
        chosen = str(self._templar.template(chosen) or "")
        if chosen not in DISCOVER:
            return chosen
        interpreter = (task_vars.get("ansible_facts") or {}).get(DISCOVERED)
        if not interpreter:
            interpreter = discover_interpreter(self, "python", chosen or "auto", task_vars)
            self._discovered_interpreter = interpreter
        return str(interpreter)

    def _interpreter_fact(self) -> dict[str, Any]:
        """Return the fact by which the next task need not discover the interpreter, if this one has."""
        interpreter = getattr(self, "_discovered_interpreter", None)
        return {"ansible_facts": {DISCOVERED: interpreter}} if interpreter else {}


def _describe_missing_reply(interpreter: str, completed: Mapping[str, Any]) -> str:
    """Return a sentence for why a host returned no reply, from the output of its shell."""
    lines = [line for line in f"{completed['stdout']}\n{completed['stderr']}".splitlines() if line.strip()]
    last = f": {printable(lines[-1].strip())}" if lines else ""
    if completed["rc"] in (126, 127):
        return (
            f"{interpreter} does not run on this host{last}; install Python 3.9 or later there, or set"
            " ansible_python_interpreter to one."
        )
    return f"the program on this host ended with {completed['rc']} and without a reply{last}."
