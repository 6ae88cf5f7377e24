# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Asks the programs on several hosts the same thing, from one task on the control node."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple, Protocol

from ansible.errors import AnsibleConnectionFailure, AnsibleError

from ..module_utils._model.printable import printable
from . import host_program
from .agent_program import AGENT, AgentProgram, HostKind
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


Tell = Callable[[str, str, Answer | None], None]
"""Is told of a step that begins, then of the answer of each host to it, as it comes."""

Meanwhile = Callable[[], object]
"""Prepares something in the main thread while hosts work, in seconds at most: until then no answer is looked at."""


class Asks(Protocol):
    """What asks hosts, as :class:`AgentCalls` does."""

    def ask(
        self,
        phase: str,
        agents: Iterable[str],
        options_of: OptionsOf,
        seconds: int,
        step: str = "",
        meanwhile: Meanwhile = lambda: None,
        answers: dict[str, Answer] | None = None,
    ) -> dict[str, Answer]:
        """Return the result of a phase on each of the hosts, or why there is none.

        Each is in ``answers`` as soon as it has come: an interruption ends the wait for the others.
        """

    def give_up(self) -> None:
        """Forget the requests that have not been answered."""


class Mode(NamedTuple):
    """How hosts work: in ``check`` mode they change and install nothing; they return a ``diff`` if it is wanted."""

    check: bool = False
    diff: bool = False


NORMAL = Mode()


@dataclasses.dataclass
class _Call:
    program: AgentProgram
    phase: str
    request: bytes
    seconds: float
    step: str = ""
    sent_program: bool = False


class AgentCalls:
    """The agents of an inventory, or its gateways, asked through a pool of links.

    ``kind`` says which of the variables of hosts belong to each request. ``note`` is told what helps to find faults,
    ``tell`` of steps and answers.
    """

    def __init__(
        self,
        hosts: InventoryHosts,
        pool: LinkPool,
        passwords: Passwords = NOTHING_TYPED,
        *,
        kind: HostKind = AGENT,
        mode: Mode = NORMAL,
        note: Callable[[str], None] = lambda _text: None,
        tell: Tell = lambda _step, _host, _answer: None,
    ) -> None:
        self._hosts, self._pool, self._passwords, self._kind = hosts, pool, passwords, kind
        self._mode, self._note, self._tell = mode, note, tell
        self._programs: dict[str, AgentProgram] = {}

    def ask(
        self,
        phase: str,
        agents: Iterable[str],
        options_of: OptionsOf,
        seconds: int,
        step: str = "",
        meanwhile: Meanwhile = lambda: None,
        answers: dict[str, Answer] | None = None,
    ) -> dict[str, Answer]:
        """Return the result of a phase on each of the agents, which have some seconds for it, or why there is none.

        The texts of results are safe to print. ``step`` names for people what the agents do. ``meanwhile`` is called
        once they have been asked. Each result is in ``answers`` as soon as it has come: an interruption ends the wait
        for the others.
        """
        names = list(agents)
        calls: dict[str, _Call] = {}
        answers = {} if answers is None else answers
        if step and names:
            self._tell(step, "", None)
        with limited_memory():
            for name in names:
                try:
                    calls[name] = self._begin(phase, name, options_of, seconds, step)
                except (AnsibleError, TypeError, ValueError) as error:
                    answers[name] = self._answered(step, name, _failure(error))
            # It may lack what replies may take here, and whoever needs what it prepares does it again.
            with contextlib.suppress(MemoryError):
                meanwhile()
            self._collect(calls, answers)
            # A host that sends without end leaves no memory for others: each of those is asked again by itself.
            for name in [name for name, answer in answers.items() if answer == _CROWDED]:
                self._send(name, calls[name])
                self._collect({name: calls[name]}, answers)
        return {name: answers[name] for name in names}

    def give_up(self) -> None:
        """Forget the requests that have not been answered, and make the links to their hosts anew."""
        for name in self._pool.give_up():
            if name in self._programs:
                self._programs[name].renew()

    def _begin(self, phase: str, name: str, options_of: OptionsOf, seconds: int, step: str) -> _Call:
        """Send a request to an agent."""
        variables, template = self._hosts.variables(name)
        program = self._programs.get(name)
        if program is None:
            program = self._programs[name] = AgentProgram(variables, template, self._passwords, self._kind)
        options = options_of(name, variables, template)
        request = program.request(phase, options, seconds, check_mode=self._mode.check, diff=self._mode.diff)
        call = _Call(program, phase, request, seconds + GRACE, step)
        self._send(name, call)
        return call

    def _send(self, name: str, call: _Call) -> None:
        archive = host_program.archive() if call.sent_program else b""
        payload = build_payload(archive, call.request, check_mode=self._mode.check)
        self._pool.submit(name, call.program.link, call.program.command, payload, call.seconds)

    def _collect(self, calls: Mapping[str, _Call], answers: dict[str, Answer]) -> None:
        """Wait for the answers to requests that were sent; an agent without the program gets it first."""
        for name, outcome in self._pool.outcomes():
            call = calls[name]
            try:
                answer = self._read(call, outcome)
            except (AnsibleError, MemoryError) as error:
                answer = _failure(error)
            if answer is not None:
                answers[name] = answer if answer == _CROWDED else self._answered(call.step, name, answer)
                continue
            call.sent_program = True
            self._send(name, call)

    def _answered(self, step: str, name: str, answer: Answer) -> Answer:
        if step:
            self._tell(step, name, answer)
        return answer

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
