# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Say whether a session is what it should be, from what its agents said, on the control node."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ansible.errors import AnsibleActionFail

from ansible_collections.backendai.cluster.plugins.plugin_utils._report.record import as_json
from ansible_collections.backendai.cluster.plugins.plugin_utils._report.verification import (
    Answers,
    NotFound,
    absent_report,
    find,
    report_of,
)
from ansible_collections.backendai.cluster.plugins.plugin_utils._report.verification_table import lines
from ansible_collections.backendai.cluster.plugins.plugin_utils.agent_results import parts_said
from ansible_collections.backendai.cluster.plugins.plugin_utils.control import ControlAction

PART, LEFT, SEEN, REMOVED = "__session_verify", "__session_left", "__session_seen", "__session_removed"
"""The variables of each agent that hold the results of ``session_agent``."""


class ActionModule(ControlAction):
    """The action ``backendai.cluster.session_report``."""

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result = super().run(tmp, task_vars)
        args, variables = self._task.args, task_vars or {}
        named = str(args.get("name") or ""), str(args.get("id") or "")
        answers = _answers({agent: variables["hostvars"][agent] for agent in args["agents"]})
        try:
            report = report_of(find(*named, answers, self.entries(self.queue(variables))), answers)
        except NotFound as error:
            report = absent_report(*named, f"{error}.")
        self.write(str(args.get("path") or ""), as_json(report))
        for line in lines(report) if report["session"]["status"] else ():
            self._display.display(line)
        if report["error"]:
            raise AnsibleActionFail(report["error"])
        return {**result, "changed": False, "report": report}


def _answers(said: Mapping[str, Mapping[str, Any]]) -> Answers:
    """Return what agents said, from their variables."""
    parts, unfit = parts_said(said, PART)
    left = [target for one in _results(said, LEFT) for target in one.get("left", [])]
    # Where the removal said nothing, all of them stay.
    stays = [target for one in _results(said, REMOVED) for target in one.get("stays", left)]
    seen = {hostname: sight for one in _results(said, SEEN) for hostname, sight in one.get("seen", {}).items()}
    return Answers(parts, unfit, left, stays, seen)


def _results(said: Mapping[str, Mapping[str, Any]], variable: str) -> list[Mapping[str, Any]]:
    """Return what a step gave on the agents that took it."""
    results = [variables.get(variable) or {"skipped": True} for variables in said.values()]
    return [one for one in results if not one.get("skipped")]
