# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Report on sessions from the results of agents and the queue, on the control node."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from ansible.errors import AnsibleActionFail

from ..module_utils._model.plan import SessionPlan
from ..module_utils._model.printable import printable, printable_data
from ..plugin_utils._lifecycle.absence import Absences, describe_cut_off
from ..plugin_utils._lifecycle.reconcile import reconcile
from ..plugin_utils._lifecycle.time_limits import end_time
from ..plugin_utils._planner.agreement import describe_disagreements
from ..plugin_utils._planner.cluster_state import ClusterState, Session
from ..plugin_utils._queue.entry import CREATING, PENDING, RUNNING, TERMINATED, TERMINATING, QueueEntry
from ..plugin_utils._queue.policy import DEFAULT_MAX_SKIPS
from ..plugin_utils._queue.schedule import QueuePolicy, positions
from ..plugin_utils._report import logs, verification_table
from ..plugin_utils._report.agents import agents_report, closed_storage, render_agents
from ..plugin_utils._report.page import PageSources, render_page
from ..plugin_utils._report.record import complete_record, session_record, stranger_record, to_json
from ..plugin_utils._report.session_table import session_table
from ..plugin_utils._report.verification import (
    AgentReports,
    SessionNotFoundError,
    build_verification_report,
    find_plan,
    not_found_report,
)
from ..plugin_utils.absence_file import load_absences
from ..plugin_utils.agent_results import collect_parts
from ..plugin_utils.control import ControlAction
from ..plugin_utils.host_program import COLLECTION

# The variables of each agent that hold the results of ``session_agent``, by its phase and operation.
VERIFIED, LOGGED = "__session_verify", "__session_logs"
CREATED, OBSERVED, REMOVED = "__session_marker_created", "__session_marker_observed", "__session_marker_removed"


class ActionModule(ControlAction):
    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result, variables = super().run(tmp, task_vars), task_vars or {}
        kinds = {
            "sessions": self._sessions,
            "agents": self._agents,
            "verification": self._verification,
            "logs": self._logs,
        }
        return {**result, "changed": False, **kinds[self._task.args["kind"]](variables)}

    def _sessions(self, variables: dict[str, Any]) -> dict[str, Any]:
        """List the sessions of the agents and of the queue, and warn about those that need action."""
        args, now = self._task.args, time.time()
        queue = self.queue(variables)
        entries = self.entries(queue)
        cluster = self.cluster_state(args["agents"], variables, entries)
        live = {entry.id for entry in entries if entry.state != TERMINATED}
        unreachable = [name for name in args["agents"] if name not in cluster.facts]
        actions = reconcile(entries, cluster.held, unreachable, False, now)
        # Finished sessions that are not saved in the queue yet.
        finished = {entry.id: entry.record for entry in actions.entries_to_save if entry.state == TERMINATING}
        away, answered = self.attendance(args["agents"], variables)
        absences = load_absences(self.queue(variables).path)
        by_id = {entry.id: entry for entry in entries}
        sessions = [
            (
                finished.get(session_id)
                or {
                    **_record(session, by_id[session_id], absences.explain(_absent(session.plan, away)), now),
                    **_closed_storage(session.plan, cluster),
                },
                session.plan.created_at,
            )
            for session_id, session in cluster.sessions.items()
        ]
        strangers = {name: parts for name, parts in cluster.strangers.items() if name not in live}
        others = [stranger_record(session_id, parts) for session_id, parts in strangers.items()]
        rules = QueuePolicy(args.get("policy", "fifo"), int(args.get("max_skips", DEFAULT_MAX_SKIPS)))
        places = positions(entries, cluster, rules)
        states = (PENDING, CREATING, TERMINATING, TERMINATED) if args.get("history") else (PENDING, CREATING)
        sessions += [
            (
                {**complete_record(entry.record), **_stage(entry), "queue_position": places.get(entry.id)},
                entry.enqueued_at,
            )
            for entry in entries
            if entry.state in states and entry.id not in cluster.sessions
        ]
        unseen = {*cluster.unavailable, *_removed_agents(entries, args["agents"])}
        sessions += [
            (_unseen_record(entry, entry.plan, cluster, absences, (away, unseen)), entry.plan.created_at)
            for entry in entries
            if entry.state == RUNNING and entry.plan and entry.id not in cluster.sessions
            if not unseen.isdisjoint(entry.plan.agents)
        ]
        seen = [record for record, _since in sessions]
        # Operators see what has no record here; the page is for everybody.
        sessions += [(record, record["created_at"]) for record in others]
        records = [*seen, *others]
        if args.get("path"):
            self.write_report(args["path"], to_json(records))
        if args.get("page_path"):
            page = render_page(_page_sources(), seen, cluster.facts, cluster.unavailable, now)
            self.write_report(args["page_path"], page, 0o644)
        style = args.get("format") or "table"
        if style == "none":
            return {}
        self.show(
            to_json(records).splitlines() if style == "json" else session_table(sessions, now, wide=style == "wide")
        )
        # Some agents, as with --limit, do not show whether this control node is cut off.
        asked_all = len(away) + len(answered) == len(args["agents"])
        warnings = [*self.warnings(cluster), *(describe_cut_off(away, answered) if asked_all else [])] + [
            f"session {entry.name or entry.id} has ended, but {', '.join(entry.agents)} may still run a part of it."
            for entry in entries
            if entry.state == TERMINATING
        ]
        warnings += describe_disagreements(cluster)
        if actions.agents:
            warnings.append(
                f"sessions on {', '.join(actions.agents)} need action: run backendai.cluster.schedule_sessions to"
                " remove ended sessions and restart failed containers."
            )
        return {"warnings": warnings}

    def _agents(self, variables: dict[str, Any]) -> dict[str, Any]:
        """List the agents, and what is free on them, less what other runs are about to claim."""
        args = self._task.args
        entries = self.entries(self.queue(variables))
        cluster = self.with_inventory(self.cluster_state(args["agents"], variables, entries), variables)
        cluster = self.with_reservations(cluster, entries)
        away, answered = self.attendance(args["agents"], variables)
        report = printable_data(agents_report(cluster))
        self.write_report(args.get("path") or "", to_json(report))
        self.show(render_agents(report))
        asked_all = len(away) + len(answered) == len(args["agents"])
        warnings = [
            *(f"{name}: {text}" for name, facts in sorted(cluster.facts.items()) for text in facts.warnings),
            *(describe_cut_off(away, answered) if asked_all else []),
        ]
        return {"warnings": [printable(warning) for warning in warnings], "report": report}

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


def _page_sources() -> PageSources:
    folder = COLLECTION / "roles" / "session" / "templates" / "page"
    return PageSources(*((folder / name).read_text() for name in ("page.html.j2", "page.css", "page.js")))


def _absent(plan: SessionPlan, away: Collection[str]) -> list[str]:
    return [agent for agent in plan.agents if agent in away]


def _stage(entry: QueueEntry) -> dict[str, Any]:
    """Return the changes of the record of a session that a run starts now: why it has waited is over."""
    return {"status": CREATING, "pending": None} if entry.state == CREATING and entry.owner else {}


def _closed_storage(plan: SessionPlan, cluster: ClusterState) -> dict[str, Any]:
    """Return the storage services that containers of a session do not reach, with the agents that have mounted them.

    It is a field of the record, if there are any.
    """
    agents = [name for name in plan.agents if name in cluster.facts and not plan.shares_host_network]
    closed = [{"agent": name, **service} for name in agents for service in closed_storage(cluster.facts[name])]
    return {"closed_storage": closed} if closed else {}


def _removed_agents(entries: Iterable[QueueEntry], inventory: Iterable[str]) -> set[str]:
    """Return the agents of running sessions that have left the inventory."""
    plans = [entry.plan for entry in entries if entry.state == RUNNING and entry.plan]
    return {agent for plan in plans for agent in plan.agents}.difference(inventory)


def _unseen_record(
    entry: QueueEntry,
    plan: SessionPlan,
    cluster: ClusterState,
    absences: Absences,
    unseen: tuple[Collection[str], Collection[str]],
) -> dict[str, Any]:
    """Return the record of a session that no agent reports: some are away, others unavailable or removed."""
    away, unusable = unseen
    others = [agent for agent in plan.agents if agent in unusable and agent not in away]
    removed = any(agent not in cluster.unavailable for agent in others)
    reasons = [
        cluster.explain_unavailable(others),
        "put them back, or end the session with session_force=true" if removed else "",
        absences.explain(_absent(plan, away)),
    ]
    error, host_keys = printable("; ".join(filter(None, reasons))), entry.record.get("host_keys")
    return {**session_record(plan, "DEGRADED", error=error, host_keys=host_keys), "created_at": entry.enqueued_at}


def _record(session: Session, entry: QueueEntry, absent: str, now: float) -> dict[str, Any]:
    """Return the record of a session on agents; it is not healthy if some are ``absent``."""
    status = "DEGRADED" if absent and session.status == "RUNNING" else session.status
    keys = entry.record.get("host_keys")
    record = session_record(session.plan, status, session.containers, absent or None, keys)
    ends_at = end_time(session, now) if record["started_at"] else None
    return {**record, "ends_at": ends_at, "created_at": entry.enqueued_at}


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
