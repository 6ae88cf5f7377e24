# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Find a session on the agents by its name or id, on the control node."""

from __future__ import annotations

from typing import Any

from ansible.errors import AnsibleActionFail

from ansible_collections.backendai.cluster.plugins.module_utils._core.record import found_sessions
from ansible_collections.backendai.cluster.plugins.plugin_utils.control import ControlAction


class ActionModule(ControlAction):
    """The action ``backendai.cluster.session_find``."""

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result = super().run(tmp, task_vars)
        args = self._task.args
        name, session_id = args.get("name") or "", args.get("id") or ""
        readings = self.readings(args["agents"], task_vars or {})
        found = found_sessions(readings.facts)
        if session_id:
            parts = found.get(session_id)
        else:
            named = [one for one in found.values() if one[0].plan.name == name]
            if len(named) > 1:
                ids = ", ".join(sorted(one[0].plan.id for one in named))
                raise AnsibleActionFail(
                    f"session_name: {len(named)} sessions are called {name!r}: give session_id ({ids})."
                )
            parts = named[0] if named else None
        result |= {"changed": False, "warnings": self.warnings(readings)}
        if not parts:
            return {**result, "plan": None, "agents": []}
        plan = parts[0].plan
        if name and plan.name != name:
            raise AnsibleActionFail(f"session_id: {session_id!r} is the id of {plan.name!r}, not of {name!r}.")
        away = [agent for agent in plan.agents if agent not in readings.facts]
        if away:
            raise AnsibleActionFail(
                f"the session {plan.name!r} has containers on agents that cannot be used, so nothing was ended:"
                f" {readings.why(away)}."
            )
        return {**result, "plan": plan.to_dict(), "agents": plan.agents}
