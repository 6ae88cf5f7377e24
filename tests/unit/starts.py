"""Simulates the agents of a run that starts sessions: what they are asked, and what they reply."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ansible_collections.backendai.cluster.plugins.plugin_utils._lifecycle.start import Replies, Starting, Work
from ansible_collections.backendai.cluster.plugins.plugin_utils._lifecycle.start_steps import (
    APPLY,
    CLAIM,
    COMMAND,
    COMMIT,
    PULL,
    READY,
    REMOVE,
    UNREACHABLE,
    Reply,
    Start,
)

AGENTS = ("agent1", "agent2", "agent3")
KEYS = {"main1": {"user": "USER", "host": "HOST"}}


def decided(number: int = 1, agents: Sequence[str] = AGENTS[:2], **changes: Any) -> dict[str, Any]:
    """Return a session to start; ``command`` and ``scope`` are those of its plan."""
    defaults = {"command": "", "scope": "main", **changes}
    kernels = [{"hostname": f"c{rank}", "agent": agent} for rank, agent in enumerate(agents)]
    command, scope = defaults.pop("command"), defaults.pop("scope")
    of = {"network": None, "command": command, "command_scope": scope, "kernels": kernels}
    identity = {"id": f"session-{number}", "nonce": f"nonce-{number}", "agents": [*agents]}
    return {**identity, "plan": of, "missing_images": {}, "public_keys": {}, **defaults}


Fault = tuple[str, str, str]
"""A session, one of its steps, and an agent."""


@dataclasses.dataclass
class Run:
    """A run that starts sessions. ``faults`` are the steps of sessions that fail, or are refused, on an agent.

    ``lost`` are the steps in which an agent replies nothing about its sessions, or becomes ``unreachable``. ``forks``
    is the number of agents that work concurrently. ``slow`` are the sessions and agents whose containers are not ready
    when an agent has waited long enough. ``interrupt`` is called before each request, and may raise. ``renewed`` are
    the sessions that lack no image, and whose claims are renewed while agents pull for others.
    """

    sessions: list[dict[str, Any]]
    faults: Mapping[Fault, str] = dataclasses.field(default_factory=dict)
    lost: Mapping[tuple[str, str], str] = dataclasses.field(default_factory=dict)
    forks: int = 5
    slow: frozenset[tuple[str, str]] = frozenset()
    interrupt: Callable[[str, str], None] = lambda _step, _agent: None
    requests: list[tuple[str, str, list[str]]] = dataclasses.field(default_factory=list)
    completed: set[Fault] = dataclasses.field(default_factory=set)
    removed: set[tuple[str, str]] = dataclasses.field(default_factory=set)
    given_up: int = 0
    renewed: list[str] = dataclasses.field(default_factory=list)

    def __post_init__(self) -> None:
        self.starting = Starting(self.sessions, self, self.forks)

    def play(self) -> Run:
        """Start the sessions, then those that take long."""
        with self.starting.undone_unless_complete():
            self.starting.start()
            self.starting.complete_slow()
        return self

    def start(self, session: Mapping[str, Any]) -> Start:
        (found,) = [start for start in self.starting.starts if start.id == session["id"]]
        return found

    def take(self, step: str, work: Work, replies: dict[str, Mapping[str, Reply]]) -> None:
        for agent in work:
            replies[agent] = self._replies(step, agent, work[agent])

    def pull(self, starts: Sequence[Start]) -> Replies:
        pulling: dict[str, list[tuple[Start, list[str]]]] = {}
        self.renewed += [start.id for start in starts if not start.needs_pull]
        for start in (start for start in starts if start.needs_pull):
            for agent in start.agents:
                pulling.setdefault(agent, []).append((start, [PULL]))
        replies: dict[str, Mapping[str, Reply]] = {}
        self.take(PULL, pulling, replies)
        return replies

    def give_up(self) -> None:
        self.given_up += 1

    def _replies(self, step: str, agent: str, work: Sequence[tuple[Start, Sequence[str]]]) -> dict[str, Any]:
        self.interrupt(step, agent)
        self.requests += [(start.id, agent, list(steps)) for start, steps in work]
        lost = self.lost.get((step, agent))
        if lost == "unreachable":
            return {start.id: {"failed": UNREACHABLE} for start, _steps in work}
        if lost:
            return {}
        return {start.id: self._reply(start, list(steps), agent) for start, steps in work}

    def _reply(self, start: Start, steps: list[str], agent: str) -> dict[str, Any]:
        reply: dict[str, Any] = {"steps": []}
        for step in steps:
            fault = self.faults.get((start.id, step, agent))
            if fault and steps == [APPLY, COMMIT] and step == COMMIT and len(start.agents) > 1:
                # Other agents may not be ready yet: this is not a failure.
                return reply
            if fault:
                return {**reply, fault: f"{step} on {agent}"}
            if step == REMOVE:
                self.removed.add((start.id, agent))
            reply["steps"] = [*reply["steps"], step]
            if step == COMMIT:
                reply["containers"] = {agent: {"status": "running", "image_digest": None}}
            self.completed.add((start.id, step, agent))
            if step == APPLY and (start.id, agent) in self.slow:
                return {**reply, "starting": True}
            if step == APPLY:
                self.completed.add((start.id, READY, agent))
        return reply


def takes_part(session: Mapping[str, Any], step: str) -> list[str]:
    """Return the agents that take part in a step, by the design."""
    committed, command = bool(session["public_keys"]), session["plan"]["command"]
    runs_it = session["agents"] if session["plan"]["command_scope"] == "all" else session["agents"][:1]
    return {
        CLAIM: [] if committed else session["agents"],
        PULL: session["agents"] if session["missing_images"] else [],
        COMMAND: runs_it if command else [],
    }.get(step, session["agents"])
