# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Find which ways in gateways open and close, on the control node."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ansible_collections.backendai.cluster.plugins.module_utils._model.plan import SessionPlan
from ansible_collections.backendai.cluster.plugins.plugin_utils._planner.cluster_state import plan_of, status_of
from ansible_collections.backendai.cluster.plugins.plugin_utils._queue.entry import ENDED, ENDING
from ansible_collections.backendai.cluster.plugins.plugin_utils._report.access import route_of
from ansible_collections.backendai.cluster.plugins.plugin_utils.control import ControlAction


class ActionModule(ControlAction):
    """The action ``backendai.cluster.session_routes``."""

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result = super().run(tmp, task_vars)
        args, variables = self._task.args, task_vars or {}
        entries = self.entries(self.queue(variables))
        since = float(args.get("since") or 0)
        over = {one.id: one.updated_at for one in entries if one.state in (ENDING, ENDED)}
        ended = sorted(session_id for session_id, at in over.items() if at >= since)
        plans = [SessionPlan.from_dict(plan) for plan in args.get("plans") or []]
        plans += self._held(variables) if args.get("agents") else []
        # Of two sessions of one name, which an agent may bring back, the newer one has it.
        newest = sorted(plans, key=lambda plan: plan.created_at)
        routes = {plan.name: route_of(plan) for plan in newest if plan.published and plan.id not in over}
        found = {"routes": list(routes.values()), "ended": ended}
        told = args.get("told") or {}
        news = any(said and said != told.get(what) for what, said in found.items())
        return {**result, "changed": False, **found, "news": news}

    def _held(self, variables: Mapping[str, Any]) -> list[SessionPlan]:
        """Return the plans of the sessions that agents hold and users may be in."""
        sessions = self.readings(self._task.args["agents"], dict(variables)).sessions.values()
        return [plan_of(parts) for parts in sessions if status_of(parts) in ("RUNNING", "DEGRADED")]
