# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Decide which waiting sessions start now, on the control node."""

from __future__ import annotations

import time
from typing import Any

from ansible_collections.backendai.cluster.plugins.plugin_utils._lifecycle.due import doomed
from ansible_collections.backendai.cluster.plugins.plugin_utils._planner.decision import Decision
from ansible_collections.backendai.cluster.plugins.plugin_utils._queue.entry import starting, waiting
from ansible_collections.backendai.cluster.plugins.plugin_utils._queue.folder import me
from ansible_collections.backendai.cluster.plugins.plugin_utils._queue.schedule import Rules, schedule
from ansible_collections.backendai.cluster.plugins.plugin_utils._report.record import pending
from ansible_collections.backendai.cluster.plugins.plugin_utils._request.run_options import Pools
from ansible_collections.backendai.cluster.plugins.plugin_utils._request.spec import spec_from_dict
from ansible_collections.backendai.cluster.plugins.plugin_utils.control import ControlAction, start_of


class ActionModule(ControlAction):
    """The action ``backendai.cluster.session_schedule``."""

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result = super().run(tmp, task_vars)
        args, now = self._task.args, time.time()
        queue, rules = self.queue(task_vars or {}), Rules(args.get("policy", "fifo"), int(args.get("patience", 16)))
        readings, starts = self.readings(args["agents"], task_vars or {}), []
        before = {entry.id: entry for entry in self.entries(queue)}
        gone = [one for _entry, ids in doomed(before.values(), readings.sessions) for one in ids]
        planned = self.with_reservations(readings.without(gone), before.values())
        decisions = schedule(before.values(), planned, Pools(**args["pools"]), rules, now)
        # Deciding may take its time, and the queue is not held for as long: what others have changed since is theirs.
        with self.transaction(queue):
            current = {entry.id: entry for entry in self.entries(queue)}
            for entry, decision in decisions:
                if current.get(entry.id) != before[entry.id]:
                    continue
                if isinstance(decision, Decision):
                    spec = spec_from_dict(entry.spec or {})
                    starts.append(start_of(decision, spec, gone, unproven=True))
                    changed = starting(entry, me(), now, decision.plan.to_dict())
                else:
                    changed = waiting(entry, {**entry.record, "pending": pending(decision)}, entry.updated_at)
                if not self._task.check_mode:
                    queue.save(changed)
        agents = list(dict.fromkeys(agent for start in starts for agent in start["agents"]))
        self.forget(agents, task_vars or {})
        return {**result, "changed": False, "starts": starts, "agents": agents}
