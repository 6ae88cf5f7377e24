# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The agents that carry out the steps of a start: what they are asked, and what their answers mean for each session."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from ...module_utils._model.errors import as_sentence
from .._lifecycle.pulls import PAUSES, Poll, Pulls, by_turn
from .._lifecycle.start import Replies, Work
from .._lifecycle.start_steps import (
    APPLY,
    CLAIM,
    COMMAND,
    COMMIT,
    READY,
    REMOVE,
    UNREACHABLE,
    Reply,
    Start,
)
from ..agent_calls import Answer, Asks, Failure
from ..host_link import Template
from .outcome import Outcome
from .requests import Requests, phase_of

STEP_SECONDS, POLL_SECONDS = 300, 60
"""The time limits of a step on an agent, in addition to ``session_claim_ttl``, and of a question about a pull."""

TITLES = {
    CLAIM: "Claim resources",
    APPLY: "Start the containers",
    READY: "Wait for the containers",
    COMMIT: "Check the session and commit it",
    COMMAND: "Start the command of batch sessions",
    REMOVE: "Roll back sessions that could not be started",
}
"""The steps, as people read them."""

PULL_TITLE = "Pull images"


class AgentCrew:
    """The agents of a run, asked through ``calls``. What they change, and what they warn of, goes to ``outcome``."""

    def __init__(self, calls: Asks, requests: Requests, outcome: Outcome, claim_ttl: int) -> None:
        self._calls, self._requests, self._outcome, self._claim_ttl = calls, requests, outcome, claim_ttl

    def take(self, step: str, work: Work, replies: dict[str, Mapping[str, Reply]]) -> None:
        """Have agents do their work in the step; one that fails replies that for each of its sessions.

        What agents have replied when the wait is interrupted is in ``replies``.
        """

        def options(agent: str, variables: Mapping[str, Any], template: Template) -> dict[str, Any]:
            return self._requests.options(agent, work[agent], variables, template)

        seconds = STEP_SECONDS + self._claim_ttl
        answers: dict[str, Answer] = {}
        try:
            self._calls.ask(phase_of(step), work, options, seconds, TITLES[step], answers=answers)
        finally:
            for agent in [agent for agent in work if agent in answers]:
                starts = [start for start, _steps in work[agent]]
                replies[agent] = self._replies(agent, starts, answers[agent])

    def pull(self, starts: Sequence[Start]) -> Replies:
        """Have agents pull the images that these sessions lack, and renew the claims of all of their agents."""
        pulls, pauses, seen = Pulls(starts, self._claim_ttl), iter(PAUSES), dict[tuple[str, str, str], str]()
        for agent in sorted(pulls.pulling):
            self._outcome.begin(PULL_TITLE, agent)
        while polls := pulls.due(time.monotonic()):
            for turn in by_turn(polls):
                self._ask_about_pulls(pulls, turn, seen)
            if pulls.pulling:
                time.sleep(next(pauses, PAUSES[-1]))
        return pulls.replies

    def give_up(self) -> None:
        """Forget what agents are doing: the next request to one follows nothing that is under way."""
        self._calls.give_up()

    def _ask_about_pulls(self, pulls: Pulls, turn: Mapping[str, Poll], seen: dict[tuple[str, str, str], str]) -> None:
        def options(agent: str, variables: Mapping[str, Any], template: Template) -> dict[str, Any]:
            poll = turn[agent]
            return self._requests.pull_options(poll.start, poll.name, poll.reference, variables, template)

        for agent, answer in self._calls.ask("pull", turn, options, POLL_SECONDS).items():
            poll = turn[agent]
            if isinstance(answer, Failure):
                reason = UNREACHABLE if answer.unreachable else as_sentence(answer.message)
                pulls.fail(poll, reason)
                self._outcome.done(PULL_TITLE, agent, reason)
                continue
            pulls.answer(poll, answer, time.monotonic())
            key, progress = (*poll.key, poll.name), str(answer.get("progress") or "")
            if key not in seen:
                # A pull that goes on is the change that was reported already.
                self._outcome.add(agent, answer)
            if progress and progress != seen.get(key):
                self._outcome.note(f"{agent}: pulling {poll.name}: {progress}")
            seen[key] = progress
            if poll.name and agent not in pulls.pulling:
                self._outcome.done(PULL_TITLE, agent)

    def _replies(self, agent: str, starts: Sequence[Start], answer: Answer) -> dict[str, dict[str, Any]]:
        """Return what an agent has replied about these sessions; nothing of one that it does not mention."""
        if isinstance(answer, Failure):
            reason = UNREACHABLE if answer.unreachable else answer.message
            if answer.unreachable:
                self._outcome.unreachable.setdefault(agent, answer.message)
            return {start.id: {"failed": reason} for start in starts}
        self._outcome.add(agent, answer)
        replies = {start.id: dict(answer["sessions"][start.id]) for start in starts if start.id in answer["sessions"]}
        for start in starts:
            reply = replies.get(start.id, {})
            if reply.get("lost_output"):
                name = start.decided["plan"]["name"]
                self._outcome.warn(f"{name}: output was lost: {'; '.join(reply['lost_output'])}")
            for text in reply.get("warnings") or ():
                self._outcome.warn(f"{agent}: {text}")
        return replies
