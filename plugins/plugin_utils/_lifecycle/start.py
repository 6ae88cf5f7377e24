# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Starts several sessions at once: step by step on all of their agents, with the roll-back in one place.

What goes wrong with an agent is a reply to a step, which ends the session that it is about, and no other. Anything else
ends the run: it is interrupted, or a disk is full. In both cases all agents of a session remove what they have of it,
unless it is complete.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

from ...module_utils._model.errors import cause
from .start_steps import APPLY, CLAIM, COMMAND, COMMIT, PULL, READY, REMOVE, Reply, Start

Work = Mapping[str, Sequence[tuple[Start, Sequence[str]]]]
"""What agents do now: by agent, the sessions with the steps to take. No agent has an empty list."""

Replies = Mapping[str, Mapping[str, Reply]]
"""What agents have replied about sessions: by agent, then by the id of the session."""


class Crew(Protocol):
    """The agents of a run, as a whole."""

    def take(self, step: str, work: Work, replies: dict[str, Mapping[str, Reply]]) -> None:
        """Have agents do their work in the step; one that fails replies that for each of its sessions.

        The replies are those by agent, then by the id of the session. If this raises, some have come all the same.
        """

    def pull(self, starts: Sequence[Start]) -> Replies:
        """Have agents pull the images that these sessions lack, and renew the claims of all of their agents.

        Return what agents have replied about sessions that lack images.
        """

    def give_up(self) -> None:
        """Forget what agents are doing: the next request to one follows nothing that is under way."""


class Starting:
    """Sessions that a run starts on their agents, of which ``forks`` work at the same time.

    ``undo`` is whether agents have to undo anything: in check mode nothing has been done.
    """

    def __init__(self, decided: Iterable[Mapping[str, Any]], crew: Crew, forks: int, *, undo: bool = True) -> None:
        self._starts = {str(each["id"]): Start(each) for each in decided}
        self._crew, self._forks, self._undo = crew, forks, undo

    @property
    def starts(self) -> list[Start]:
        """The sessions, with what their agents have replied so far."""
        return list(self._starts.values())

    @contextlib.contextmanager
    def undone_unless_complete(self) -> Iterator[None]:
        """Roll back the sessions that are not complete if the block raises, whatever it is: the run ends."""
        try:
            yield
        except BaseException as error:
            self._break_off(error)
            self._roll_back(self._starts)
            raise

    def start(self) -> None:
        """Start the sessions, and roll back those that fail. With containers that take long they are ``starting``."""
        self._take_steps(CLAIM, PULL, APPLY, COMMIT, COMMAND)

    def complete_slow(self) -> None:
        """Go on with the sessions that are ``starting``, and roll back those that fail."""
        self._take_steps(READY, COMMIT, COMMAND)

    def _take_steps(self, first: str, *others: str) -> None:
        names = [name for name, start in self._starts.items() if first != READY or start.starting]
        for step in (first, *others):
            self._take(step, names)
        self._roll_back(names)

    def _take(self, step: str, names: Iterable[str]) -> None:
        """Have all agents take a step that take part in it."""
        starts = [self._starts[name] for name in names]
        if step == PULL:
            if any(start.needs_pull for start in starts):
                self._note(step, self._crew.pull([start for start in starts if start.awaits_pulls]))
            return
        work: dict[str, list[tuple[Start, list[str]]]] = {}
        for start in starts:
            for agent in start.agents:
                steps = start.steps_of(agent, step, self._forks)
                if steps:
                    work.setdefault(agent, []).append((start, steps))
        self._have_done(step, work)

    def _have_done(self, step: str, work: Work) -> None:
        """Have agents do their work, and note what they reply, also if the wait for others is interrupted."""
        replies: dict[str, Mapping[str, Reply]] = {}
        try:
            if work:
                self._crew.take(step, work, replies)
        finally:
            self._note(step, replies)

    def _break_off(self, error: BaseException) -> None:
        """Note that the run ends here for the sessions that are under way."""
        reason = cause(error)
        for name, start in self._starts.items():
            # What other runs were faster with is not planned again.
            if not start.complete and not start.has_failure:
                self._starts[name] = dataclasses.replace(start, broken=reason)
        self._crew.give_up()

    def _roll_back(self, names: Iterable[str]) -> None:
        """Have all agents remove their parts of sessions that could not be started.

        One that fails to is reported at the end; the next run that reaches it removes its part.
        """
        work: dict[str, list[tuple[Start, list[str]]]] = {}
        for start in [self._starts[name] for name in names] if self._undo else ():
            for agent in start.agents if start.failed and not start.rolled_back else ():
                work.setdefault(agent, []).append((start, [REMOVE]))
        self._have_done(REMOVE, work)

    def _note(self, step: str, replies: Replies) -> None:
        for name, start in self._starts.items():
            own = {agent: by_session[name] for agent, by_session in replies.items() if name in by_session}
            self._starts[name] = start.after(step, own)
