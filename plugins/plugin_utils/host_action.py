# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Base class of actions that call the program on a host: request on standard input, reply on standard output."""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Iterator, Mapping
from typing import Any

from ansible import constants
from ansible.errors import AnsibleConnectionFailure, AnsibleError
from ansible.executor.interpreter_discovery import discover_interpreter
from ansible.plugins.action import ActionBase

from ..module_utils._model.printable import printable
from . import host_program
from .host_link import DISCOVER, DISCOVERED, leaves_input
from .host_request import (
    answer_of,
    build_request,
    coerce,
    coerce_variables,
    command_of,
    parse_output,
    result_of,
    send_request,
)
from .reply_memory import bounded_memory

# Ansible imports this before it forks a worker for each host, and each of them has 10 ms less to do. If one of them
# cannot be read, the first call of an action says so.
with contextlib.suppress(OSError, AnsibleError):
    host_program.archive()
    host_program.release()


class HostAction(ActionBase):
    """An action that calls the program on a host, and installs it if it is missing."""

    TRANSFERS_FILES = False

    def call(self, phase: str, options: Mapping[str, Any], task_vars: dict[str, Any], seconds: int) -> dict[str, Any]:
        """Return the result of a phase on the host, with a timeout in seconds; its text is safe to print.

        Raises :class:`AnsibleActionFail` with the error message of the host, or why there was no reply.
        """
        request = build_request(phase, options, seconds, check_mode=self._task.check_mode, diff=self._task.diff)
        return {**result_of(phase, self._send_request(request, task_vars)), **self._interpreter_fact()}

    def install(self, task_vars: dict[str, Any]) -> bool:
        """Install this program for the systemd units, and return whether that is a change."""
        return answer_of(self._send_request(b"", task_vars), "installed", bool)

    def options(self, spec: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
        """Return the values of options of the task; see :func:`coerce`."""
        return coerce(spec, values)

    def variables(self, spec: Mapping[str, Any], prefix: str, task_vars: Mapping[str, Any]) -> dict[str, Any]:
        """Return the host's variables of an argument specification, which begin with ``prefix``, coerced."""
        return coerce_variables(spec, prefix, task_vars, self._templar.template)

    def _send_request(self, request: bytes, task_vars: dict[str, Any]) -> dict[str, Any]:
        """Send a request, with the program if the host lacks it, and return the reply.

        An empty request installs the program for the systemd units.
        """
        try:
            interpreter = self._interpreter(task_vars)
            reply = send_request(
                request, lambda payload: self._exchange(interpreter, payload), check_mode=self._task.check_mode
            )
        except AnsibleConnectionFailure as error:
            # ssh quotes what the host says before a login.
            raise AnsibleConnectionFailure(printable(str(error))) from None
        if reply.get("traceback"):
            self._display.vvv(str(reply["traceback"]))
        return reply

    def _exchange(self, interpreter: str, payload: bytes) -> dict[str, Any]:
        """Run the launcher with its input, and return its reply."""
        command = f"{self._compute_environment_string()} {command_of(interpreter)}".strip()
        with self._suppress_output(), bounded_memory():
            if self._accepts_stdin():
                completed = self._low_level_execute_command(command, in_data=payload)
            else:
                completed = self._run_with_file(command, payload)
        return parse_output(interpreter, completed["rc"], completed["stdout"], completed["stderr"])

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

    def _accepts_stdin(self) -> bool:
        """Return whether commands accept standard input; not if pipelining was disabled explicitly."""
        become = self._connection.become
        able = self._connection.has_pipelining and leaves_input(become)
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
        chosen = task_vars.get("agent_python") or constants.config.get_config_value(
            "INTERPRETER_PYTHON", variables=task_vars
        )
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
