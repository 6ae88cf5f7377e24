# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The pulls of a start: which image each agent pulls next for which session, and when a claim has to be renewed."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from ...module_utils._model.images import ForeignReferenceError, ImageIdentity, image_mismatch, images_from_dict
from ...module_utils._model.images import pull_reference as reference_of
from .start_steps import Reply, Start

PAUSES = (0.5, 0.5, 0.5, 0.5, 1.0, 2.0, 5.0)
"""Seconds between rounds; the last one repeats. Short at first, so that small images cost little time."""

RECORD = "this control node's record"
"""What has the images that a session was started with, next to the agents that have them now."""

Key = tuple[str, str]
"""The id of a session, and an agent."""


@dataclasses.dataclass(frozen=True)
class Poll:
    """A question to an agent about an image of a session; without a ``name``, it only renews the claim."""

    start: Start
    agent: str
    name: str = ""
    reference: str = ""

    @property
    def key(self) -> Key:
        """What identifies the part of the session."""
        return self.start.id, self.agent


@dataclasses.dataclass
class _Part:
    start: Start
    left: list[str]
    reply: dict[str, Any]
    polled_at: float | None


class Pulls:
    """What is left to pull for sessions that agents have claimed for ``claim_ttl`` seconds.

    A pull may take longer than that, and all go on together: as long as one agent pulls, all agents of all sessions
    renew their claims, also those of sessions that lack no image. A last round after the last pull of a session renews
    its claims once more.
    """

    def __init__(self, starts: Iterable[Start], claim_ttl: float) -> None:
        self._interval = claim_ttl / 3
        self._parts: dict[Key, _Part] = {}
        self._images: dict[str, dict[str, dict[str, ImageIdentity]]] = {}
        self._pulled: set[str] = set()
        for start in starts:
            recorded = start.decided["recorded_images"]
            images = images_from_dict({**start.decided["images"], **({RECORD: recorded} if recorded else {})})
            self._images[start.id], mismatch = images, image_mismatch(images)
            for agent in start.agents:
                missing = start.decided["missing_images"]
                # One that lacks no image has just claimed.
                part = _Part(start, list(missing.get(agent) or ()), {"images": {}}, float("-inf") if missing else None)
                self._parts[start.id, agent] = part
                if mismatch:
                    part.reply["failed"] = f"{mismatch}."

    @property
    def replies(self) -> dict[str, dict[str, Reply]]:
        """What each agent has replied about each session that lacks images so far."""
        replies: dict[str, dict[str, Reply]] = {}
        for (session_id, agent), part in self._parts.items():
            if part.start.decided["missing_images"]:
                replies.setdefault(agent, {})[session_id] = part.reply
        return replies

    @property
    def pulling(self) -> set[str]:
        """The agents that have images left to pull."""
        return {agent for (_session_id, agent), part in self._parts.items() if part.left and self._goes_on(part.start)}

    def due(self, now: float) -> list[Poll]:
        """Return the questions to ask now; there are none when all is done. ``now`` is a time in seconds."""
        polls: list[Poll] = []
        anybody_pulls = bool(self.pulling)
        for session_id in self._images:
            parts = {key: part for key, part in self._parts.items() if key[0] == session_id}
            if not self._goes_on(next(iter(parts.values())).start):
                continue
            last_round = session_id in self._pulled and not any(part.left for part in parts.values())
            for key, part in parts.items():
                part.polled_at = now if part.polled_at is None else part.polled_at
                if part.left or last_round or (anybody_pulls and part.polled_at + self._interval <= now):
                    polls.extend(self._poll(key, part))
            if last_round:
                self._pulled.discard(session_id)
        return polls

    def answer(self, poll: Poll, reply: Mapping[str, Any], now: float) -> None:
        """Take an agent's reply to a question: the status of the image."""
        part = self._parts[poll.key]
        part.polled_at = now
        if poll.name and reply.get("changed"):
            self._pulled.add(poll.start.id)
        part.reply["images"] |= reply["images"]
        if poll.name and not reply["under_way"]:
            part.left.remove(poll.name)

    def fail(self, poll: Poll, reason: str) -> None:
        """Take why an agent has not answered, or cannot pull."""
        self._parts[poll.key].reply["failed"] = reason

    def _goes_on(self, start: Start) -> bool:
        return not any("failed" in self._parts[start.id, agent].reply for agent in start.agents)

    def _poll(self, key: Key, part: _Part) -> Iterator[Poll]:
        if not part.left:
            yield Poll(part.start, key[1])
            return
        try:
            yield Poll(part.start, key[1], part.left[0], reference_of(part.left[0], self._images[key[0]]))
        except ForeignReferenceError as error:
            part.reply["failed"] = f"{error}."


def by_turn(polls: Sequence[Poll]) -> Iterator[dict[str, Poll]]:
    """Yield questions by agent, so that each agent is asked one after the other."""
    remaining = list(polls)
    while remaining:
        turn: dict[str, Poll] = {}
        for poll in remaining:
            turn.setdefault(poll.agent, poll)
        yield turn
        asked = {id(poll) for poll in turn.values()}
        remaining = [poll for poll in remaining if id(poll) not in asked]
