# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Write the results of session starts to the queue and to records, and report them, on the control node."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from ansible.errors import AnsibleActionFail

from ..module_utils._model.images import images_from_dict
from ..module_utils._model.plan import SessionPlan
from ..module_utils._model.printable import printable
from ..module_utils._model.session import MAIN1
from ..plugin_utils._lifecycle.routes import ROUTES_RESULTS, build_gateway_update, sent_ids
from ..plugin_utils._lifecycle.start_result import StartResult, combine_replies, requeue_or_end, summarize_record
from ..plugin_utils._lifecycle.start_steps import Start, read_start
from ..plugin_utils._queue.entry import CREATING, PENDING, mark_running
from ..plugin_utils._queue.owner import current_owner
from ..plugin_utils._report.access import render_access, session_links
from ..plugin_utils._report.logs import logs_report, render_logs
from ..plugin_utils._report.record import session_record, to_json
from ..plugin_utils._report.verification import AgentReports
from ..plugin_utils.agent_results import collect_parts
from ..plugin_utils.control import ControlAction

# The variable of main1's agent with the log of a command that has failed.
LOGGED = "__session_wait_logs"


class ActionModule(ControlAction):
    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result, variables = super().run(tmp, task_vars), task_vars or {}
        state = {"settled": self._settle, "reported": self._report}[self._task.args["state"]]
        return {**result, "changed": False, **state(variables)}

    def _settle(self, variables: Mapping[str, Any]) -> dict[str, Any]:
        """Update queue and records after starts, and return the routes and the next steps."""
        args = self._task.args
        all_starts = [read_start(decided, variables["hostvars"]) for decided in args["starts"]]
        starts = [start for start in all_starts if not start.starting]
        refused = [refusal for start in starts for refusal in start.refusals]
        if refused and args.get("retry"):
            # Other runs have claimed the resources: the session is planned again, and this run keeps its queue entry.
            return {"retry": True, "refused": refused, "sessions": [], "wait": False, "waiting": False, "starting": []}
        sessions = [self._settle_start(start, variables) for start in starts]
        if args.get("pending"):
            sessions.append({"record": args["pending"], "error": None, "printed": []})
        self.write_report(args.get("path") or "", to_json(sessions[0]["record"] if sessions else None))
        for session in sessions if args.get("show", True) else ():
            self.show(
                [*summarize_record(session["record"], check_mode=self._task.check_mode), *_render_printed(session)]
            )
        running = {session["record"]["id"] for session in sessions if session["record"]["status"] == "RUNNING"}
        routed = [start for start in starts if start.id in running and not start.decided["route_problem"]]
        plans = [SessionPlan.from_dict(start.decided["plan"]) for start in routed]
        entries = self.entries(self.queue(variables))
        wait = bool(running) and bool(args.get("wait")) and not self._task.check_mode
        # A failed start releases capacity, and its session may be pending again.
        capacity_released = bool(args.get("capacity_released")) or any(session["error"] for session in sessions)
        previous = sent_ids(variables["hostvars"]["localhost"].get(name) for name in args.get("previous") or ())
        return {
            "retry": False,
            "sessions": sessions,
            "wait": wait,
            "waiting": wait or (capacity_released and any(entry.unfinished for entry in entries)),
            "routes": build_gateway_update(plans, entries, float(args["started_at"]), previous),
            "starting": [dict(start.decided) for start in all_starts if start.starting],
        }

    def _report(self, variables: Mapping[str, Any]) -> dict[str, Any]:
        """Report the status of the session of this run, and fail if it has failed."""
        args = self._task.args
        settled = args["result"]
        (session,) = settled["sessions"]
        record, was_waited_for = session["record"], settled["wait"]
        # A pending session may have been started since, and one that was waited for has ended.
        later = [other["record"] for other in args.get("later") or [] if other["record"]["id"] == record["id"]]
        queue = self.queue(variables)
        entry = queue.entry(record["id"]) if was_waited_for or record["status"] == PENDING else None
        if entry and entry.state == PENDING and not later:
            # The run's pass over the queue may have found another reason since.
            later = [{**record, "pending": entry.record.get("pending")}]
        later += [entry.record] if entry and entry.has_ended and was_waited_for else []
        if later:
            record = later[-1]
            self.write_report(args.get("path") or "", to_json(record))
        links = session_links(record["id"], self._links(variables)) if record["status"] == "RUNNING" else []
        self.write_report(args.get("access_path") or "", to_json(links))
        lines = summarize_record(record, check_mode=self._task.check_mode)
        self.show([*lines, *render_access(str(record["name"]), links, self._host_key(record["id"], variables))])
        # The error of a failed start does not matter if a later one has succeeded.
        failed = session["error"] if record["status"] != "RUNNING" else None
        error = failed or record["error"] or (_failure(record) if was_waited_for else None)
        if failed:
            self.show(_render_printed(session))
        if error and was_waited_for:
            self.show(self._end_of_log(variables))
        if error:
            raise AnsibleActionFail(printable(error))
        return {"record": record, "access": links}

    def _end_of_log(self, variables: Mapping[str, Any]) -> list[str]:
        """Return what the command that failed has printed last; nothing if it could not be read."""
        agents = (self._task.args.get("starts") or [{}])[0].get("agents") or []
        hostvars = {agent: variables["hostvars"][agent] for agent in agents[:1]}
        parts, errors = collect_parts(hostvars, LOGGED)
        held = {agent: listed[0] for agent, listed in parts.items() if listed}
        if not held:
            return []
        hosts = [(MAIN1, agent) for agent in held]
        return list(render_logs(logs_report("", None, hosts, held, AgentReports(parts, errors), MAIN1)))

    def _links(self, variables: Mapping[str, Any]) -> dict[str, list[dict[str, Any]]]:
        """Return the links of each gateway, by name."""
        links = {}
        for gateway in self._task.args.get("gateways") or ():
            results = [variables["hostvars"][gateway].get(name) or {} for name in ROUTES_RESULTS]
            links[gateway] = [link for result in results for link in result.get("links") or []]
        return links

    def _host_key(self, session_id: str, variables: Mapping[str, Any]) -> str:
        """Return the public host key of main1; empty if this run does not have it."""
        for decided in self._task.args.get("starts") or ():
            if decided["id"] == session_id:
                keys = read_start(decided, variables["hostvars"]).public_keys
                return str(keys.get(MAIN1, {}).get("host") or "")
        return ""

    def _settle_start(self, start: Start, variables: Mapping[str, Any]) -> dict[str, Any]:
        """Update the queue after a start, and return the record and the error of the session."""
        plan = SessionPlan.from_dict(start.decided["plan"])
        replies = {agent: start.outcome_on(agent) for agent in plan.agents}
        outcome = combine_replies(plan, replies, repairs=start.repairs)
        keys = start.host_keys(plan.kernels)
        record = session_record(plan, outcome.status, outcome.containers, outcome.error, keys)
        record = self._update_queue(variables, start, record, outcome)
        return {"record": record, "error": record["error"] or outcome.error, "printed": list(outcome.printed)}

    def _update_queue(
        self, variables: Mapping[str, Any], start: Start, record: dict[str, Any], outcome: StartResult
    ) -> dict[str, Any]:
        """Update the queue, unless a later run has taken the session over, and return the current record.

        A session that is requeued has the record of its queue entry.
        """
        if self._task.check_mode:
            return record
        queue = self.queue(variables)
        with queue.lock():
            entry = queue.entry(start.id)
            if entry is None:
                return record
            if entry.state != CREATING or entry.owner != current_owner():
                return {**record, "created_at": entry.enqueued_at}
            if outcome.status == "RUNNING":
                # All agents have the same images.
                images = images_from_dict(start.images).values()
                by_name = {name: image for held in images for name, image in held.items()}
                running = mark_running(entry, time.time(), record, by_name)
                queue.save(running)
                return running.record
            failed = {**record, "error": outcome.error_at_end}
            kept = requeue_or_end(entry, failed, outcome, time.time())
            queue.save(kept)
            return kept.record if kept.state == PENDING else failed


def _render_printed(session: Mapping[str, Any]) -> list[str]:
    """Return what containers of a failed start printed last; it is shown, and is in no record."""
    return [f"  {line}" for line in session.get("printed") or ()]


def _failure(record: Mapping[str, Any]) -> str | None:
    """Return the error of a session that was waited for; ``None`` if its command succeeded."""
    if record.get("ended_at") is None:
        return f"the session {record['name']!r} is still running: its agent became unreachable."
    return None if record["exit_code"] == 0 else f"the session {record['name']!r} has ended: {record['reason']}."
