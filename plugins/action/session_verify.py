# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Test a session, and report whether it is healthy, from one task on the control node."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from typing import Any

from ..module_utils._model.plan import SessionPlan
from ..plugin_utils._report.verification import (
    AgentReports,
    SessionNotFoundError,
    build_verification_report,
    find_plan,
    not_found_report,
)
from ..plugin_utils._report.verification_table import render_verification
from ..plugin_utils._request.run_options import RunOptions
from ..plugin_utils._run.outcome import Outcome
from ..plugin_utils.agent_calls import Asks, Failure
from ..plugin_utils.agent_program import AGENT
from ..plugin_utils.look_action import SESSION, LookAction, read_parts

OPTIONS: dict[str, dict[str, Any]] = {
    "name": {"type": "str"},
    "id": {"type": "str"},
    "format": {"type": "str", "choices": ["table"]},
    "path": {"type": "path"},
    "queue_path": {"type": "path"},
}

VARIABLES = {**SESSION, "path": "session_report_path"}

SECONDS, MARKER_SECONDS = 600, 110
"""The time limits of an agent that tests its part of a session, and of one that looks at mounts: storage may hang."""


CREATE, FIND, REMOVE = "Create a marker file in each mount", "Look for the marker files", "Remove the marker files"
"""The steps of a look at mounts, as people read them."""


class ActionModule(LookAction):
    options, variables = OPTIONS, VARIABLES

    def look(self, run: RunOptions, task_vars: Mapping[str, Any], *, style: str) -> dict[str, Any]:
        unavailable: Mapping[str, Mapping[str, str]] = {}
        try:
            plan = find_plan(run.name, run.id, self.recorded(run, task_vars))
            agents = self.agents(None, task_vars)
            outcome = Outcome(self.tell)
            with self.calls_of((AGENT,), task_vars, outcome.take) as (calls,):
                request = {"session_id": plan.id}
                names = self.within_limit(agents, task_vars)
                answers = calls.ask("verify", names, lambda *_host: request, SECONDS, "Test the session")
                parts = read_parts(agents, answers)
                unavailable = parts.unavailable
                report = build_verification_report(plan, _with_mounts(parts.reports, calls, plan))
            lines = render_verification(report)
        except SessionNotFoundError as error:
            report, lines = not_found_report(run.name, run.id, f"{error}."), []
        return self.published(report, run.report_path, lines, unavailable, shown=bool(style))


def _with_mounts(reports: AgentReports, calls: Asks, plan: SessionPlan) -> AgentReports:
    """Return the reports with what containers see of their mounts: main1 makes a marker file, the others look for it.

    The file is removed whatever happens, also if the run is interrupted.
    """
    if not plan.mounts:
        return reports
    holding = [name for name in plan.agents if reports.parts.get(name)]
    main = [name for name in holding if name == plan.kernels[0].agent]
    marker = str(uuid.uuid4())

    def ask(operation: str, names: Iterable[str], step: str) -> dict[str, Mapping[str, Any]]:
        request = {"session_id": plan.id, "marker": marker, "operation": operation}
        answers = calls.ask("marker", names, lambda *_host: request, MARKER_SECONDS, step)
        return {name: answer for name, answer in answers.items() if not isinstance(answer, Failure)}

    try:
        created = [target for answer in ask("create", main, CREATE).values() for target in answer.get("created") or ()]
        found = ask("find", holding, FIND)
    finally:
        calls.give_up()
        removed = ask("remove", main, REMOVE)
    # Without an answer, all files are considered left.
    left = [target for name in main for target in removed.get(name, {}).get("leftover", created)]
    # What an agent says of the containers of another one is not looked at.
    observed = {
        kernel.hostname: found[kernel.agent]["observed"][kernel.hostname]
        for kernel in plan.kernels
        if kernel.hostname in (found.get(kernel.agent, {}).get("observed") or ())
    }
    return AgentReports(reports.parts, reports.errors, created, left, observed)
