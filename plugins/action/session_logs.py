# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Show or return the logs of a session's containers, and follow them, from one task on the control node."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

from ..module_utils._model.printable import printable, printable_line
from ..plugin_utils._report.follow import Part, Since, follow
from ..plugin_utils._report.logs import empty_logs_report, read_logs, render_logs
from ..plugin_utils._report.verification import SessionNotFoundError, select_parts
from ..plugin_utils._request.run_options import RunOptions
from ..plugin_utils.agent_calls import Asks
from ..plugin_utils.host_link import show_lines_at_once
from ..plugin_utils.look_action import SESSION, LookAction, read_parts
from ..plugin_utils.run_request import selected_id

OPTIONS: dict[str, dict[str, Any]] = {
    "name": {"type": "str"},
    "id": {"type": "str"},
    "kernel": {"type": "str"},
    "lines": {"type": "int"},
    "follow": {"type": "bool"},
    "format": {"type": "str", "choices": ["text"]},
    "path": {"type": "path"},
    "queue_path": {"type": "path"},
}

VARIABLES = {
    **SESSION,
    "kernel": "session_kernel",
    "lines": "session_logs_lines",
    "follow": "session_logs_follow",
    "path": "session_logs_path",
}

SECONDS, FOLLOW_SECONDS = 300, 60
"""The time limit of an agent that reads logs, and of one that reads what is new: the others wait for it."""


show_lines_at_once()


class ActionModule(LookAction):
    options, variables = OPTIONS, VARIABLES

    def look(self, run: RunOptions, task_vars: Mapping[str, Any], *, style: str) -> dict[str, Any]:
        with self.calls(task_vars) as calls:
            return self._read(calls, run, task_vars, shown=bool(style))

    def _read(self, calls: Asks, run: RunOptions, variables: Mapping[str, Any], *, shown: bool) -> dict[str, Any]:
        entries, agents = self.recorded(run, variables), self.agents(None, variables)
        # Ended sessions remain on agents until a run that reconciles removes them.
        request = {"session_id": selected_id(run, entries), "kernel": run.kernel, "lines": run.logs_lines}
        answers = calls.ask("logs", self.within_limit(agents, variables), lambda *_host: request, SECONDS)
        parts = read_parts(agents, answers)
        try:
            report = read_logs(run.name, run.id, parts.reports, entries, run.kernel)
        except SessionNotFoundError as error:
            report = empty_logs_report(run.name, run.id, f"{error}.")
        # The file has the lines as they are; what Ansible may show is safe to print.
        result = self.published(report, run.logs_path, render_logs(report), parts.unavailable, shown=shown)
        if result.get("failed") or not run.logs_follow:
            return result
        held = select_parts(parts.reports, str(report["session"]["id"]))
        names = {kernel["agent"] for kernel in report["kernels"]}
        lost = self._follow(calls, request, {name: part for name, part in held.items() if name in names})
        if lost:
            reasons = "; ".join(f"{name} is unavailable: {agent['reason']}" for name, agent in lost.items())
            text = f"the logs of the session {report['session']['name']!r} were not followed to their end: {reasons}."
            result |= {"failed": True, "msg": printable(text), "unavailable": lost}
        return result

    def _follow(
        self, calls: Asks, request: Mapping[str, Any], parts: Mapping[str, Part]
    ) -> dict[str, Mapping[str, str]]:
        """Show what containers print until they have ended or the run is interrupted; return the agents that are lost.

        An agent that does not answer any more is left, and the others are followed on.
        """
        lost: dict[str, Mapping[str, str]] = {}

        def read(since: Mapping[str, Since], lines: int) -> dict[str, Part]:
            def options(name: str, *_host: Any) -> dict[str, Any]:
                return {**request, "lines": lines, "since": dict(since[name])}

            latest = read_parts(since, calls.ask("logs", since, options, FOLLOW_SECONDS))
            lost.update(latest.unavailable)
            return select_parts(latest.reports, request["session_id"])

        follow(parts, read, lambda line: self.show([printable_line(line)]), threading.Event())
        return lost
