# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Have the images of sessions on an agent: look until they are there, and show people how far the pulls are."""

from __future__ import annotations

import dataclasses
import itertools
import math
import time
from collections.abc import Mapping, Sequence
from typing import Any

from ansible.errors import AnsibleActionFail, AnsibleConnectionFailure

from ..module_utils._model.images import Credential, image_mismatch, images_from_dict, pull_reference, registry_of
from ..module_utils._model.validation import ValidationErrors
from ..module_utils._module import CONNECTION_OPTIONS
from ..plugin_utils._lifecycle.start_steps import PULL, UNREACHABLE, Start, failed_replies, read_start
from ..plugin_utils._request.registries import parse_registries
from ..plugin_utils.host_action import HostAction

# Seconds between looks, the last one from then on: small images cost no waiting.
PAUSES = (0.5, 0.5, 0.5, 0.5, 1.0, 2.0, 5.0)

LOOK_SECONDS = 60

NO_IMAGE = {"name": "", "reference": "", "username": "", "password": ""}


class ActionModule(HostAction):
    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result = super().run(tmp, task_vars)
        variables, args = task_vars or {}, self._task.args
        agent = variables["inventory_hostname"]
        listed = [read_start(decided, variables["hostvars"]) for decided in args["starts"]]
        starts, sessions = [start for start in listed if start.needs_pull(agent)], _of_turn_before(listed, agent)
        if not starts and not sessions:
            return {**result, "skipped": True}
        result |= {"changed": False, "diff": [], "sessions": sessions, "again": False}
        credentials = _credentials(args.get("registries") or {})
        until = time.monotonic() + int(args["claim_ttl"]) / 3 / _batches(variables)
        for start in starts:
            reply = {"nonce": start.decided["nonce"], "images": {}}
            try:
                self._have(start, credentials, until, variables, result, reply)
            except AnsibleActionFail as error:
                reply["failed"] = str(error)
            except AnsibleConnectionFailure as error:
                sessions |= failed_replies(starts, UNREACHABLE)
                return {**result, "unreachable": True, "msg": str(error)}
            sessions[start.id] = reply
        return result

    def _have(
        self,
        start: Start,
        credentials: Mapping[str, Credential],
        until: float,
        variables: dict[str, Any],
        result: dict[str, Any],
        reply: dict[str, Any],
    ) -> None:
        """Look at all images of a session in turn, until all are there or this turn is over."""
        known = images_from_dict(start.decided["images"])
        wrong = image_mismatch(known)
        if wrong:
            raise AnsibleActionFail(f"{wrong}.")
        names = start.decided["missing_images"].get(variables["inventory_hostname"]) or []
        options = {
            **self.variables(CONNECTION_OPTIONS, "agent_", variables),
            "session_id": start.id,
            "nonce": start.decided["nonce"],
            "seconds": int(self._task.args["claim_ttl"]),
        }
        # Without an image, the look renews the claim and nothing else.
        for image in [_image(name, pull_reference(name, known), credentials) for name in names] or [NO_IMAGE]:
            look = self._follow({**options, **image}, until, variables)
            result["changed"] |= look["changed"]
            result["again"] |= look["changed"] and not self._task.check_mode
            result["diff"] += [look["diff"]] if look["changed"] and look.get("diff") else []
            reply["images"] |= look["images"]
            if look["under_way"]:
                return

    def _follow(self, options: dict[str, Any], until: float, variables: dict[str, Any]) -> dict[str, Any]:
        """Look at one image until it is there, or this turn is over; return the last look, with what the first changed.

        Where agents take turns, a turn that starts a pull is over at once: those that come after start theirs.
        """
        first = look = self.ask("pull", options, variables, LOOK_SECONDS)
        shown = ""
        for pause in itertools.chain(PAUSES, itertools.repeat(PAUSES[-1])):
            progress = look.get("progress") or shown
            if progress != shown:
                shown = progress
                self._display.display(f"{variables['inventory_hostname']}: pulling {options['name']}: {shown}")
            over = time.monotonic() + pause > until or (look.get("started") and _batches(variables) > 1)
            if over or not look.get("under_way"):
                break
            time.sleep(pause)
            look = self.ask("pull", options, variables, LOOK_SECONDS)
        return {**look, "changed": first.get("changed", False), "diff": first.get("diff")}


def _of_turn_before(starts: Sequence[Start], agent: str) -> dict[str, dict[str, Any]]:
    """Return what the agent replied about sessions in the turn before: it may have been their last one."""
    return {
        start.id: {**start.results[PULL][agent], "nonce": start.decided["nonce"]}
        for start in starts
        if agent in start.results.get(PULL, {})
    }


def _credentials(given: Any) -> dict[str, Credential]:
    problems = ValidationErrors()
    credentials = parse_registries(problems, given)
    if problems:
        raise AnsibleActionFail(str(problems))
    return credentials


def _image(name: str, reference: str, credentials: Mapping[str, Credential]) -> dict[str, str]:
    """Return what an agent has to know of an image; it gets the password of its own registry alone."""
    credential = credentials.get(registry_of(reference))
    return {**NO_IMAGE, "name": name, "reference": reference, **(dataclasses.asdict(credential) if credential else {})}


def _batches(variables: Mapping[str, Any]) -> int:
    """Return how often Ansible has to begin anew until all agents have had their turn."""
    agents, forks = len(variables.get("ansible_play_batch") or [""]), int(variables.get("ansible_forks") or 1)
    return math.ceil(agents / forks)
