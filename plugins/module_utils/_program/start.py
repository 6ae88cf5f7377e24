# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The start phase: an agent's part of the sessions that a run starts, as steps: claim, apply, commit, command.

All agents of a session complete a step before any begins the next one, so a request names the steps to run now; all of
them if a session has one agent. The failure of one session is part of the result, and does not stop the others.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from .._docker.client import connect
from .._host.store import Store
from .._model.change import Change, as_diff
from .._model.errors import EXPECTED, sentence
from .._model.images import images_from_dict
from .._model.limits import ContainerLimits, parse_limits
from .._model.plan import SessionPlan
from .._session.apply import ApplyRequest, apply_claimed
from .._session.check import CheckFailedError, check_and_commit
from .._session.claim import ClaimRefusedError, ClaimRequest, claim
from .._session.command import start_command
from .._session.contents import RenderedFiles
from .._session.facts import AgentSettings

if TYPE_CHECKING:
    import docker

CHECK_SECONDS, FIRST_CHECK_SECONDS = 30, 3
"""The timeouts of the session check: the final one, and one for an early attempt along with the start."""


@dataclasses.dataclass
class Part:
    """The request for one session, and its result so far."""

    request: Mapping[str, Any]
    check_mode: bool
    changes: list[Change] = dataclasses.field(default_factory=list)
    result: dict[str, Any] = dataclasses.field(default_factory=dict)
    completed: list[str] = dataclasses.field(default_factory=list)

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

    A result has the ``steps`` that succeeded and their results, ``public_keys`` and ``containers``; ``refused`` if
    another run was faster; or ``failed`` with a sentence. After either, no more steps run. With ``may_commit_later``,
    because other agents may still work on the session, a failed check is not a failure.
    """
    limits = parse_limits(options["limits"])
    client, store = connect(options["docker_host"]), Store(options["state_path"])
    parts = [Part(request, check_mode) for request in options["sessions"]]
    for part in parts:
        _take_steps(Agent(client, store, options, limits), part)
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

    def claim(self, part: Part) -> None:
        """Claim resources; a plan that no longer fits is refused."""
        request = part.request
        names = ("request", "agent", "nonce", "seconds", "stale_sessions", "never_completed")
        claim_request = ClaimRequest(SessionPlan.from_dict(request["plan"]), *(request[name] for name in names))
        try:
            result = claim(
                self.client,
                self.store,
                AgentSettings(**self.options["settings"]),
                claim_request,
                check_mode=part.check_mode,
            )
        except ClaimRefusedError as refusal:
            part.result["refused"] = str(refusal)
            return
        part.changes += result.changes
        part.result["public_keys"] = {name: dataclasses.asdict(keys) for name, keys in result.keys.items()}

    def apply(self, part: Part) -> None:
        """Apply files, network and containers of the plan."""
        request = part.request
        keys = {**request["public_keys"], **part.result.get("public_keys", {})}
        contents = RenderedFiles.from_options({**request["contents"], "public_keys": keys})
        plan = SessionPlan.from_dict(request["plan"])
        network, images = self.options["default_network"], images_from_dict(request["images"])
        apply_request = ApplyRequest(plan, request["agent"], request["nonce"], contents, network, images, self.limits)
        part.changes += apply_claimed(self.client, self.store, apply_request, check_mode=part.check_mode)

    def commit(self, part: Part) -> None:
        """Check the session on this agent, and commit it."""
        if part.check_mode:
            return
        seconds = FIRST_CHECK_SECONDS if part.may_commit_later else CHECK_SECONDS
        part.result["containers"] = check_and_commit(self.client, self.store, *part.session, seconds)

    def command(self, part: Part) -> None:
        """Start the session's command in the containers that run it."""
        if not part.check_mode:
            part.changes += start_command(self.store, *part.session, check_mode=False)


STEPS: dict[str, Callable[[Agent, Part], None]] = {
    "claim": Agent.claim,
    "apply": Agent.apply,
    "commit": Agent.commit,
    "command": Agent.command,
}


def _take_steps(agent: Agent, part: Part) -> None:
    for name in part.request["steps"]:
        try:
            STEPS[name](agent, part)
        except CheckFailedError as error:
            if part.may_commit_later:
                return
            part.result["failed"] = sentence(error)
        except EXPECTED as error:
            part.result["failed"] = sentence(error)
        if "failed" in part.result or "refused" in part.result:
            return
        part.completed.append(name)
