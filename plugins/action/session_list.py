# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Show the sessions that the agents hold, as a table and as a file of records, on the control node."""

from __future__ import annotations

import time
from typing import Any

from ansible_collections.backendai.cluster.plugins.module_utils._core.record import (
    as_json,
    containers_of,
    found_sessions,
    session_record,
    status_of,
    table,
)
from ansible_collections.backendai.cluster.plugins.plugin_utils.control import ControlAction


class ActionModule(ControlAction):
    """The action ``backendai.cluster.session_list``."""

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result = super().run(tmp, task_vars)
        args = self._task.args
        readings = self.readings(args["agents"], task_vars or {})
        sessions = list(found_sessions(readings.facts).values())
        records = [session_record(parts[0].plan, status_of(parts), containers_of(parts)) for parts in sessions]
        self.write(args.get("path") or "", as_json(records))
        for line in table(sessions, time.time()):
            self._display.display(line)
        return {**result, "changed": False, "warnings": self.warnings(readings), "sessions": records}
