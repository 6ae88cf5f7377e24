# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The program on an agent or gateway, called outside of a task on it: each call is a process there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from ..module_utils._module import CONNECTION_OPTIONS, GATEWAY_OPTIONS
from .host_link import NOTHING_TYPED, HostLink, Output, Passwords, Template, connection_settings, interpreter_of
from .host_request import build_request, coerce_variables, command_of, parse_output, result_of, send_request


class HostKind(NamedTuple):
    """Which variables of a host belong to each request: those of ``options``, which begin with ``prefix``."""

    prefix: str
    options: Mapping[str, Any]


AGENT, GATEWAY = HostKind("agent_", CONNECTION_OPTIONS), HostKind("gateway_", GATEWAY_OPTIONS)


class AgentProgram:
    """The program on one host. ``variables`` are those of the host, which ``template`` renders.

    The connection is kept as long as that of a task, and shared with other processes, if its plugin can do so. May
    raise :class:`AnsibleError`.
    """

    def __init__(
        self,
        variables: Mapping[str, Any],
        template: Template,
        passwords: Passwords = NOTHING_TYPED,
        kind: HostKind = AGENT,
    ) -> None:
        self._settings, self._passwords = connection_settings(variables, template), passwords
        self._options = coerce_variables(kind.options, kind.prefix, variables, template)
        self._interpreter = interpreter_of(variables, template)
        self.command = command_of(self._interpreter.command)
        """The shell command that runs the program; its standard input is the launcher with a request."""
        self.link = HostLink(self._settings, self._passwords)
        """The connection to the agent."""

    def request(
        self, phase: str, options: Mapping[str, Any], seconds: int, *, check_mode: bool = False, diff: bool = False
    ) -> bytes:
        """Return a request for a phase, which the program has some seconds for. ``options`` are data, never templates.

        The places of the host are among its options.
        """
        return build_request(phase, {**options, **self._options}, seconds, check_mode=check_mode, diff=diff)

    def reply(self, output: Output) -> dict[str, Any]:
        """Return the reply in what the command has returned. Raises :class:`AnsibleActionFail` if there is none."""
        text, errors = output.stdout.decode(errors="replace"), output.stderr.decode(errors="replace")
        return parse_output(self._interpreter.name, output.code, text, errors)

    def renew(self) -> None:
        """Replace the link, whose command has been given up: another thread may still be in it."""
        self.link = HostLink(self._settings, self._passwords, renewed=True)

    def call(self, phase: str, options: Mapping[str, Any], seconds: int) -> dict[str, Any]:
        """Return the result of a phase, with a timeout in seconds.

        Raises :class:`AnsibleActionFail` with the error message of the agent, or why there was no reply, and
        :class:`AnsibleConnectionFailure` if the agent is unreachable.
        """
        request = self.request(phase, options, seconds)
        return result_of(phase, send_request(request, lambda payload: self.reply(self.link.run(self.command, payload))))
