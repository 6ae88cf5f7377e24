# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""List the agents from their results and the queue, on the control node."""

from __future__ import annotations

from typing import Any

from ..module_utils._model.printable import printable, printable_data
from ..plugin_utils._lifecycle.absence import describe_cut_off
from ..plugin_utils._report.agents import agents_report, render_agents
from ..plugin_utils._report.record import to_json
from ..plugin_utils.cluster_view import attendance_in, read_answers, with_inventory, with_reservations
from ..plugin_utils.control import ControlAction


class ActionModule(ControlAction):
    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result, variables = super().run(tmp, task_vars), task_vars or {}
        return {**result, "changed": False, **self._agents(variables)}

    def _agents(self, variables: dict[str, Any]) -> dict[str, Any]:
        """List the agents, and what is free on them, less what other runs are about to claim."""
        args = self._task.args
        entries = self.entries(self.queue(variables))
        answers = self.answers(args["agents"], variables)
        cluster = with_inventory(read_answers(answers, entries), args["agents"], variables["hostvars"], answers)
        cluster = with_reservations(cluster, entries)
        away, answered = attendance_in(answers)
        report = printable_data(agents_report(cluster))
        self.write_report(args.get("path") or "", to_json(report))
        self.show(render_agents(report))
        asked_all = len(away) + len(answered) == len(args["agents"])
        warnings = [
            *(f"{name}: {text}" for name, facts in sorted(cluster.facts.items()) for text in facts.warnings),
            *(describe_cut_off(away, answered) if asked_all else []),
        ]
        return {"warnings": [printable(warning) for warning in warnings], "report": report}
