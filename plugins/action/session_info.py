# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Return the sessions of the agents and of the queue, from one task on the control node."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from ansible.errors import AnsibleActionFail

from ..module_utils._model.printable import printable, printable_data
from ..plugin_utils._queue.schedule import QueuePolicy
from ..plugin_utils._queue.store import QueueStore
from ..plugin_utils._report.page import PageSources, render_page
from ..plugin_utils._report.record import to_json
from ..plugin_utils._report.session_list import Attendance, describe_timer, list_sessions
from ..plugin_utils._report.session_table import session_table
from ..plugin_utils._request.run_options import RunOptions
from ..plugin_utils.absence_file import load_absences
from ..plugin_utils.cluster_view import attendance_in, read_answers
from ..plugin_utils.host_program import COLLECTION
from ..plugin_utils.host_request import coerce
from ..plugin_utils.look_action import LookAction
from ..plugin_utils.run_request import LIST
from ..plugin_utils.survey import Asked, problems_of, survey

ENDED = ("TERMINATED", "CANCELLED")
"""The statuses that only sessions which have ended can have."""

OPTIONS: dict[str, dict[str, Any]] = {
    "name": {"type": "str"},
    "id": {"type": "str"},
    "user": {"type": "str"},
    "status": {
        "type": "list",
        "elements": "str",
        "choices": ["PENDING", "CREATING", "RUNNING", "DEGRADED", "ERROR", *ENDED],
    },
    "history": {"type": "bool"},
    "use": {"type": "bool"},
    "agents": {"type": "list", "elements": "str"},
    "queue_path": {"type": "path"},
    "queue_policy": {"type": "str", "choices": ["fifo", "lifo", "drf"]},
    "queue_patience": {"type": "int"},
    "format": {"type": "str", "choices": ["table", "wide", "json", "none"]},
    "path": {"type": "path"},
    "page_path": {"type": "path"},
}

FILTERS = ("name", "id", "user")
"""The options that compare a field of the record."""

VARIABLES = {
    "use": "session_list_use",
    **{name: f"session_{name}" for name in ("history", "queue_path", "queue_policy", "queue_patience")},
}


class ActionModule(LookAction):
    options, variables, purpose = OPTIONS, VARIABLES, LIST

    def look(self, run: RunOptions, task_vars: Mapping[str, Any], *, style: str) -> dict[str, Any]:
        options = coerce(OPTIONS, self._task.args)
        _check_filters(options["status"] or (), history=run.history)
        agents = self.agents(options["agents"], task_vars)
        queue = self.queue_at(run.queue_path, task_vars)
        answers = self.survey(agents, queue, task_vars, loads=run.list_use)
        return {"changed": False, **self._list(options, run, style, queue, agents, answers)}

    def survey(
        self, agents: Sequence[str], queue: QueueStore, variables: Mapping[str, Any], *, loads: bool
    ) -> dict[str, Mapping[str, Any]]:
        """Return the facts of the agents that ``--limit`` does not hide, or why there are none."""
        with self.calls(variables) as calls:
            # What is read now is parsed once: only what has changed until they have answered is read again.
            return survey(calls, self.within_limit(agents, variables), Asked(loads=loads), meanwhile=queue.entries)

    def _list(
        self,
        options: Mapping[str, Any],
        run: RunOptions,
        style: str,
        queue: QueueStore,
        agents: Sequence[str],
        answers: Mapping[str, Mapping[str, Any]],
    ) -> dict[str, Any]:
        now, entries = time.time(), self.entries(queue)
        cluster = read_answers(answers, entries)
        listed = list_sessions(
            entries,
            cluster,
            Attendance(agents, *attendance_in(answers)),
            load_absences(queue.path),
            QueuePolicy(run.queue_policy, run.queue_patience),
            history=run.history,
            now=now,
        )
        timer = describe_timer(queue.timer(), entries, now)
        chosen = [session for session in listed.all if _matches(session[0], options)]
        records = [record for record, _since in chosen]
        self.write_report(options["path"] or "", to_json(records))
        if options["page_path"]:
            # The page is for everybody.
            shown = [record for record, _since in listed.sessions if _matches(record, options)]
            page = render_page(_page_sources(), shown, cluster.facts, cluster.unavailable, timer, now)
            self.write_report(options["page_path"], page, 0o644)
        if style == "json":
            self.show(to_json(records).splitlines())
        elif style in ("table", "wide"):
            self.show(session_table(chosen, now, wide=style == "wide"))
        unavailable = problems_of(agents, answers, cluster.unavailable)
        result: dict[str, Any] = printable_data({"unavailable": unavailable, "timer": timer})
        if not style:
            result["sessions"] = printable_data(records)
        if style != "none":
            warnings = filter(None, [*listed.warnings, timer["problem"]])
            result["warnings"] = [*self.warnings(cluster), *map(printable, warnings)]
        return result


def _check_filters(status: Sequence[str], *, history: bool) -> None:
    """Raise :class:`AnsibleActionFail` for filters by which no session could ever be found."""
    if status and not history and set(status).issubset(ENDED):
        raise AnsibleActionFail(f"status: {status[0]}: sessions that have ended are only listed with history: true.")


def _matches(record: Mapping[str, Any], options: Mapping[str, Any]) -> bool:
    """Return whether a session is one of those that were asked for."""
    wanted = {name: options[name] for name in FILTERS if options[name]}
    if any(record[name] != value for name, value in wanted.items()):
        return False
    return not options["status"] or record["status"] in options["status"]


def _page_sources() -> PageSources:
    folder = COLLECTION / "roles" / "session" / "templates" / "page"
    return PageSources(*((folder / name).read_text() for name in ("page.html.j2", "page.css", "page.js")))
