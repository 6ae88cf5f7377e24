# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The steps of a start on all agents of a session: the next steps of an agent, and the result of all steps.

A step begins when every agent of the session has succeeded in the previous one. A session with one agent takes all
steps in one request. If all agents of a session work at the same time, their containers can reach each other during the
request that starts them, so that request also runs the check; a check that does not pass is repeated as its own step.

If several sessions start together, agents wait for containers for a limited time. A session with containers that take
longer is "starting": the others are completed without it, and then it goes on with the step ``ready``.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

from ...module_utils._model.errors import one_line
from ...module_utils._model.images import ImageIdentity
from ...module_utils._model.plain_data import to_plain
from ...module_utils._model.plan import Kernel
from .._planner.decision import Decision

CLAIM, PULL, APPLY, READY, COMMIT, COMMAND, REMOVE = (
    "claim",
    "pull",
    "apply",
    "ready",
    "commit",
    "command",
    "remove",
)
ORDER = (CLAIM, PULL, APPLY, READY, COMMIT, COMMAND)

UNREACHABLE, NO_RESULT = "it became unreachable", "it returned no result"

Reply = Mapping[str, Any]
"""What an agent has replied to a step of one session."""

Results = Mapping[str, Mapping[str, Reply]]
"""The replies of agents for one session: by step, then by agent. Agents that take no part in a step are absent."""


def start_arguments(
    decision: Decision,
    stale_sessions: Iterable[str],
    *,
    nonce: str,
    never_completed: bool,
    recorded_images: Mapping[str, ImageIdentity] | None = None,
) -> dict[str, Any]:
    """Return the arguments that agents need to carry out a decision, without secrets.

    ``nonce`` is of this start alone. ``never_completed``: the session is in the queue, and no run has completed it yet;
    this start claims what agents have committed for another one, so that they remove it if the start fails.
    ``stale_sessions`` are the ids of sessions that ended while an agent was unreachable: agents that still hold them
    remove them. ``recorded_images`` are those that the session was started with, by name. What agents have committed
    before stays if the start fails and ``repairs`` another one: an earlier run has completed it.
    """
    plan = decision.plan
    return {
        "plan": plan.to_dict(),
        "id": plan.id,
        "existing": decision.existing,
        "never_completed": never_completed,
        "repairs": decision.committed and not never_completed,
        "agents": plan.agents,
        "missing_images": decision.missing_images,
        "images": decision.images,
        "recorded_images": to_plain(dict(recorded_images or {})),
        "route_problem": decision.route_problem,
        "public_keys": {} if never_completed else decision.public_keys,
        "nonce": nonce,
        "stale_sessions": list(stale_sessions),
    }


@dataclasses.dataclass(frozen=True)
class Start:
    """One session that a run starts, and the replies of its agents so far.

    ``decided`` is plain data as made by :func:`start_arguments`. ``broken`` is why the run could not go on, a phrase;
    empty if it could.
    """

    decided: Mapping[str, Any]
    results: Results = dataclasses.field(default_factory=dict)
    broken: str = ""

    def after(self, step: str, replies: Mapping[str, Reply]) -> Start:
        """Return this with the replies of agents to a step; there are none of those that take no part in it."""
        if not replies:
            return self
        known = self.results.get(step, {})
        return dataclasses.replace(self, results={**self.results, step: {**known, **replies}})

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
        """Whether an earlier run has completed the session on all agents, so that no claim is needed."""
        return bool(self.decided["public_keys"])

    @property
    def repairs(self) -> bool:
        """Whether an earlier run has started the session: what that has committed stays if this start fails."""
        return bool(self.decided["repairs"])

    @property
    def public_keys(self) -> dict[str, dict[str, str]]:
        """The public keys of its containers, as far as they are known."""
        keys = dict(self.decided["public_keys"])
        for result in self.results.get(CLAIM, {}).values():
            keys.update(result.get("public_keys") or {})
        return keys

    def host_keys(self, kernels: Iterable[Kernel]) -> dict[str, str]:
        """Return the public host keys of containers by hostname, each as the container's own agent has it."""
        known = self.decided["public_keys"]
        claims = {agent: result.get("public_keys") or {} for agent, result in self.results.get(CLAIM, {}).items()}
        keys = {kernel.hostname: {**known, **claims.get(kernel.agent, {})}.get(kernel.hostname) for kernel in kernels}
        return {hostname: str(pair["host"]) for hostname, pair in keys.items() if pair}

    @property
    def images(self) -> dict[str, dict[str, Any]]:
        """The images of its agents, by agent and name, including pulled ones."""
        images = {agent: dict(references) for agent, references in self.decided["images"].items()}
        for agent, reply in self.results.get(PULL, {}).items():
            images.setdefault(agent, {}).update(reply.get("images") or {})
        return images

    def steps_of(self, agent: str, step: str, forks: int) -> list[str]:
        """Return the steps that an agent takes now that the run is at ``step``.

        ``forks`` is the number of agents that work at the same time.
        """
        if agent not in self._participants(step) or not self._succeeded_before(step):
            return []
        if self._is_single_request:
            # The first request includes all steps, and that of containers that take long all that remain.
            names = {CLAIM: (CLAIM, APPLY, COMMIT, COMMAND), READY: (READY, COMMIT, COMMAND)}.get(step, ())
            steps = [name for name in names if self._participants(name)]
            return [name for name in steps if name != CLAIM or not self.committed]
        if step == COMMIT and self._succeeded(COMMIT, agent):
            return []
        return [APPLY, COMMIT] if step == APPLY and len(self.agents) <= forks else [step]

    @property
    def needs_pull(self) -> bool:
        """Whether agents have to pull images for this session."""
        return bool(self.decided["missing_images"]) and self._succeeded_before(PULL)

    @property
    def awaits_pulls(self) -> bool:
        """Whether agents have to pull images, or hold a claim meanwhile: no session is applied before all have theirs.

        One that an earlier run has completed is no claim.
        """
        return self.needs_pull or (not self._is_single_request and not self.committed and self._succeeded_before(PULL))

    @property
    def starting(self) -> bool:
        """Whether containers of the session take longer than agents have waited, and no agent has gone on waiting."""
        return bool(self._participants(READY)) and READY not in self.results and self._succeeded_before(READY)

    @property
    def complete(self) -> bool:
        """Whether all agents have succeeded in all steps: whatever happens to the run, the session stays."""
        return self._succeeded_before(REMOVE)

    @property
    def has_failure(self) -> bool:
        """Whether an agent has said that its step failed, for whatever reason."""
        return any("failed" in reply for step in ORDER for reply in self.results.get(step, {}).values())

    @property
    def rolled_back(self) -> bool:
        """Whether all agents have been told to remove their parts, and have answered."""
        return self.results.get(REMOVE, {}).keys() >= {*self.agents}

    @property
    def may_be_held(self) -> bool:
        """Whether agents may have something of the session: not all have removed their parts."""
        removals = self.results.get(REMOVE, {}).values()
        return not self.rolled_back or any("failed" in reply for reply in removals)

    @property
    def failed(self) -> bool:
        """Whether the session has to be rolled back: a step failed, or was refused, on any agent, or is unfinished."""
        return not self.complete and (bool(self.broken) or not self.starting)

    def outcome_on(self, agent: str) -> dict[str, Any]:
        """Return the result of the start on one agent.

        It has ``failed`` (why) only if a step failed, ``refused`` (why), the lines that containers ``printed`` before,
        the states of its ``containers``, and ``rollback_failed``.
        """
        outcome: dict[str, Any] = {"refused": "", "printed": [], "containers": {}, "rollback_failed": False}
        for step in ORDER:
            result = self._result(step, agent)
            outcome["refused"] = outcome["refused"] or one_line(result.get("refused") or "")
            outcome["printed"] += result.get("printed") or []
            outcome["containers"] |= result.get("containers") or {}
            if "failed" in result:
                outcome["failed"] = result["failed"] or ""
        removed, unknown = self.results.get(REMOVE, {}).get(agent), bool(self.broken) and not self.complete
        if removed is None:
            outcome["rollback_failed"] = unknown or outcome.get("failed") == NO_RESULT
        else:
            outcome["rollback_failed"] = "failed" in removed
        return outcome

    @property
    def refusals(self) -> list[str]:
        """Why agents refused their parts because other runs were faster; empty if there were other errors."""
        outcomes = [self.outcome_on(agent) for agent in self.agents]
        reasons = [outcome["refused"] for outcome in outcomes if outcome["refused"]]
        return reasons if not any("failed" in outcome for outcome in outcomes) else []

    @property
    def _is_single_request(self) -> bool:
        return len(self.agents) == 1 and not self.decided["missing_images"]

    def _participants(self, step: str) -> list[str]:
        """Return the agents that take part in a step."""
        plan = self.decided["plan"]
        if step == CLAIM:
            return [] if self.committed and not self._is_single_request else self.agents
        if step == PULL:
            return self.agents if self.decided["missing_images"] else []
        if step == READY:
            return [agent for agent in self.agents if self._is_starting_on(agent)]
        if step == COMMAND:
            running = self.agents if plan["command_scope"] == "all" else [plan["kernels"][0]["agent"]]
            return running if plan["command"] else []
        return self.agents

    def _succeeded_before(self, step: str) -> bool:
        """Return whether all agents have succeeded in all steps before ``step``."""
        before = ORDER[: ORDER.index(step)] if step in ORDER else ORDER
        return all(self._succeeded(name, agent) for name in before for agent in self._participants(name))

    def _result(self, step: str, agent: str) -> Mapping[str, Any]:
        """Return the reply of an agent to a step: empty if the step has not begun, a failure if there was no reply."""
        if agent not in self._participants(step) or not self._succeeded_before(step):
            # The result is that of an earlier start.
            return {}
        if self._was_combined(step, agent):
            # The result is that of other sessions.
            return {}
        return self.results.get(step, {}).get(agent, {} if self._succeeded(step, agent) else {"failed": NO_RESULT})

    def _succeeded(self, step: str, agent: str) -> bool:
        if self._was_combined(step, agent):
            return True
        result = self.results.get(step, {}).get(agent)
        return result is not None and "failed" not in result and not result.get("refused")

    def _was_combined(self, step: str, agent: str) -> bool:
        """Return whether an agent has taken a step as part of the request of an earlier step."""
        earlier = [self.results.get(name, {}).get(agent, {}) for name in (CLAIM, APPLY, READY) if name != step]
        return any(step in reply.get("steps", ()) for reply in earlier)

    def _is_starting_on(self, agent: str) -> bool:
        """Return whether containers on an agent were not ready when it stopped waiting."""
        return any(self.results.get(step, {}).get(agent, {}).get("starting") for step in (CLAIM, APPLY))
