# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Asks the programs on several agents the same thing, from one task on the control node."""

from __future__ import annotations

import dataclasses
import errno
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from ansible.errors import AnsibleConnectionFailure, AnsibleError

from ..module_utils._model.printable import printable
from . import host_program
from .agent_program import AgentProgram
from .host_link import NOTHING_TYPED, InventoryHosts, Passwords, Template
from .host_request import build_payload, result_of
from .link_pool import LinkPool, Outcome, Overdue
from .reply_memory import TOO_MUCH, limited_memory

GRACE = 30
"""How many seconds an agent has beyond those of the program there: for the connection, and to send the program."""


class Failure(NamedTuple):
    """Why an agent has not returned a result. One that is ``unreachable`` may not have been asked."""

    message: str
    unreachable: bool = False


Answer = Mapping[str, Any] | Failure

OptionsOf = Callable[[str, Mapping[str, Any], Template], Mapping[str, Any]]
"""Returns the options of a request for an agent, from its name, its variables and what renders templates in them."""


@dataclasses.dataclass
class _Call:
    program: AgentProgram
    phase: str
    request: bytes
    seconds: float
    sent_program: bool = False


class AgentCalls:
    """The agents of an inventory, asked through a pool of links. ``note`` is told what helps to find faults.

    In ``check_mode`` agents install nothing.
    """

    def __init__(
        self,
        hosts: InventoryHosts,
        pool: LinkPool,
        passwords: Passwords = NOTHING_TYPED,
        *,
        check_mode: bool = False,
        note: Callable[[str], None] = lambda _text: None,
    ) -> None:
        self._hosts, self._pool, self._passwords = hosts, pool, passwords
        self._check_mode, self._note = check_mode, note
        self._programs: dict[str, AgentProgram] = {}

    def ask(self, phase: str, agents: Iterable[str], options_of: OptionsOf, seconds: int) -> dict[str, Answer]:
        """Return the result of a phase on each of the agents, which have some seconds for it, or why there is none.

        The texts of results are safe to print.
        """
        names = list(agents)
        calls: dict[str, _Call] = {}
        answers: dict[str, Answer] = {}
        with limited_memory():
            for name in names:
                try:
                    calls[name] = self._begin(phase, name, options_of, seconds)
                except (AnsibleError, TypeError, ValueError) as error:
                    answers[name] = _failure(error)
            answers |= self._collect(calls)
            # A host that sends without end leaves no memory for others: each of those is asked again by itself.
            for name in [name for name, answer in answers.items() if answer == _CROWDED]:
                self._send(name, calls[name])
                answers |= self._collect({name: calls[name]})
        return {name: answers[name] for name in names}

    def _begin(self, phase: str, name: str, options_of: OptionsOf, seconds: int) -> _Call:
        """Send a request to an agent."""
        variables, template = self._hosts.variables(name)
        program = self._programs.get(name)
        if program is None:
            program = self._programs[name] = AgentProgram(variables, template, self._passwords)
        options = options_of(name, variables, template)
        request = program.request(phase, options, seconds, check_mode=self._check_mode)
        call = _Call(program, phase, request, seconds + GRACE)
        self._send(name, call)
        return call

    def _send(self, name: str, call: _Call) -> None:
        archive = host_program.archive() if call.sent_program else b""
        payload = build_payload(archive, call.request, check_mode=self._check_mode)
        self._pool.submit(name, call.program.link, call.program.command, payload, call.seconds)

    def _collect(self, calls: Mapping[str, _Call]) -> dict[str, Answer]:
        """Return the answers to requests that were sent; an agent without the program gets it first."""
        answers: dict[str, Answer] = {}
        for name, outcome in self._pool.outcomes():
            call = calls[name]
            try:
                answer = self._read(call, outcome)
            except (AnsibleError, MemoryError) as error:
                answer = _failure(error)
            if answer is not None:
                answers[name] = answer
                continue
            call.sent_program = True
            self._send(name, call)
        return answers

    def _read(self, call: _Call, outcome: Outcome) -> Answer | None:
        """Return the answer in what the link to an agent has returned; none if the agent lacks the program."""
        if isinstance(outcome, Overdue):
            call.program.renew()
            return Failure(f"it did not answer within {outcome.seconds:g} seconds")
        if isinstance(outcome, Exception):
            return _failure(outcome)
        reply = call.program.reply(outcome)
        if reply.get("missing") and not call.sent_program:
            return None
        if reply.get("traceback"):
            self._note(str(reply["traceback"]))
        return result_of(call.phase, reply)


_CROWDED = Failure(TOO_MUCH)


def _failure(error: Exception) -> Failure:
    """Return what went wrong with an agent; ssh quotes what the host says before a login."""
    if _lacks_memory(error):
        return _CROWDED
    known = isinstance(error, (AnsibleError, TypeError, ValueError))
    text = str(error) if known else f"its connection failed: {type(error).__name__}: {error}"
    return Failure(printable(text), isinstance(error, AnsibleConnectionFailure))


def _lacks_memory(error: BaseException | None) -> bool:
    """Return whether an error is, or follows, one for want of memory: plugins turn that of a process into their own."""
    while error is not None:
        if isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno == errno.ENOMEM):
            return True
        error = error.__cause__ or error.__context__
    return False
