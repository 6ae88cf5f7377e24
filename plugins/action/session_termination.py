# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Begin and complete the termination of a session, on the control node."""

from __future__ import annotations

import dataclasses
import time
from typing import Any

from ansible.errors import AnsibleActionFail

from ..module_utils._model.errors import as_sentence
from ..module_utils._model.validation import ValidationError
from ..plugin_utils._lifecycle.routes import build_gateway_update
from ..plugin_utils._lifecycle.start_result import summarize_record
from ..plugin_utils._lifecycle.termination import add_end_results, end_session
from ..plugin_utils._planner.session_network import PlanningError
from ..plugin_utils._queue.entry import TERMINATING, mark_terminated, recorded_plans
from ..plugin_utils._report.record import to_json
from ..plugin_utils.control import ControlAction


class ActionModule(ControlAction):
    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result, variables = super().run(tmp, task_vars), task_vars or {}
        state = {"begun": self._begin, "ended": self._end}[self._task.args["state"]]
        return {**result, **state(variables)}

    def _begin(self, variables: dict[str, Any]) -> dict[str, Any]:
        """Find the session, and mark it as terminating in the queue before anything is changed."""
        args = self._task.args
        queue = self.queue(variables)
        cluster = self.cluster_state(args["agents"], variables)
        excluded = {name: "hidden by --limit" for name in args["agents"] if not cluster.was_read(name)}
        cluster = dataclasses.replace(cluster, unavailable={**excluded, **cluster.unavailable})
        name_and_id = args.get("name") or "", args.get("id") or ""
        # Parsed before the lock is taken: under it, only what has changed since.
        self.entries(queue)
        with self.transaction(queue):
            entries = self.entries(queue)
            cluster = dataclasses.replace(cluster, records=recorded_plans(entries))
            try:
                end = end_session(*name_and_id, entries, cluster, force=bool(args.get("force")), now=time.time())
            except (ValidationError, PlanningError) as error:
                raise AnsibleActionFail(as_sentence(str(error))) from None
            if end.note and not self._task.check_mode:
                queue.save(end.note)
        entries = self.entries(queue)
        return {
            "changed": end.note is not None and not end.agents,
            "warnings": self.warnings(cluster),
            "agents": list(end.agents),
            "unreachable_agents": list(end.unreachable),
            "record": end.record,
            # Before the agents remove it: they keep its ports reserved unless all gateways have removed its route.
            "routes": build_gateway_update([], entries, float(args.get("started_at") or 0)),
        }

    def _end(self, variables: dict[str, Any]) -> dict[str, Any]:
        """Write the final record. Agents on which the session could not be removed are kept in the queue."""
        args = self._task.args
        removed = args.get("removed") or {}
        replies = [(reply.get("sessions") or {}).get(args["record"]["id"]) for reply in removed.values()]
        record = add_end_results(args["record"], [reply for reply in replies if reply is not None])
        failed = [agent for agent, reply in removed.items() if reply.get("failed") or reply.get("unreachable")]
        unreachable = [*(args.get("unreachable_agents") or []), *failed]
        queue = self.queue(variables)
        with self.transaction(queue):
            entry = queue.entry(record["id"]) if record["id"] else None
            if entry and entry.state == TERMINATING and not self._task.check_mode:
                remaining = dataclasses.replace(entry, agents=tuple(unreachable), record=record)
                queue.save(remaining if unreachable else mark_terminated(entry, record, time.time()))
        self.write_report(args.get("path") or "", to_json(record))
        self.show(summarize_record(record, check_mode=self._task.check_mode))
        if unreachable:
            self.show([f"  {', '.join(unreachable)}: the next run that reaches it removes the session there."])
        entries = self.entries(queue)
        return {
            "changed": False,
            "record": record,
            "waiting": any(entry.unfinished for entry in entries),
            "routes": build_gateway_update([], entries, float(args["started_at"])),
        }
