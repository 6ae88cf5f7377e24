# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Return the agents, and what is free on them, from one task on the control node."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from ansible.errors import AnsibleActionFail

from ..module_utils._model.printable import printable, printable_data
from ..module_utils._model.validation import ValidationError
from ..plugin_utils._lifecycle.absence import describe_cut_off
from ..plugin_utils._queue.store import QueueStore
from ..plugin_utils._report.agents import agents_report, render_agents
from ..plugin_utils._report.record import to_json
from ..plugin_utils._report.session_list import describe_timer
from ..plugin_utils.agents_action import AgentsAction
from ..plugin_utils.cluster_view import attendance_in, read_answers, with_inventory, with_reservations
from ..plugin_utils.host_request import coerce
from ..plugin_utils.request_file import read_user_options
from ..plugin_utils.run_request import LIST, parse_request
from ..plugin_utils.survey import Asked, problems_of, survey

OPTIONS: dict[str, dict[str, Any]] = {
    "agents": {"type": "list", "elements": "str"},
    "queue_path": {"type": "path"},
    "format": {"type": "str", "choices": ["table", "json"]},
    "path": {"type": "path"},
}


class ActionModule(AgentsAction):
    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result, variables = super().run(tmp, task_vars), task_vars or {}
        self.check_place(variables)
        options = coerce(OPTIONS, self._task.args)
        self._task.args["queue_path"] = self._queue_path(options, variables)
        agents = self.agents(options["agents"], variables)
        queue = self.queue(variables)
        answers = self.survey(agents, queue, variables)
        listed = self._list(options, queue, agents, answers, variables["hostvars"])
        return {**result, "changed": False, **listed}

    def survey(
        self, agents: Sequence[str], queue: QueueStore, variables: Mapping[str, Any]
    ) -> dict[str, Mapping[str, Any]]:
        """Return the facts of the agents that ``--limit`` does not hide, or why there are none."""
        with self.calls(variables) as calls:
            # What is read now is parsed once: only what has changed until they have answered is read again.
            return survey(calls, self.within_limit(agents, variables), Asked(others=True), meanwhile=queue.entries)

    def _list(
        self,
        options: Mapping[str, Any],
        queue: QueueStore,
        agents: Sequence[str],
        answers: Mapping[str, Mapping[str, Any]],
        hosts: Mapping[str, Mapping[str, Any]],
    ) -> dict[str, Any]:
        """Return the agents, and what is free on them, less what other runs are about to claim."""
        entries = self.entries(queue)
        cluster = with_inventory(read_answers(answers, entries), agents, hosts, answers)
        cluster = with_reservations(cluster, entries)
        away, answered = attendance_in(answers)
        timer = describe_timer(queue.timer(), entries, time.time())
        report = printable_data({**agents_report(cluster), "timer": timer})
        self.write_report(options["path"] or "", to_json(report))
        if options["format"] == "json":
            self.show(to_json(report).splitlines())
        elif options["format"] == "table":
            self.show(render_agents(report))
        warnings = [
            *(f"{name}: {text}" for name, answer in answers.items() for text in answer.get("warnings") or ()),
            *(f"{name}: {text}" for name, facts in sorted(cluster.facts.items()) for text in facts.warnings),
            *(describe_cut_off(away, answered) if len(answers) == len(agents) else []),
            timer["problem"],
        ]
        shown = report if options["format"] is None else {}
        unavailable = problems_of(agents, answers, cluster.unavailable)
        return {
            **shown,
            "unavailable": printable_data(unavailable),
            "warnings": [*map(printable, filter(None, warnings))],
        }

    def _queue_path(self, options: Mapping[str, Any], variables: Mapping[str, Any]) -> str:
        """Return the queue of the task, or else of the inventory, once what the inventory says of sessions is valid."""
        given = self.session_variables(variables)
        if options["queue_path"]:
            given["session_queue_path"] = options["queue_path"]
        try:
            _spec, run, _pools = parse_request({**given, **read_user_options(given)}, LIST)
        except ValidationError as error:
            raise AnsibleActionFail(str(error)) from None
        return run.queue_path
