# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Write a session's record on the control node, say how it ended, and fail where it failed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ansible.errors import AnsibleActionFail

from ansible_collections.backendai.cluster.plugins.module_utils._core.placement import NoRoom
from ansible_collections.backendai.cluster.plugins.module_utils._core.plan import SessionPlan
from ansible_collections.backendai.cluster.plugins.module_utils._core.record import (
    as_json,
    session_record,
    unplanned_record,
)
from ansible_collections.backendai.cluster.plugins.module_utils._core.spec import spec_from_dict
from ansible_collections.backendai.cluster.plugins.plugin_utils.control import ControlAction

CHECK_RESULT = "__session_check"
"""The variable of each agent that holds the result of ``session_check``."""

ROLLBACK_RESULT = "__session_rollback"
"""The variable of each agent that holds the result of taking its part away again."""


class ActionModule(ControlAction):
    """The action ``backendai.cluster.session_record``."""

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result = super().run(tmp, task_vars)
        args, hostvars = self._task.args, (task_vars or {})["hostvars"]
        plan = SessionPlan.from_dict(args["plan"]) if args.get("plan") else None
        status = args["status"]
        error = _failures(plan, hostvars) if plan and status == "ERROR" else None
        if plan:
            containers = {} if status in ("ERROR", "TERMINATED") else _containers(plan.agents, hostvars)
            record = session_record(plan, status, containers, error)
        else:
            pending = NoRoom(**args["pending"]) if args.get("pending") else None
            spec = spec_from_dict(args["spec"]) if args.get("spec") else None
            record = unplanned_record(spec, args["name"], status, args.get("id"), no_room=pending)
        self.write(args.get("path") or "", as_json(record))
        if error:
            what = "not repaired, and what ran before still runs" if args.get("known") else "not created"
            raise AnsibleActionFail(f"the session {record['name']!r} was {what}: {error}")
        for line in _lines(record, check_mode=self._task.check_mode):
            self._display.display(line)
        return {**result, "changed": False, "record": record}


def _containers(agents: list[str], hostvars: Mapping[str, Any]) -> dict[str, dict[str, str]]:
    """Return the containers' states that the agents reported when the session proved itself."""
    results = (hostvars[agent].get(CHECK_RESULT) or {} for agent in agents)
    return {hostname: state for result in results for hostname, state in result.get("containers", {}).items()}


def _failures(plan: SessionPlan, hostvars: Mapping[str, Any]) -> str:
    """Return what went wrong on the agents, and what is to be done where no rollback was possible."""
    said = {agent: hostvars[agent].get("ansible_failed_result") or {} for agent in plan.agents}
    failures = [f"{agent}: {result['msg'].rstrip('.')}" for agent, result in said.items() if result.get("msg")]
    sentences = failures or ["an agent became unreachable while its part was made"]
    rollbacks = {agent: hostvars[agent].get(ROLLBACK_RESULT) or {"failed": True} for agent in plan.agents}
    left = [agent for agent, one in rollbacks.items() if one.get("failed") or one.get("unreachable")]
    if left:
        remedy = f"backendai.cluster.terminate_session -e session_id={plan.id}"
        sentences.append(f"{', '.join(left)} may still hold a part of it: run {remedy} once it can be used again")
    return "; ".join(sentences) + "."


def _lines(record: Mapping[str, Any], *, check_mode: bool) -> list[str]:
    """Return the record as a few lines for people."""
    if check_mode and record["status"] in ("RUNNING", "TERMINATED"):
        return [f"Session {record['name']} was not touched: this is check mode."]
    lines = [f"Session {record['name']} is {record['status']}."]
    if record["pending"]:
        lines.append(f"  {record['pending']['reason']}")
    if record["status"] == "RUNNING":
        lines += [f"  {one['hostname']:<8} {one['agent']:<16} {one['address'] or '-'}" for one in record["kernels"]]
    return lines
