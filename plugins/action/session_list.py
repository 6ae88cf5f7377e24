# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Show the sessions that the agents hold and those that wait, as a table and as a file, on the control node."""

from __future__ import annotations

import time
from typing import Any

from ansible_collections.backendai.cluster.plugins.plugin_utils._lifecycle.due import doomed, due
from ansible_collections.backendai.cluster.plugins.plugin_utils._planner.cluster_state import (
    Parts,
    containers_of,
    plan_of,
    status_of,
)
from ansible_collections.backendai.cluster.plugins.plugin_utils._queue.entry import ENDING, STARTING, STATES, WAITING
from ansible_collections.backendai.cluster.plugins.plugin_utils._report.record import as_json, session_record, table
from ansible_collections.backendai.cluster.plugins.plugin_utils.control import ControlAction


class ActionModule(ControlAction):
    """The action ``backendai.cluster.session_list``."""

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result = super().run(tmp, task_vars)
        args = self._task.args
        readings, queue = self.readings(args["agents"], task_vars or {}), self.queue(task_vars or {})
        entries = self.entries(queue)
        doomed_now = doomed(entries, readings.sessions)
        going = {one for _entry, ids in doomed_now for one in ids}
        away = [name for name in args["agents"] if name not in readings.facts]
        actions = due(entries, readings.sessions, away, False, time.time())
        # Nothing is done about what is over, and nobody has noted it yet, but over it is.
        over = {entry.id: entry.record for entry in actions.save if entry.state == ENDING}
        held = {session_id: parts for session_id, parts in readings.sessions.items() if session_id not in going}
        sessions = [
            (over.get(session_id) or _record(parts), plan_of(parts).created_at) for session_id, parts in held.items()
        ]
        states = STATES if args.get("history") else (WAITING, STARTING)
        noted = (one for one in entries if one.state in states and one.id not in held)
        sessions += [(entry.record, entry.enqueued_at) for entry in noted]
        records = [record for record, _since in sessions]
        warnings = self.warnings(readings) + [
            f"the session {one.name or one.id} has ended, and {', '.join(one.agents)} may still hold a part of it."
            for one, _ids in doomed_now
        ]
        if actions.agents:
            warnings.append(
                f"something is due on {', '.join(actions.agents)}: backendai.cluster.schedule_sessions removes what has"
                " ended and restarts what has died."
            )
        self.write(args.get("path") or "", as_json(records))
        for line in table(sessions, time.time()):
            self._display.display(line)
        return {**result, "changed": False, "warnings": warnings, "sessions": records}


def _record(parts: Parts) -> dict[str, Any]:
    """Return the record of a session that agents hold."""
    return session_record(plan_of(parts), status_of(parts), containers_of(parts))
