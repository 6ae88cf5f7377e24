# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The program on an agent, called outside of a task: each call is a process there, over a connection that is kept."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ansible import constants

from ..module_utils._module import CONNECTION_OPTIONS
from .agent_connection import AgentConnection, connection_settings
from .host_request import build_request, coerce_variables, command_of, parse_output, result_of, send_request

INTERPRETER = "/usr/bin/python3"
"""The Python of an agent for which no path is set: nothing is discovered outside of tasks."""


class AgentProgram:
    """The program on one agent. ``variables`` are those of the agent, which ``template`` renders.

    The connection is kept as long as that of a task, and shared with other processes, if its plugin can do so. May
    raise :class:`AnsibleError`.
    """

    def __init__(self, variables: Mapping[str, Any], template: Callable[[Any], Any]) -> None:
        self._connection = AgentConnection(connection_settings(variables, template))
        self._options = coerce_variables(CONNECTION_OPTIONS, "agent_", variables, template)
        named = constants.config.get_config_value("INTERPRETER_PYTHON", variables=dict(variables))
        chosen = str(template(variables.get("agent_python") or named) or "")
        self._interpreter = chosen if chosen.startswith("/") else INTERPRETER

    def call(self, phase: str, options: Mapping[str, Any], seconds: int) -> dict[str, Any]:
        """Return the result of a phase, with a timeout in seconds. ``options`` are data, and never templates.

        Raises :class:`AnsibleActionFail` with the error message of the agent, or why there was no reply, and
        :class:`AnsibleConnectionFailure` if the agent is unreachable.
        """
        request = build_request(phase, {**options, **self._options}, seconds)
        return result_of(phase, send_request(request, self._exchange))

    def _exchange(self, payload: bytes) -> dict[str, Any]:
        code, output, errors = self._connection.run(command_of(self._interpreter), payload)
        return parse_output(self._interpreter, code, output.decode(errors="replace"), errors.decode(errors="replace"))
