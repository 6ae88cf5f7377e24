# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Have a session's images on an agent: look until they are there, and show people how far the pulls are."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase

from ansible_collections.backendai.cluster.plugins.module_utils._core.images import (
    Found,
    disagreement,
    found_images,
    reference_to,
)
from ansible_collections.backendai.cluster.plugins.module_utils._core.parsing import Problems
from ansible_collections.backendai.cluster.plugins.module_utils._core.registries import parse_registries, registry_of

QUICK, QUICK_LOOKS, SLOW = 0.5, 4, 5.0
"""Seconds between looks: short for the first ones, so that small images cost no waiting."""


class ActionModule(ActionBase):
    """The action ``backendai.cluster.session_image``."""

    TRANSFERS_FILES = False

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result = super().run(tmp, task_vars)
        variables = task_vars or {}
        args = dict(self._task.args)
        names, found = list(args.pop("images", [])), found_images(args.pop("found", {}))
        wrong = disagreement(found)
        if wrong:
            raise AnsibleActionFail(f"{wrong}.")
        looks = _looks(names, found, args.pop("registries", {}))
        until = time.monotonic() + _turn(int(args["seconds"]), variables)
        result |= {"changed": False, "diff": [], "images": {}, "under_way": names}
        # Claims go on by looks: where there is nothing to look at, the claim alone is renewed.
        for name, look in looks.items() or [("", {})]:
            seen = self._follow(name, {**args, **look}, until, variables)
            if seen.get("failed") or seen.get("unreachable"):
                return {**result, **seen, "under_way": []}
            result["changed"] |= seen["changed"]
            result["diff"] += [seen["diff"]] if seen.get("diff") else []
            result["images"] |= seen["images"]
            if seen["under_way"]:
                break
        if not self._task.check_mode:
            result["under_way"] = [name for name in names if name not in result["images"]]
        else:
            result["under_way"] = []
        return result
