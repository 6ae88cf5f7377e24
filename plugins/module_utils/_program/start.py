# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""An agent's part of the sessions that a run starts: claimed, applied, proven and committed, the command started.

Each is a step that all agents of a session take before any takes the next one, so a request names the steps that are
to be taken now: all of them where a session has one agent. What goes wrong with one session is a value, and stops no
other.
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
"""How long containers may take to meet each other: at last, and where that is only tried along with their start."""


@dataclasses.dataclass
class Part:
    """What one request asks about one session, and what came of it so far."""

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
    def may_prove_later(self) -> bool:
        """Whether the proof is only tried: other agents may still be at work."""
        return bool(self.request.get("may_prove_later"))


def start(options: Mapping[str, Any], check_mode: bool) -> dict[str, Any]:
    """Take the ``steps`` of each of ``sessions``; return ``changed``, ``diff``, and the result of each by its id.

    A result has the ``steps`` that succeeded and what they gave: ``public_keys`` and ``containers``; ``refused`` where
    other runs were faster; ``failed`` with a sentence. After either, no more steps are taken. A session that
    ``may_prove_later``, because other agents may still be at work on it, has not failed when its proof does.
    """
    client, store = connect(options["docker_host"]), Store(options["state_path"])
    parts = [Part(request, check_mode) for request in options["sessions"]]
    for part in parts:
        _take_steps(Agent(client, store, options), part)
    changes = [change for part in parts for change in part.changes]
    results = {part.request["id"]: {"steps": part.completed, **part.result} for part in parts}
    return {"changed": bool(changes), "diff": as_diff(changes), "sessions": results}


@dataclasses.dataclass(frozen=True)
class Agent:
    """The agent that the program runs on: its engine, what it remembers, and what the request says of it."""

    client: docker.APIClient
    store: Store
    options: Mapping[str, Any]

    def claim(self, part: Part) -> None:
        """Claim room; a plan that no longer fits is refused."""
        request = part.request
        names = ("request", "agent", "nonce", "seconds", "stale_sessions", "never_completed")
        claim_request = ClaimRequest(SessionPlan.from_dict(request["plan"]), *(request[name] for name in names))
        try:
            result = claim(
                self.client, self.store, AgentSettings(**self.options["settings"]), claim_request, dry=part.check_mode
            )
        except ClaimRefusedError as refusal:
            part.result["refused"] = str(refusal)
            return
        part.changes += result.changes
        part.result["public_keys"] = {name: dataclasses.asdict(keys) for name, keys in result.keys.items()}

    def apply(self, part: Part) -> None:
        """Make files, network and containers what the plan says."""
        request = part.request
        keys = {**request["public_keys"], **part.result.get("public_keys", {})}
        contents = RenderedFiles.from_options({**request["contents"], "public_keys": keys})
        plan = SessionPlan.from_dict(request["plan"])
        network, images = self.options["default_network"], images_from_dict(request["images"])
        apply_request = ApplyRequest(plan, request["agent"], request["nonce"], contents, network, images)
        part.changes += apply_claimed(self.client, self.store, apply_request, dry=part.check_mode)

    def prove(self, part: Part) -> None:
        """Let the session prove itself here, and commit it."""
        if part.check_mode:
            return
        seconds = FIRST_CHECK_SECONDS if part.may_prove_later else CHECK_SECONDS
        part.result["containers"] = check_and_commit(self.client, self.store, *part.session, seconds, commit=True)

    def command(self, part: Part) -> None:
        """Start the session's command in the containers that run it."""
        if not part.check_mode:
            part.changes += start_command(self.store, *part.session, dry=False)


STEPS: dict[str, Callable[[Agent, Part], None]] = {
    "claim": Agent.claim,
    "apply": Agent.apply,
    "prove": Agent.prove,
    "command": Agent.command,
}


def _take_steps(agent: Agent, part: Part) -> None:
    for name in part.request["steps"]:
        try:
            STEPS[name](agent, part)
        except CheckFailedError as error:
            if part.may_prove_later:
                return
            part.result["failed"] = sentence(error)
        except EXPECTED as error:
            part.result["failed"] = sentence(error)
        if "failed" in part.result or "refused" in part.result:
            return
        part.completed.append(name)
