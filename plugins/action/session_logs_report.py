# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Show what the containers of a session printed, from what its agents said, on the control node."""

from __future__ import annotations

from typing import Any

from ansible.errors import AnsibleActionFail

from ansible_collections.backendai.cluster.plugins.plugin_utils._report.logs import (
    absent_logs,
    find_logs,
    lines,
    logs_report,
)
from ansible_collections.backendai.cluster.plugins.plugin_utils._report.record import as_json
from ansible_collections.backendai.cluster.plugins.plugin_utils._report.verification import Answers, NotFound
from ansible_collections.backendai.cluster.plugins.plugin_utils.agent_results import parts_said
from ansible_collections.backendai.cluster.plugins.plugin_utils.control import ControlAction

PART = "__session_logs"
"""The variable of each agent that holds the result of ``session_logs``."""


class ActionModule(ControlAction):
    """The action ``backendai.cluster.session_logs_report``."""

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result = super().run(tmp, task_vars)
        args, variables = self._task.args, task_vars or {}
        named = str(args.get("name") or ""), str(args.get("id") or "")
        said = {agent: variables["hostvars"][agent] for agent in args["agents"]}
        answers = Answers(*parts_said(said, PART))
        try:
            parts = find_logs(*named, answers, self.entries(self.queue(variables)))
            report = logs_report(parts, answers, str(args.get("kernel") or ""))
        except NotFound as error:
            report = absent_logs(*named, f"{error}.")
        self.write(str(args.get("path") or ""), as_json(report))
        for line in lines(report):
            self._display.display(line)
        if report["error"]:
            raise AnsibleActionFail(report["error"])
        return {**result, "changed": False, "logs": report}
