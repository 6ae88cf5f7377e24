"""Simulates the playbook that starts sessions, without hosts: requests to agents and their results."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ansible_collections.backendai.cluster.plugins.plugin_utils._lifecycle.start_steps import (
    APPLY,
    CLAIM,
    COMMAND,
    COMMIT,
    PULL,
    READY,
    REMOVE,
    UNREACHABLE,
    Start,
    read_start,
    result_variable,
)

AGENTS = ("agent1", "agent2", "agent3")
KEYS = {"main1": {"user": "USER", "host": "HOST"}}
TIMED_OUT = {"failed": True, "msg": "the task took too long"}


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

    ``lost`` are the tasks, by step and agent, without a result: ``unreachable``, or ``failed`` without results of
    sessions. ``turns`` is the number of turns for which an agent pulls. ``one_by_one`` are agents that see the effects
    of earlier ones in the same task. ``forks`` is the number of agents that work concurrently. ``slow`` are the
    sessions and agents whose containers are not ready when an agent has waited long enough.
    """

    sessions: list[dict[str, Any]]
    faults: Mapping[Fault, str] = dataclasses.field(default_factory=dict)
    lost: Mapping[tuple[str, str], str] = dataclasses.field(default_factory=dict)
    turns: int = 1
    one_by_one: bool = False
    forks: int = 5
    variables: dict[str, dict[str, Any]] = dataclasses.field(default_factory=lambda: {agent: {} for agent in AGENTS})
    requests: list[tuple[str, str, list[str]]] = dataclasses.field(default_factory=list)
    completed: set[Fault] = dataclasses.field(default_factory=set)
    removed: set[tuple[str, str]] = dataclasses.field(default_factory=set)
    slow: frozenset[tuple[str, str]] = frozenset()
    settled: dict[str, Start] = dataclasses.field(default_factory=dict)

    def play(self) -> Run:
        """Run the tasks of a start, then those of sessions that are still starting."""
        self._start()
        all_sessions = self.sessions
        self.sessions = [session for session in all_sessions if self.start(session).starting]
        # The results of the others are recorded before the variables are overwritten.
        done = [session for session in all_sessions if session not in self.sessions]
        if self.sessions:
            self.settled = {str(session["nonce"]): self.start(session) for session in done}
        for step in (READY, COMMIT, COMMAND, REMOVE) if self.sessions else ():
            self._task(step)
        self.sessions = all_sessions
        return self

    def _start(self) -> None:
        self._task(CLAIM)
        if any(session["missing_images"] for session in self.sessions):
            for turn in range(self.turns):
                self._task(PULL, turn)
        for step in (APPLY, COMMIT, COMMAND, REMOVE):
            self._task(step)

    def start(self, session: Mapping[str, Any]) -> Start:
        return self.settled.get(session["nonce"]) or read_start(session, self.variables)

    def _task(self, step: str, turn: int = 0) -> None:
        results = {}
        for agent in AGENTS:
            results[agent] = self._result(step, agent, turn)
            if self.one_by_one:
                self.variables[agent][result_variable(step)] = results[agent]
        for agent, result in results.items():
            self.variables[agent][result_variable(step)] = result

    def _result(self, step: str, agent: str, turn: int) -> dict[str, Any]:
        requested = [
            (session, self._steps(session, step, agent)) for session in self.sessions if agent in session["agents"]
        ]
        requested = [(session, steps) for session, steps in requested if steps]
        kept = self._kept(step, agent, [session["id"] for session, _steps in requested]) if turn else {}
        if not requested:
            return {"changed": False, "sessions": kept} if kept else {"changed": False, "skipped": True}
        self.requests += [(session["id"], agent, steps) for session, steps in requested]
        lost = self.lost.get((step, agent))
        if lost == "failed":
            return TIMED_OUT
        if lost:
            failed = {
                session["id"]: {"nonce": session["nonce"], "failed": UNREACHABLE} for session, _steps in requested
            }
            return {"unreachable": True, "msg": "no route to host", "sessions": failed}
        return {
            "sessions": {**kept, **{session["id"]: self._reply(session, steps, agent) for session, steps in requested}}
        }

    def _kept(self, step: str, agent: str, requested: Iterable[str]) -> dict[str, Any]:
        """Return the earlier results of sessions without a request in this turn."""
        replies = {session["id"]: self.start(session).results.get(step, {}).get(agent) for session in self.sessions}
        return {name: reply for name, reply in replies.items() if reply and name not in requested}

    def _steps(self, session: Mapping[str, Any], step: str, agent: str) -> list[str]:
        start = self.start(session)
        if step == REMOVE:
            return [REMOVE] if start.failed else []
        if step == PULL:
            return [PULL] if start.needs_pull(agent) else []
        return start.steps_of(agent, step, self.forks)

    def _reply(self, session: Mapping[str, Any], steps: list[str], agent: str) -> dict[str, Any]:
        reply: dict[str, Any] = {"nonce": session["nonce"], "steps": []}
        for step in steps:
            fault = self.faults.get((session["id"], step, agent))
            if fault and steps == [APPLY, COMMIT] and step == COMMIT and len(session["agents"]) > 1:
                # Other agents may not be ready yet: this is not a failure.
                return reply
            if fault:
                return {**reply, fault: f"{step} on {agent}"}
            if step == REMOVE:
                self.removed.add((session["id"], agent))
            reply["steps"] = [*reply["steps"], step]
            if step == COMMIT:
                reply["containers"] = {agent: {"status": "running", "image_digest": None}}
            self.completed.add((session["id"], step, agent))
            if step == APPLY and (session["id"], agent) in self.slow:
                return {**reply, "starting": True}
            if step == APPLY:
                self.completed.add((session["id"], READY, agent))
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
