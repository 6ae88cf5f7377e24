# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Pull images on an agent, for sessions or before they are needed, and remove them; show the progress."""

from __future__ import annotations

import itertools
import math
import time
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from ansible.errors import AnsibleActionFail, AnsibleConnectionFailure

from ..module_utils._model.errors import as_sentence
from ..module_utils._model.images import (
    Credential,
    ForeignReferenceError,
    image_mismatch,
    images_from_dict,
    pull_reference,
)
from ..module_utils._model.printable import printable
from ..module_utils._model.quantity import format_size
from ..module_utils._module import CONNECTION_OPTIONS, REGISTRY_OPTIONS
from ..plugin_utils._lifecycle.start_steps import PULL, UNREACHABLE, Start, failed_replies, read_start
from ..plugin_utils.agent_images import describe_left, describe_pruned, known_images, parse_names, parse_rules
from ..plugin_utils.host_action import HostAction
from ..plugin_utils.registry_logins import logins_for, read_registries

# Seconds between polls; the last one repeats. Short at first, so that small images cost little time.
PAUSES = (0.5, 0.5, 0.5, 0.5, 1.0, 2.0, 5.0)

# Timeout of one poll.
POLL_SECONDS = 60

RECORD = "this control node's record"
"""What has the images that a session was started with, next to the agents that have them now."""

NO_IMAGE: Mapping[str, Any] = {"name": "", "reference": "", "logins": {}}

WANTED_SECONDS = 120
"""How long a pull without a session goes on after the last poll of its run."""

PRUNE_SECONDS = 3600
"""Timeout of the removal of images."""

PREFETCH_OPTIONS: dict[str, dict[str, Any]] = {
    "state": {"type": "str"},
    "images": {"type": "list", "elements": "str", "required": True},
    "agents": {"type": "list", "elements": "str", "required": True},
}

PRUNE_OPTIONS: dict[str, dict[str, Any]] = {
    "state": {"type": "str"},
    "unused_days": {"type": "int", "default": 30},
    "free_space": {"type": "str", "default": ""},
    "others": {"type": "bool", "default": False},
    "images": {"type": "list", "elements": "str", "required": True},
}


class ActionModule(HostAction):
    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result, variables = super().run(tmp, task_vars), task_vars or {}
        states = {"claimed": self._pull_claimed, "present": self._prefetch, "absent": self._prune}
        return states[self._task.args.get("state", "claimed")](result, variables)

    def _pull_claimed(self, result: dict[str, Any], variables: dict[str, Any]) -> dict[str, Any]:
        """Pull images of sessions that are claimed, or only renew their claims."""
        args, agent = self._task.args, variables["inventory_hostname"]
        own = [decided for decided in args["starts"] if agent in decided["agents"]]
        all_starts = [read_start(decided, variables["hostvars"]) for decided in own]
        starts, sessions = (
            [start for start in all_starts if start.needs_pull(agent)],
            _previous_replies(all_starts, agent),
        )
        if not starts and not sessions:
            return {**result, "skipped": True}
        result |= {"changed": False, "diff": [], "sessions": sessions, "repeat": False}
        credentials = read_registries(variables, self._templar)
        until = time.monotonic() + int(args["claim_ttl"]) / 3 / _batch_count(variables)
        for start in starts:
            reply = {"nonce": start.decided["nonce"], "images": {}}
            try:
                self._pull_images(start, credentials, until, variables, result, reply)
            except (AnsibleActionFail, ForeignReferenceError) as error:
                reply["failed"] = as_sentence(str(error))
            except AnsibleConnectionFailure as error:
                sessions |= failed_replies(starts, UNREACHABLE)
                return {**result, "unreachable": True, "msg": str(error)}
            sessions[start.id] = reply
        return result

    def _pull_images(
        self,
        start: Start,
        credentials: Mapping[str, Credential],
        until: float,
        variables: dict[str, Any],
        result: dict[str, Any],
        reply: dict[str, Any],
    ) -> None:
        """Pull the images of a session one after the other, until all are present or this round ends."""
        recorded = start.decided["recorded_images"]
        images = images_from_dict({**start.decided["images"], **({RECORD: recorded} if recorded else {})})
        mismatch = image_mismatch(images)
        if mismatch:
            raise AnsibleActionFail(f"{mismatch}.")
        names = start.decided["missing_images"].get(variables["inventory_hostname"]) or []
        options = {
            **self.variables(CONNECTION_OPTIONS, "agent_", variables),
            "registry": self.variables(REGISTRY_OPTIONS, "agent_", variables),
            "session_id": start.id,
            "nonce": start.decided["nonce"],
            "seconds": int(self._task.args["claim_ttl"]),
        }
        # Without an image, the poll only renews the claim.
        wanted: list[Mapping[str, Any]] = [
            {"name": name, "reference": pull_reference(name, images), "logins": logins_for([name], credentials)}
            for name in names
        ]
        for image in wanted or [NO_IMAGE]:
            status = self._poll({**options, **image}, until, variables)
            result["changed"] |= status["changed"]
            result["repeat"] |= status["changed"] and not self._task.check_mode
            result["diff"] += [status["diff"]] if status["changed"] and status.get("diff") else []
            reply["images"] |= status["images"]
            if status["under_way"]:
                return

    def _poll(self, options: dict[str, Any], until: float, variables: dict[str, Any]) -> dict[str, Any]:
        """Poll an image until it is present, or this round ends; return the last reply, with the changes of the first.

        With fewer forks than agents, a round that starts a pull ends at once, so that the next agents start theirs.
        """
        ends_early = not math.isinf(until) and _batch_count(variables) > 1
        first = status = self.call("pull", options, variables, POLL_SECONDS)
        shown = ""
        for pause in itertools.chain(PAUSES, itertools.repeat(PAUSES[-1])):
            progress = status.get("progress") or shown
            if progress != shown:
                shown = progress
                self._display.display(f"{variables['inventory_hostname']}: pulling {options['name']}: {shown}")
            finished = time.monotonic() + pause > until or (ends_early and status.get("started"))
            if finished or not status.get("under_way"):
                break
            time.sleep(pause)
            status = self.call("pull", options, variables, POLL_SECONDS)
        return {**status, "changed": first.get("changed", False), "diff": first.get("diff")}

    def _prefetch(self, result: dict[str, Any], variables: dict[str, Any]) -> dict[str, Any]:
        """Pull images that no session needs yet, each one even if another has failed."""
        options, agent = self.options(PREFETCH_OPTIONS, self._task.args), variables["inventory_hostname"]
        credentials = read_registries(variables, self._templar)
        known = known_images(options["agents"], variables["hostvars"])
        request = {
            **self.variables(CONNECTION_OPTIONS, "agent_", variables),
            "registry": self.variables(REGISTRY_OPTIONS, "agent_", variables),
            "session_id": "",
            "nonce": uuid.uuid4().hex,
            "seconds": WANTED_SECONDS,
        }
        result |= {"changed": False, "diff": [], "images": {}, "missing": []}
        failures = []
        for name in parse_names(options["images"]):
            images = {other: {name: held[name]} for other, held in known.items() if name in held}
            try:
                mismatch = image_mismatch(images)
                if mismatch:
                    raise AnsibleActionFail(mismatch)
                wanted = {
                    "name": name,
                    "reference": pull_reference(name, images),
                    "logins": logins_for([name], credentials),
                }
                status = self._poll({**request, **wanted}, math.inf, variables)
            except (AnsibleActionFail, ForeignReferenceError) as error:
                failures.append(as_sentence(f"agent_images: {str(error).removeprefix('session_image: ')}"))
                result["missing"].append(name)
                continue
            result["changed"] |= status["changed"]
            result["diff"] += [status["diff"]] if status["changed"] and status.get("diff") else []
            result["images"] |= status["images"]
            size = format_size(status.get("size") or 0)
            done = f"was pulled, {size}" if status["changed"] else f"was there, {size}"
            self._display.display(printable(f"{agent}: {name} {done if status['images'] else 'would be pulled'}."))
        return {**result, **({"failed": True, "msg": " ".join(failures)} if failures else {})}

    def _prune(self, result: dict[str, Any], variables: dict[str, Any]) -> dict[str, Any]:
        """Remove images that neither containers nor sessions nor the queue need."""
        options, agent = self.options(PRUNE_OPTIONS, self._task.args), variables["inventory_hostname"]
        rules = parse_rules(options)
        request = {**self.variables(CONNECTION_OPTIONS, "agent_", variables), "rules": rules}
        reply = self.call("prune", request, variables, PRUNE_SECONDS)
        for line in describe_pruned(reply, check_mode=self._task.check_mode):
            self._display.display(printable(f"{agent}: {line}"))
        warnings = [printable(f"{agent}: {line}") for line in describe_left(reply, rules["free_bytes"])]
        return {**result, **reply, **({"warnings": warnings} if warnings else {})}


def _previous_replies(starts: Sequence[Start], agent: str) -> dict[str, dict[str, Any]]:
    """Return the agent's replies of the previous round, which may have been the last one of a session."""
    return {
        start.id: {**start.results[PULL][agent], "nonce": start.decided["nonce"]}
        for start in starts
        if agent in start.results.get(PULL, {})
    }


def _batch_count(variables: Mapping[str, Any]) -> int:
    """Return the number of batches in which Ansible runs a task on all agents."""
    agents, forks = len(variables.get("ansible_play_batch") or [""]), int(variables.get("ansible_forks") or 1)
    return math.ceil(agents / forks)
