# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Pull images on an agent before sessions need them, and remove them; show the progress."""

from __future__ import annotations

import itertools
import time
import uuid
from typing import Any

from ansible.errors import AnsibleActionFail

from ..module_utils._model.errors import as_sentence, one_line
from ..module_utils._model.images import ForeignReferenceError, image_mismatch, pull_reference
from ..module_utils._model.printable import printable
from ..module_utils._model.quantity import format_size
from ..module_utils._module import CONNECTION_OPTIONS, REGISTRY_OPTIONS
from ..plugin_utils._lifecycle.pulls import PAUSES
from ..plugin_utils.agent_images import describe_left, describe_pruned, known_images, parse_names, parse_rules
from ..plugin_utils.host_action import HostAction
from ..plugin_utils.registry_logins import logins_for, read_registries

# Timeout of one poll.
POLL_SECONDS = 60

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
        states = {"present": self._prefetch, "absent": self._prune}
        return states[self._task.args.get("state", "present")](result, variables)

    def _poll(self, options: dict[str, Any], variables: dict[str, Any]) -> dict[str, Any]:
        """Poll an image until it is present; return the last reply, with the changes of the first."""
        first = status = self.call("pull", options, variables, POLL_SECONDS)
        shown = ""
        for pause in itertools.chain(PAUSES, itertools.repeat(PAUSES[-1])):
            progress = one_line(status.get("progress") or shown)
            if progress != shown:
                shown = progress
                self._display.display(f"{variables['inventory_hostname']}: pulling {options['name']}: {shown}")
            if not status.get("under_way"):
                break
            time.sleep(pause)
            status = self.call("pull", options, variables, POLL_SECONDS)
        return {**status, "changed": first.get("changed", False), "diff": first.get("diff")}

    def _prefetch(self, result: dict[str, Any], variables: dict[str, Any]) -> dict[str, Any]:
        """Pull images that no session needs yet, each one even if another has failed."""
        options, agent = self.options(PREFETCH_OPTIONS, self._task.args), variables["inventory_hostname"]
        credentials = read_registries(variables, self._templar.template)
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
                status = self._poll({**request, **wanted}, variables)
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
