# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Say that a session has ended, in its record, in the queue's history and to people, on the control node."""

from __future__ import annotations

import dataclasses
import time
from typing import Any

from ansible_collections.backendai.cluster.plugins.plugin_utils._lifecycle.outcome import summary
from ansible_collections.backendai.cluster.plugins.plugin_utils._queue.entry import ENDED, ENDING, ended
from ansible_collections.backendai.cluster.plugins.plugin_utils._report.record import as_json
from ansible_collections.backendai.cluster.plugins.plugin_utils.control import ControlAction


class ActionModule(ControlAction):
    """The action ``backendai.cluster.session_ended``."""

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result = super().run(tmp, task_vars)
        args = self._task.args
        record, removed = dict(args["record"]), args.get("removed") or {}
        away = [
            *(args.get("away") or []),
            *(agent for agent, said in removed.items() if said.get("failed") or said.get("unreachable")),
        ]
        queue = self.queue(task_vars or {})
        with self.transaction(queue):
            entry = queue.entry(record["id"]) if record["id"] else None
            if entry and entry.state == ENDING and not self._task.check_mode:
                left = dataclasses.replace(entry, agents=tuple(away))
                queue.save(left if away else ended(entry, record, time.time()))
        self.write(args.get("path") or "", as_json(record))
        for line in summary(record, check_mode=self._task.check_mode):
            self._display.display(line)
        if away:
            self._display.display(f"  {', '.join(away)} will be cleared by the next run that can use it.")
        waiting = any(one.state != ENDED for one in self.entries(queue))
        return {**result, "changed": False, "record": record, "waiting": waiting}
