# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Read or change the sessions of an agent."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ansible.errors import AnsibleActionFail

from ..module_utils._module import CAPACITY_OPTIONS, CONNECTION_OPTIONS
from ..plugin_utils.host_action import HostAction
from ..plugin_utils.removed_options import refuse_removed_options

# Timeout of each phase in seconds.
SECONDS = {"survey": 120, "reap": 600, "remove": 600, "wait": 90, "verify": 600, "marker": 110}

# The results of failed phases, for phases that report their failure as a result.
FAILED_RESULTS: Mapping[str, Mapping[str, Any]] = {
    "survey": {"agent": None},
    "verify": {"parts": []},
}


class ActionModule(HostAction):
    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result, variables = super().run(tmp, task_vars), task_vars or {}
        options = dict(self._task.args)
        phase = str(options.pop("phase"))
        try:
            options |= self.variables(CONNECTION_OPTIONS, "agent_", variables)
            if phase == "survey":
                options["settings"] = self.variables(CAPACITY_OPTIONS, "agent_", variables)
            reply = dict(refuse_removed_options(self.call(phase, options, variables, SECONDS[phase]), variables))
        except AnsibleActionFail as error:
            if phase not in FAILED_RESULTS:
                raise
            return {**result, "changed": False, **FAILED_RESULTS[phase], "error": str(error)}
        # What an agent says of itself.
        told = [f"{variables['inventory_hostname']}: {text}" for text in reply.pop("warnings", ())]
        if told:
            result["warnings"] = told
        for session_id, sentence in (reply.get("failures") or {}).items():
            result.setdefault("warnings", []).append(f"{session_id}: {sentence}")
        ended = {**(reply.get("sessions") or {}), **(reply.get("ends") or {})}
        for session_id, end in ended.items():
            lost = "; ".join(end.get("lost_output") or ())
            if lost:
                result.setdefault("warnings", []).append(f"{session_id}: output was lost: {lost}")
        failures = [reply["failed"] for reply in (reply.get("sessions") or {}).values() if "failed" in reply]
        if failures:
            raise AnsibleActionFail(" ".join(failures))
        return {"changed": False, **result, **reply}
