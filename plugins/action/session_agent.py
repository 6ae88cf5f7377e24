# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Read an agent."""

from __future__ import annotations

from typing import Any

from ansible.errors import AnsibleActionFail

from ..module_utils._module import CAPACITY_OPTIONS, CONNECTION_OPTIONS
from ..plugin_utils.host_action import HostAction
from ..plugin_utils.removed_options import refuse_removed_options

SECONDS = 120


class ActionModule(HostAction):
    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result, variables = super().run(tmp, task_vars), task_vars or {}
        options = dict(self._task.args)
        phase = str(options.pop("phase"))
        try:
            options |= self.variables(CONNECTION_OPTIONS, "agent_", variables)
            options["settings"] = self.variables(CAPACITY_OPTIONS, "agent_", variables)
            reply = dict(refuse_removed_options(self.call(phase, options, variables, SECONDS), variables))
        except AnsibleActionFail as error:
            return {**result, "changed": False, "agent": None, "error": str(error)}
        # What an agent says of itself.
        told = [f"{variables['inventory_hostname']}: {text}" for text in reply.pop("warnings", ())]
        if told:
            result["warnings"] = told
        return {"changed": False, **result, **reply}
