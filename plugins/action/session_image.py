# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Have a session's images on an agent: look until they are there, and show people how far the pulls are."""

from __future__ import annotations

import dataclasses
import itertools
import math
import time
from collections.abc import Mapping
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase

from ansible_collections.backendai.cluster.plugins.module_utils._model.images import (
    disagreement,
    found_images,
    reference_to,
)
from ansible_collections.backendai.cluster.plugins.module_utils._model.registries import Credential, registry_of
from ansible_collections.backendai.cluster.plugins.module_utils._model.validation import Problems
from ansible_collections.backendai.cluster.plugins.plugin_utils._request.registries import parse_registries

PAUSES = (0.5, 0.5, 0.5, 0.5, 1.0, 2.0, 5.0)
"""Seconds between looks, the last one from then on: small images cost no waiting."""


class ActionModule(ActionBase):
    """The action ``backendai.cluster.session_image``."""

    TRANSFERS_FILES = False

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result = super().run(tmp, task_vars)
        variables = task_vars or {}
        args = dict(self._task.args)
        names, found = list(args.pop("images", [])), found_images(args.pop("found", {}))
        credentials = _credentials(args.pop("registries", {}))
        wrong = disagreement(found)
        if wrong:
            raise AnsibleActionFail(f"{wrong}.")
        until = time.monotonic() + int(args["seconds"]) / 3 / _waves(variables)
        result |= {"changed": False, "diff": [], "images": {}, "under_way": []}
        wanted = [_wanted(name, reference_to(name, found), credentials) for name in names]
        # Without an image, the look renews the claim and nothing else.
        for place, one in enumerate(wanted or [{}]):
            looked = self._follow({**args, **one}, until, variables)
            if looked.get("failed"):
                return {**result, **looked}
            result["changed"] |= looked["changed"]
            result["diff"] += [looked["diff"]] if looked["changed"] else []
            result["images"] |= looked["images"]
            if looked["under_way"]:
                return {**result, "under_way": names[place:]}
        return result

    def _follow(self, args: dict[str, Any], until: float, variables: dict[str, Any]) -> dict[str, Any]:
        """Look at one image until it is there, or this turn is over; return the last look, with what the first changed.

        Where agents take turns, a turn that starts a pull is over at once: those that come after start theirs.
        """
        first = look = self._execute_module(module_args=args, task_vars=variables)
        told = ""
        for pause in itertools.chain(PAUSES, itertools.repeat(PAUSES[-1])):
            progress = look.get("progress") or told
            if progress != told:
                told = progress
                self._display.display(f"{variables['inventory_hostname']}: pulling {args['name']}: {told}")
            over = time.monotonic() + pause > until or (look.get("started") and _waves(variables) > 1)
            if over or not look.get("under_way"):
                break
            time.sleep(pause)
            look = self._execute_module(module_args=args, task_vars=variables)
        return {**look, "changed": first.get("changed", False), "diff": first.get("diff")}


def _credentials(given: Any) -> dict[str, Credential]:
    problems = Problems()
    credentials = parse_registries(problems, given)
    if problems:
        raise AnsibleActionFail(str(problems))
    return credentials


def _wanted(name: str, reference: str, credentials: Mapping[str, Credential]) -> dict[str, str]:
    """Return the module's options for an image; it gets the password of its own registry alone."""
    credential = credentials.get(registry_of(reference))
    return {"name": name, "reference": reference, **(dataclasses.asdict(credential) if credential else {})}


def _waves(variables: Mapping[str, Any]) -> int:
    """Return how often Ansible has to begin anew until all agents have had their turn."""
    agents, forks = len(variables.get("ansible_play_batch") or [""]), int(variables.get("ansible_forks") or 1)
    return math.ceil(agents / forks)
