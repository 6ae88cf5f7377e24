# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Say what came of a session, in its record, in the queue and to people, on the control node."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from ansible_collections.backendai.cluster.plugins.module_utils._model.plan import SessionPlan
from ansible_collections.backendai.cluster.plugins.plugin_utils._lifecycle.outcome import (
    Outcome,
    outcome_of,
    settled,
    summary,
)
from ansible_collections.backendai.cluster.plugins.plugin_utils._lifecycle.start_steps import start_from
from ansible_collections.backendai.cluster.plugins.plugin_utils._queue.entry import ENDED, STARTING, WAITING
from ansible_collections.backendai.cluster.plugins.plugin_utils._queue.folder import me
from ansible_collections.backendai.cluster.plugins.plugin_utils._report.record import (
    as_json,
    session_record,
    unplanned_record,
)
from ansible_collections.backendai.cluster.plugins.plugin_utils._request.spec import spec_from_dict
from ansible_collections.backendai.cluster.plugins.plugin_utils.control import ControlAction


class ActionModule(ControlAction):
    """The action ``backendai.cluster.session_record``."""

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result = super().run(tmp, task_vars)
        args, variables = self._task.args, task_vars or {}
        start = start_from(args["start"], variables["hostvars"]) if args.get("start") else None
        if start and start.refusals and args.get("retry"):
            # Other runs were faster: it is planned anew, and its entry in the queue stays this run's.
            return {**result, "changed": False, "again": True, "refused": start.refusals, "record": None, "error": None}
        if start:
            plan = SessionPlan.from_dict(start.decided["plan"])
            said = {agent: start.outcome_on(agent) for agent in plan.agents}
            outcome = outcome_of(plan, said, known=start.committed)
            record = session_record(plan, outcome.status, outcome.containers, outcome.error)
            record = self._settled(variables, plan.id, record, outcome)
        else:
            spec = spec_from_dict(args["spec"])
            outcome, record = Outcome("PENDING", {}), unplanned_record(spec, spec.name, "PENDING", args["id"])
            record["pending"] = args["pending"]
        self.write(args.get("path") or "", as_json(record))
        for line in summary(record, check_mode=self._task.check_mode) if args.get("say", True) else ():
            self._display.display(line)
        wait = record["status"] == "RUNNING" and bool(args.get("wait")) and not self._task.check_mode
        freed = outcome.status == "ERROR" or bool(args.get("freed"))
        waiting = wait or (freed and any(one.state != ENDED for one in self.entries(self.queue(variables))))
        return {
            **result,
            "changed": False,
            "record": record,
            "error": outcome.error,
            "wait": wait,
            "waiting": waiting,
            "again": False,
        }

    def _settled(
        self, variables: Mapping[str, Any], session_id: str, record: dict[str, Any], outcome: Outcome
    ) -> dict[str, Any]:
        """Bring the queue up to date, unless a later run has taken the session over; return the record that holds then.

        A session that waits on has that of one that waits.
        """
        if self._task.check_mode:
            return record
        queue = self.queue(variables)
        with queue.lock():
            entry = queue.entry(session_id)
            if entry is None or entry.state != STARTING or entry.owner != me():
                return record
            if outcome.status == "RUNNING":
                queue.remove(entry.id)
                return record
            kept = settled(entry, record, outcome, time.time())
            queue.save(kept)
            return kept.record if kept.state == WAITING else record
