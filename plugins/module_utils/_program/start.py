# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The start phase: an agent's part of the sessions that a run starts, as steps: claim, apply, commit, command.

All agents of a session complete a step before any begins the next one, so a request names the steps to run now; all of
them if a session has one agent. The failure of one session is part of the result, and does not stop the others. A step
imports what it needs: half of the time that a claim takes would be the import of the steps after it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from .._docker.client import connect
from .._host.store import Store
from .._host.threads import in_threads
from .._model.change import Change, as_diff
from .._model.errors import EXPECTED, CheckFailedError, ClusterError, sentence
from .._model.images import images_from_dict
from .._model.limits import ContainerLimits, parse_limits
from .._model.plan import SessionPlan
from .._session.facts import AgentSettings

if TYPE_CHECKING:
    import docker

CHECK_SECONDS, FIRST_CHECK_SECONDS = 30, 3
"""The timeouts of the session check: the final one, and one for an early attempt along with the start."""


@dataclasses.dataclass
class Part:
    """The request for one session, and its result so far; ``ended`` if it takes no more steps."""

    request: Mapping[str, Any]
    check_mode: bool
    changes: list[Change] = dataclasses.field(default_factory=list)
    result: dict[str, Any] = dataclasses.field(default_factory=dict)
    completed: list[str] = dataclasses.field(default_factory=list)
    ended: bool = False

    @property
    def session(self) -> tuple[str, str]:
        """The id of the session, and the nonce of the run that claims it."""
        return self.request["id"], self.request["nonce"]

    @property
    def may_commit_later(self) -> bool:
        """Whether a failed check is no error yet: other agents may not have started their containers."""
        return bool(self.request.get("may_commit_later"))


def start(options: Mapping[str, Any], check_mode: bool) -> dict[str, Any]:
    """Run the ``steps`` of each of ``sessions``; return ``changed``, ``diff``, and the result of each by its id.

    A result has the ``steps`` that succeeded and their results, ``public_keys``, ``containers`` and, if there are any,
    ``lost_output`` of replaced containers and ``warnings``, sentences; ``refused`` if another run was faster;
    ``failed`` with a sentence, and the lines that a container ``printed`` before; or ``starting`` if containers take
    longer than the ``patience`` of the request. After these, no more steps run. With ``may_commit_later``, because
    other agents may still work on the session, a failed check is not a failure.

    Sessions claim in their order. Then they start side by side: no bootstrap script delays the commit of another.
    """
    limits = parse_limits(options["limits"])
    client, store = connect(options["docker_host"]), Store(options["state_path"])
    parts = [Part(request, check_mode) for request in options["sessions"]]
    agent, names = Agent(client, store, options, limits), list(STEPS)
    for part in parts:
        _take_steps(agent, part, names[:1])
    in_threads(lambda part: _take_steps(agent, part, names[1:]), parts, threads=len(parts))
    changes = [change for part in parts for change in part.changes]
    results = {part.request["id"]: {"steps": part.completed, **part.result} for part in parts}
    return {"changed": bool(changes), "diff": as_diff(changes), "sessions": results}


@dataclasses.dataclass(frozen=True)
class Agent:
    """The agent that the program runs on: its engine, its stored state, the options of the request, and its limits."""

    client: docker.APIClient
    store: Store
    options: Mapping[str, Any]
    limits: ContainerLimits

    @property
    def settings(self) -> AgentSettings:
        """The settings of the agent in the inventory."""
        return AgentSettings(**self.options["settings"], docker_host=self.options["docker_host"])

    def claim(self, part: Part) -> None:
        """Claim resources; a plan that no longer fits is refused."""
        from .._session.claim import ClaimRefusedError, ClaimRequest, claim

        request = part.request
        names = ("agent", "nonce", "seconds", "stale_sessions", "never_completed")
        values = {**{name: request[name] for name in names}, "applied_next": "apply" in request["steps"]}
        claim_request = ClaimRequest(SessionPlan.from_dict(request["plan"]), **values)
        try:
            result = claim(
                self.client,
                self.store,
                self.settings,
                claim_request,
                check_mode=part.check_mode,
            )
        except ClaimRefusedError as refusal:
            part.result["refused"] = str(refusal)
            return
        part.changes += result.changes
        part.result["public_keys"] = {name: dataclasses.asdict(keys) for name, keys in result.keys.items()}
        if result.warnings:
            part.result["warnings"] = list(result.warnings)

    def apply(self, part: Part) -> None:
        """Apply files, network and containers of the plan."""
        from .._session.apply import ApplyRequest, apply_claimed
        from .._session.contents import RenderedFiles
        from .._session.image_access import ImageAccess

        request = part.request
        keys = {**request["public_keys"], **part.result.get("public_keys", {})}
        contents = RenderedFiles.from_options({**request["contents"], "public_keys": keys})
        plan = SessionPlan.from_dict(request["plan"])
        network, images = self.options["default_network"], images_from_dict(request["images"])
        apply_request = ApplyRequest(
            plan,
            request["agent"],
            request["nonce"],
            contents,
            network,
            images,
            ImageAccess.from_options(request["logins"], self.options["registry"]),
            limits=self.limits,
            mounts=self.settings.mounts,
            patience=request.get("patience"),
            fresh_home=request.get("fresh_home", False),
        )
        changes, ready, lost = apply_claimed(self.client, self.store, apply_request, check_mode=part.check_mode)
        part.changes += changes
        if lost:
            part.result["lost_output"] = [f"{hostname}: {problem}" for hostname, problem in lost.items()]
        if not ready:
            part.result["starting"] = part.ended = True

    def ready(self, part: Part) -> None:
        """Go on waiting for containers that take long to start."""
        from .._session.apply import await_claimed

        await_claimed(self.client, self.store, *part.session)

    def commit(self, part: Part) -> None:
        """Check the session on this agent, and commit it."""
        if part.check_mode:
            return
        from .._session.check import check_and_commit

        seconds = FIRST_CHECK_SECONDS if part.may_commit_later else CHECK_SECONDS
        part.result["containers"] = check_and_commit(self.client, self.store, *part.session, seconds)

    def command(self, part: Part) -> None:
        """Start the session's command in the containers that run it."""
        if not part.check_mode:
            from .._session.command import start_command

            part.changes += start_command(self.store, *part.session, check_mode=False)


STEPS: dict[str, Callable[[Agent, Part], None]] = {
    "claim": Agent.claim,
    "apply": Agent.apply,
    "ready": Agent.ready,
    "commit": Agent.commit,
    "command": Agent.command,
}


def _take_steps(agent: Agent, part: Part, names: Iterable[str]) -> None:
    """Take those of the requested steps that have these names, until one fails."""
    for name in part.request["steps"]:
        if name not in names or part.ended:
            continue
        try:
            STEPS[name](agent, part)
        except CheckFailedError as error:
            if part.may_commit_later:
                part.ended = True
                return
            part.result["failed"] = sentence(error)
        except EXPECTED as error:
            part.result["failed"] = sentence(error)
            if isinstance(error, ClusterError) and error.printed:
                part.result["printed"] = list(error.printed)
        if "failed" in part.result or "refused" in part.result:
            part.ended = True
            return
        part.completed.append(name)
