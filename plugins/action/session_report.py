# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Report on sessions from the results of agents and the queue, on the control node."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ansible.errors import AnsibleActionFail

from ..module_utils._model.printable import printable_data
from ..plugin_utils._report import logs, verification_table
from ..plugin_utils._report.record import to_json
from ..plugin_utils._report.verification import (
    AgentReports,
    SessionNotFoundError,
    build_verification_report,
    find_plan,
    not_found_report,
)
from ..plugin_utils.agent_results import collect_parts
from ..plugin_utils.control import ControlAction

# The variables of each agent that hold the results of ``session_agent``, by its phase and operation.
VERIFIED, LOGGED = "__session_verify", "__session_logs"
CREATED, OBSERVED, REMOVED = "__session_marker_created", "__session_marker_observed", "__session_marker_removed"


class ActionModule(ControlAction):
    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result, variables = super().run(tmp, task_vars), task_vars or {}
        kinds = {
            "verification": self._verification,
            "logs": self._logs,
        }
        return {**result, "changed": False, **kinds[self._task.args["kind"]](variables)}

    def _verification(self, variables: dict[str, Any]) -> dict[str, Any]:
        """Report whether a session is healthy, and fail if it is not."""
        name, session_id = self._session_arguments()
        answers = _agent_reports({agent: variables["hostvars"][agent] for agent in self._task.args["agents"]})
        try:
            plan = find_plan(name, session_id, self.entries(self.queue(variables)))
            report = build_verification_report(plan, answers)
        except SessionNotFoundError as error:
            report = not_found_report(name, session_id, f"{error}.")
        lines = verification_table.render_verification(report) if report["session"]["status"] else []
        return {"report": self._publish(report, lines)}

    def _logs(self, variables: dict[str, Any]) -> dict[str, Any]:
        """Show the logs of the containers of a session, and fail if one of their agents is unreachable."""
        name, session_id = self._session_arguments()
        hostvars = {agent: variables["hostvars"][agent] for agent in self._task.args["agents"]}
        answers = AgentReports(*collect_parts(hostvars, LOGGED))
        try:
            entries = self.entries(self.queue(variables))
            report = logs.read_logs(name, session_id, answers, entries, str(self._task.args.get("kernel") or ""))
        except SessionNotFoundError as error:
            report = logs.empty_logs_report(name, session_id, f"{error}.")
        # The file has the lines as they are; what Ansible may show is safe to print.
        return {"logs": printable_data(self._publish(report, logs.render_logs(report)))}

    def _session_arguments(self) -> tuple[str, str]:
        return str(self._task.args.get("name") or ""), str(self._task.args.get("id") or "")

    def _publish(self, report: dict[str, Any], lines: Iterable[str]) -> dict[str, Any]:
        """Write and show a report. Raises :class:`AnsibleActionFail` with its error, if any."""
        self.write_report(str(self._task.args.get("path") or ""), to_json(report))
        self.show(lines)
        if report["error"]:
            raise AnsibleActionFail(report["error"])
        return report


def _agent_reports(hostvars: Mapping[str, Mapping[str, Any]]) -> AgentReports:
    """Return the results of agents from their variables."""
    parts, errors = collect_parts(hostvars, VERIFIED)
    created = [target for result in _results(hostvars, CREATED) for target in result.get("created", [])]
    # Without a result of the removal, all marker files are considered left.
    leftover = [target for result in _results(hostvars, REMOVED) for target in result.get("leftover", created)]
    observed = {
        hostname: sight
        for result in _results(hostvars, OBSERVED)
        for hostname, sight in result.get("observed", {}).items()
    }
    return AgentReports(parts, errors, created, leftover, observed)


def _results(hostvars: Mapping[str, Mapping[str, Any]], variable: str) -> list[Mapping[str, Any]]:
    """Return the results of a task on the agents that did not skip it."""
    results = [variables.get(variable) or {"skipped": True} for variables in hostvars.values()]
    return [result for result in results if not result.get("skipped")]
