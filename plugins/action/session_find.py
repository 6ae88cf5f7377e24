# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Find the session that has to go, and note that in the queue, on the control node."""

from __future__ import annotations

import dataclasses
import time
from typing import Any

from ansible.errors import AnsibleActionFail

from ansible_collections.backendai.cluster.plugins.module_utils._model.errors import as_sentence
from ansible_collections.backendai.cluster.plugins.module_utils._model.validation import SpecError
from ansible_collections.backendai.cluster.plugins.plugin_utils._lifecycle.termination import end_session
from ansible_collections.backendai.cluster.plugins.plugin_utils._planner.session_network import PlanError
from ansible_collections.backendai.cluster.plugins.plugin_utils.agent_results import HIDDEN
from ansible_collections.backendai.cluster.plugins.plugin_utils.control import ControlAction


class ActionModule(ControlAction):
    """The action ``backendai.cluster.session_find``."""

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result = super().run(tmp, task_vars)
        args = self._task.args
        readings, queue = self.readings(args["agents"], task_vars or {}), self.queue(task_vars or {})
        hidden = {name: HIDDEN for name in args["agents"] if not readings.told(name)}
        readings = dataclasses.replace(readings, left_out={**hidden, **readings.left_out})
        named = args.get("name") or "", args.get("id") or ""
        with self.transaction(queue):
            try:
                end = end_session(*named, self.entries(queue), readings, force=bool(args.get("force")), now=time.time())
            except (SpecError, PlanError) as error:
                raise AnsibleActionFail(as_sentence(str(error))) from None
            if end.note and not self._task.check_mode:
                queue.save(end.note)
        self.forget(end.agents, task_vars or {})
        return {
            **result,
            "changed": end.note is not None and not end.agents,
            "warnings": self.warnings(readings),
            "plan": end.plan.to_dict() if end.plan else None,
            "agents": list(end.agents),
            "away": list(end.away),
            "record": end.record,
        }
