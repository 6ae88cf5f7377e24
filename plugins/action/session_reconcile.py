# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Find what is due about the sessions that are there, on the control node, and note it in the queue."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from ..plugin_utils._lifecycle.reconcile import reconcile
from ..plugin_utils._lifecycle.routes import build_gateway_update, reachable_plans, sent_ids
from ..plugin_utils._planner.cluster_state import ClusterState
from ..plugin_utils._queue.entry import TERMINATING, expired_history
from ..plugin_utils.control import AGENT_RESULT, ControlAction


class ActionModule(ControlAction):
    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result = super().run(tmp, task_vars)
        args, now = self._task.args, time.time()
        readings, queue = self.cluster_state(args["agents"], task_vars or {}), self.queue(task_vars or {})
        away = [name for name in args["agents"] if name not in readings.facts]
        with self.transaction(queue):
            entries = self.entries(queue)
            found = reconcile(entries, readings.sessions, away, bool(args.get("abandoned")), now)
            if not self._task.check_mode:
                old = expired_history(entries, now, int(args.get("history_days", 30)))
                for session_id in (*found.entries_to_remove, *(entry.id for entry in old)):
                    queue.remove(session_id)
                for entry in found.entries_to_save:
                    queue.save(entry)
        if args.get("facts_max_age") and not self._task.check_mode:
            hostvars = (task_vars or {})["hostvars"]
            asked = [facts for name, facts in readings.facts.items() if hostvars[name].get(AGENT_RESULT)]
            self.cache(task_vars or {}).save(asked, float(args.get("started_at") or 0))
        self.invalidate_facts(found.agents, task_vars or {})
        told = {entry.id for entry in entries if entry.state == TERMINATING}
        for entry in (one for one in found.entries_to_save if one.id not in told):
            self._display.display(f"Session {entry.name} is {entry.record['status']}: {entry.record['reason']}.")
        return {
            **result,
            "changed": False,
            "end": found.end,
            "restart": found.restart,
            "agents": found.agents,
            "routes": self._routes(readings, task_vars or {}),
        }

    def _routes(self, readings: ClusterState, variables: Mapping[str, Any]) -> dict[str, Any]:
        """Return what gateways have to know: which sessions have ended in this run, or all there is to know."""
        args, entries = self._task.args, self.entries(self.queue(variables))
        if args.get("all_routes"):
            return build_gateway_update(reachable_plans(readings), entries, 0.0)
        told = sent_ids(variables["hostvars"]["localhost"].get(name) for name in args.get("previous") or ())
        return build_gateway_update([], entries, float(args.get("started_at") or 0), told)
