# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Return the facts of an agent."""

from __future__ import annotations

from typing import Any

from ..module_utils._module import CAPACITY_OPTIONS, CONNECTION_OPTIONS, SURVEY_OPTIONS
from ..plugin_utils.host_action import HostAction

SECONDS = 120


class ActionModule(HostAction):
    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result = super().run(tmp, task_vars)
        options = self.options({**CONNECTION_OPTIONS, **CAPACITY_OPTIONS, **SURVEY_OPTIONS}, self._task.args)
        options["settings"] = {name: options.pop(name) for name in CAPACITY_OPTIONS}
        return {**result, "changed": False, **self.call("survey", options, task_vars or {}, SECONDS)}
