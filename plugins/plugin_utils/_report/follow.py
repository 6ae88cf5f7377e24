# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Follows the logs of a session's containers: what is new in one reading after another."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol

from ...module_utils._model.session import MAIN1, MAX_LINES, STOPPED
from ...module_utils._model.timestamp import parse_timestamp
from .logs import parse_lines

PAUSE = 1.0
"""How often logs are read again, in seconds."""

LINES = 2_000
"""How many lines of each container are read then. The engine reads as many, however few of them are new."""

Since = Mapping[str, int]
"""The times of the last lines of containers, in seconds since the epoch, by hostname."""

Part = Mapping[str, Any]
"""What an agent has of a session: its containers, and their logs."""

Read = Callable[[Mapping[str, Since], int], Mapping[str, Part]]
"""Returns the parts of agents with so many of the last lines of each container since its time.

A part that is gone is left out.
"""


class End(Protocol):
    """Whether the session's command has ended: agents without main1 know it by this only. A threading.Event is one."""

    def is_set(self) -> bool:
        """Return whether it has ended."""

    def set(self) -> None:
        """Say that it has ended."""


def follow(parts: Mapping[str, Part], read: Read, show: Callable[[str], None], end: End) -> None:
    """Show what the containers of agents print after ``parts`` were read, until they have ended."""
    followers = {agent: Follower(part) for agent, part in parts.items()}
    while followers:
        # What was printed before the end is read once more after it.
        finished = end.is_set()
        latest = _read_all(followers, read)
        for agent, part in latest.items():
            for line in followers[agent].new_lines(part):
                show(line)
            if command_ended(part):
                end.set()
        followers = {
            agent: follower
            for agent, follower in followers.items()
            if agent in latest and not finished and not has_ended(latest[agent])
        }
        if followers:
            time.sleep(PAUSE)


def _read_all(followers: Mapping[str, Follower], read: Read) -> dict[str, Part]:
    """Return what is new on each agent; where more was printed than is usually read, all of it."""
    since = {agent: follower.since for agent, follower in followers.items()}
    latest = dict(read(since, LINES))
    gaps = [agent for agent, part in latest.items() if followers[agent].has_gap(part, LINES)]
    if gaps:
        for agent in gaps:
            del latest[agent]
        latest |= read({agent: since[agent] for agent in gaps}, MAX_LINES)
    return latest


class Follower:
    """Knows the last moment of each container's log that was shown, and its lines of that moment."""

    def __init__(self, part: Mapping[str, Any]) -> None:
        self._shown: dict[str, tuple[str, frozenset[str]]] = {}
        for _line in self.new_lines(part):
            pass

    @property
    def since(self) -> dict[str, int]:
        """The time, in seconds since the epoch, after which each container may have printed new lines."""
        return {hostname: _seconds(moment) or 0 for hostname, (moment, _lines) in self._shown.items()}

    def has_gap(self, part: Mapping[str, Any], lines: int) -> bool:
        """Return whether a container has printed more since its last line than so many lines."""
        return any(
            len(log) >= lines and log[0].partition(" ")[0] > self._shown.get(hostname, ("", frozenset()))[0]
            for hostname, logs in part["logs"].items()
            if (log := parse_lines(logs["log"]))
        )

    def new_lines(self, part: Mapping[str, Any]) -> Iterator[str]:
        """Yield the lines that have not been shown yet, each with the hostname of its container.

        What has no time, such as the end of a line whose beginning is no longer there, is left out.
        """
        for hostname, logs in part["logs"].items():
            for line in parse_lines(logs["log"]):
                moment = line.partition(" ")[0]
                last, shown = self._shown.get(hostname, ("", frozenset()))
                if _seconds(moment) is None or moment < last or (moment == last and line in shown):
                    continue
                self._shown[hostname] = (moment, shown | {line} if moment == last else frozenset([line]))
                yield f"{hostname}: {line}"


def _seconds(moment: str) -> int | None:
    """Return the time of a line in seconds since the epoch; ``None`` if it has none."""
    try:
        return parse_timestamp(moment)
    except ValueError:
        return None


def has_ended(part: Mapping[str, Any]) -> bool:
    """Return whether the containers of a part print no more: the session has ended, or all of them have."""
    states = part["containers"].values()
    # A live part without containers is about to end: what they printed last is in what is kept.
    stopped = bool(states) and all(state["status"] in STOPPED for state in states)
    return part.get("ended_at") is not None or stopped or command_ended(part)


def command_ended(part: Mapping[str, Any]) -> bool:
    """Return whether the session's command has ended here, and with it the session."""
    main = part["containers"].get(MAIN1)
    return bool(main) and main["status"] in STOPPED and bool(part["batch"])
