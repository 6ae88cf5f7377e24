# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The steps of a start on all agents of a session: what an agent does next, and what came of all of it.

A step begins when every agent of the session has succeeded in the one before. Where a session has one agent there is
nobody to wait for, and one request takes all steps. Where all of its agents work at the same time, their containers
meet while that request lasts, so the proof is tried along with the start; what is not proven then takes its own step.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

CLAIM, PULL, OVERLAY, APPLY, PROVE, COMMAND, REMOVE = "claim", "pull", "overlay", "apply", "prove", "command", "remove"
ORDER = (CLAIM, PULL, OVERLAY, APPLY, PROVE, COMMAND)

UNREACHABLE, SILENT = "it became unreachable", "it gave no answer"

Results = Mapping[str, Mapping[str, Mapping[str, Any]]]
"""What agents replied about one session: by step, then by agent. An agent that has no part in a step is not there."""


@dataclasses.dataclass(frozen=True)
class Start:
    """One session that a run starts, and what its agents have replied so far.

    ``plan`` and what else is decided are plain data, as :func:`start_of` makes them.
    """

    decided: Mapping[str, Any]
    results: Results

    @property
    def id(self) -> str:
        """The id of the session."""
        return str(self.decided["id"])

    @property
    def agents(self) -> list[str]:
        """Its agents, in rank order."""
        return list(self.decided["agents"])

    @property
    def committed(self) -> bool:
        """Whether all agents had committed it before this run, so that no claim is needed."""
        return bool(self.decided["public_keys"])

    @property
    def overlay_agent(self) -> str:
        """The agent that makes its network for all of them; empty where there is none to make."""
        return str((self.decided["plan"]["network"] or {}).get("swarm_manager") or "")

    @property
    def public_keys(self) -> dict[str, dict[str, str]]:
        """The public keys of its containers, as far as they are known."""
        keys = dict(self.decided["public_keys"])
        for result in self.results.get(CLAIM, {}).values():
            keys.update(result.get("public_keys") or {})
        return keys

    def steps_of(self, agent: str, step: str, forks: int) -> list[str]:
        """Return the steps that an agent takes now, where the run has come to ``step``.

        ``forks`` is how many agents work at the same time.
        """
        if agent not in self._participants(step) or not self._succeeded_before(step):
            return []
        if self._is_single_request:
            # The first task takes all steps along.
            steps = [name for name in (CLAIM, APPLY, PROVE, COMMAND) if self._participants(name)]
            return [name for name in steps if name != CLAIM or not self.committed] if step == CLAIM else []
        if step == PROVE and self._succeeded(PROVE, agent):
            return []
        return [APPLY, PROVE] if step == APPLY and len(self.agents) <= forks else [step]

    def needs_pull(self, agent: str) -> bool:
        """Return whether an agent has to pull for this session, or to keep its claim while others do."""
        pulling = self.decided["missing_images"] and agent in self.agents and self._succeeded_before(PULL)
        return bool(pulling) and not any("failed" in reply for reply in self.results.get(PULL, {}).values())

    @property
    def failed(self) -> bool:
        """Whether it has to be taken away again: a step failed, or was refused, on any agent."""
        return not self._succeeded_before(REMOVE)

    def outcome_on(self, agent: str) -> dict[str, Any]:
        """Return what came of the start on one agent.

        It has ``failed`` (why) only where it did, ``refused`` (why), the states of its ``containers``, and ``left``:
        whether taking it away again failed.
        """
        outcome: dict[str, Any] = {"refused": "", "containers": {}, "left": False}
        for step in ORDER:
            result = self._result(step, agent)
            outcome["refused"] = outcome["refused"] or result.get("refused") or ""
            outcome["containers"] |= result.get("containers") or {}
            if "failed" in result:
                outcome["failed"] = result["failed"] or ""
        removed = self.results.get(REMOVE, {}).get(agent)
        outcome["left"] = outcome.get("failed") == SILENT if removed is None else "failed" in removed
        return outcome

    @property
    def refusals(self) -> list[str]:
        """Why agents refused their parts, where that is all that went wrong: other runs were faster."""
        outcomes = [self.outcome_on(agent) for agent in self.agents]
        reasons = [outcome["refused"] for outcome in outcomes if outcome["refused"]]
        return reasons if not any("failed" in outcome for outcome in outcomes) else []

    @property
    def _is_single_request(self) -> bool:
        return len(self.agents) == 1 and not self.decided["missing_images"] and not self.overlay_agent

    def _participants(self, step: str) -> list[str]:
        """Return the agents that have something to do in a step."""
        plan = self.decided["plan"]
        if step == CLAIM:
            return [] if self.committed and not self._is_single_request else self.agents
        if step == PULL:
            return self.agents if self.decided["missing_images"] else []
        if step == OVERLAY:
            return [self.overlay_agent] if self.overlay_agent else []
        if step == COMMAND:
            running = self.agents if plan["command_scope"] == "all" else [plan["kernels"][0]["agent"]]
            return running if plan["command"] else []
        return self.agents

    def _succeeded_before(self, step: str) -> bool:
        """Return whether all agents have succeeded in all steps before one."""
        before = ORDER[: ORDER.index(step)] if step in ORDER else ORDER
        return all(self._succeeded(name, agent) for name in before for agent in self._participants(name))

    def _result(self, step: str, agent: str) -> Mapping[str, Any]:
        """Return what came of a step on an agent: nothing where it was not its turn, a failure where it was silent."""
        if agent not in self._participants(step) or not self._succeeded_before(step):
            # What is there has been left by an earlier start.
            return {}
        if self._was_combined(step, agent):
            # What is there is about other sessions.
            return {}
        return self.results.get(step, {}).get(agent, {} if self._succeeded(step, agent) else {"failed": SILENT})

    def _succeeded(self, step: str, agent: str) -> bool:
        if self._was_combined(step, agent):
            return True
        result = self.results.get(step, {}).get(agent)
        return result is not None and "failed" not in result and not result.get("refused")

    def _was_combined(self, step: str, agent: str) -> bool:
        """Return whether an agent has taken a step in the request of an earlier one."""
        earlier = [self.results.get(name, {}).get(agent, {}) for name in (CLAIM, APPLY) if name != step]
        return any(step in reply.get("steps", ()) for reply in earlier)


def read_start(decided: Mapping[str, Any], hostvars: Mapping[str, Mapping[str, Any]]) -> Start:
    """Return a start with what its agents have replied, from the variables that hold the results of the steps.

    Results of an earlier attempt, which bear another nonce, do not count.
    """
    results: dict[str, dict[str, Mapping[str, Any]]] = {}
    for agent in decided["agents"]:
        # To look up a host is what costs time.
        variables = hostvars[agent]
        for step in (*ORDER, REMOVE):
            reply = _find_reply(variables.get(result_variable(step)), str(decided["id"]), str(decided["nonce"]))
            if reply is not None:
                results.setdefault(step, {})[agent] = reply
    return Start(decided, results)


def agents_of_step(
    decided: Iterable[Mapping[str, Any]], step: str, hostvars: Mapping[str, Mapping[str, Any]], forks: int
) -> list[str]:
    """Return the agents that have something to do where a run has come to ``step``.

    At the last one these are the agents of all sessions that are not through: there is more to prove, a command to
    start, or something to take away.
    """
    starts = [read_start(each, hostvars) for each in decided]
    agents = [
        agent
        for start in starts
        for agent in start.agents
        if (start.failed if step == REMOVE else start.steps_of(agent, step, forks))
    ]
    return list(dict.fromkeys(agents))


def failed_replies(starts: Iterable[Start], reason: str) -> dict[str, dict[str, Any]]:
    """Return the replies about sessions where a task has failed as a whole: whose failures they are has to be known."""
    return {start.id: {"nonce": start.decided["nonce"], "failed": reason} for start in starts}


def result_variable(step: str) -> str:
    """Return the variable of an agent that holds the result of a step."""
    return f"__session_{step}"


def _find_reply(result: Mapping[str, Any] | None, session_id: str, nonce: str) -> Mapping[str, Any] | None:
    """Return what an agent replied about a session in one task; ``None`` where it was not asked."""
    if not result or result.get("skipped"):
        return None
    if "sessions" in result:
        reply = result["sessions"].get(session_id)
        return reply if reply and reply.get("nonce") == nonce else None
    if result.get("unreachable"):
        return {"failed": UNREACHABLE}
    return {"failed": str(result.get("msg") or "it failed without a word")}
