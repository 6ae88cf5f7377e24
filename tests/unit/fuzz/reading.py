"""What runs do with the queue and with the facts of agents, once both are read."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import time
from collections.abc import Sequence
from typing import Any

from ansible_collections.backendai.cluster.plugins.module_utils._gateway.routes import parse_vacated
from ansible_collections.backendai.cluster.plugins.module_utils._model.errors import ClusterError
from ansible_collections.backendai.cluster.plugins.plugin_utils._lifecycle.absence import Absences
from ansible_collections.backendai.cluster.plugins.plugin_utils._lifecycle.reconcile import AgentAnswers, reconcile
from ansible_collections.backendai.cluster.plugins.plugin_utils._lifecycle.routes import (
    build_gateway_update,
    find_vacated,
    reachable_plans,
)
from ansible_collections.backendai.cluster.plugins.plugin_utils._lifecycle.start_result import summarize_record
from ansible_collections.backendai.cluster.plugins.plugin_utils._lifecycle.start_steps import start_arguments
from ansible_collections.backendai.cluster.plugins.plugin_utils._lifecycle.termination import end_session
from ansible_collections.backendai.cluster.plugins.plugin_utils._planner.agreement import describe_disagreements
from ansible_collections.backendai.cluster.plugins.plugin_utils._planner.cluster_state import ClusterState
from ansible_collections.backendai.cluster.plugins.plugin_utils._planner.decision import decide
from ansible_collections.backendai.cluster.plugins.plugin_utils._queue.answers import Answers, digest_of_inputs
from ansible_collections.backendai.cluster.plugins.plugin_utils._queue.entry import (
    QueueEntry,
    expired_history,
    recorded_plans,
    reserved_plans,
)
from ansible_collections.backendai.cluster.plugins.plugin_utils._queue.owner import owner_is_alive
from ansible_collections.backendai.cluster.plugins.plugin_utils._queue.policy import still_counted
from ansible_collections.backendai.cluster.plugins.plugin_utils._queue.schedule import QueuePolicy, schedule
from ansible_collections.backendai.cluster.plugins.plugin_utils._report.agents import agents_report, render_agents
from ansible_collections.backendai.cluster.plugins.plugin_utils._report.logs import read_logs
from ansible_collections.backendai.cluster.plugins.plugin_utils._report.page import PageSources, render_page
from ansible_collections.backendai.cluster.plugins.plugin_utils._report.record import session_record, stranger_record
from ansible_collections.backendai.cluster.plugins.plugin_utils._report.session_list import Attendance, list_sessions
from ansible_collections.backendai.cluster.plugins.plugin_utils._report.session_table import session_table
from ansible_collections.backendai.cluster.plugins.plugin_utils._report.verification import AgentReports, find_plan
from ansible_collections.backendai.cluster.plugins.plugin_utils.cluster_view import warnings_about
from tests.unit.builders import NONCE, NOW, POOLS, REPOSITORY, SESSION_ID, USER, spec
from tests.unit.fuzz.mutations import assert_sentence

FOLDER = REPOSITORY / "roles/session/templates/page"
PAGE = PageSources(*((FOLDER / name).read_text() for name in ("page.html.j2", "page.css", "page.js")))


@contextlib.contextmanager
def refused_at_most() -> Any:
    """Let the project's own errors pass, if they are sentences."""
    try:
        yield
    except ClusterError as error:
        assert_sentence(error)


def use(entries: Sequence[QueueEntry], cluster: ClusterState) -> None:
    """Do what list_sessions, schedule_sessions, create_session and terminate_session do before they reach a host."""
    cluster = dataclasses.replace(cluster, records=recorded_plans(entries))
    for entry in entries:
        owner_is_alive(entry, 7200.0)
    answers = AgentAnswers(dict.fromkeys(cluster.facts, ()), NOW)
    for end_orphaned in (True, False):
        actions = reconcile(entries, cluster.held, ["agent9"], end_orphaned, NOW, answers)
        for entry in actions.entries_to_save:
            assert QueueEntry.from_json(entry.to_json(), "x.json") == QueueEntry.from_json(entry.to_json(), "x.json")
    expired_history(entries, NOW, 30)
    still_counted(entries, 16)
    digest_of_inputs(entries, cluster, POOLS, {})
    free = cluster
    for plan in reserved_plans(entries, cluster.sessions):
        free = free.with_plan(plan)
    for policy in ("fifo", "drf"):
        with refused_at_most():
            schedule(entries, Answers(free, POOLS, NOW), QueuePolicy(policy, 16))
    with refused_at_most():
        _create(free)
    for name, session_id in (("train-llm", ""), ("", SESSION_ID)):
        with refused_at_most():
            end_session(name, session_id, entries, cluster, force=True, now=NOW)
        with refused_at_most():
            find_plan(name, session_id, entries)
        with refused_at_most():
            read_logs(name, session_id, AgentReports({}, {"agent1": "it is off"}), entries, "")
    _list(entries, cluster)
    _show(entries, cluster)


def _create(cluster: ClusterState) -> None:
    request = spec(name="train-llm", cluster_size=2, cluster_mode="multi-node")
    decision: Any = decide(request, cluster, POOLS, SESSION_ID, USER, NOW)
    if hasattr(decision, "plan"):
        json.dumps(start_arguments(decision, [], nonce=NONCE, never_completed=False), allow_nan=False)
        decision.plan.lines()


def _show(entries: Sequence[QueueEntry], cluster: ClusterState) -> None:
    """Do what list_sessions and list_agents do with the times, the loads and the amounts of agents."""
    agents = [*cluster.facts, *cluster.unavailable]
    attendance = Attendance(agents, [*cluster.unavailable], [*cluster.facts])
    listed = list_sessions(entries, cluster, attendance, Absences(), QueuePolicy("drf", 16), history=True, now=NOW)
    json.dumps([record for record, _since in listed.all], allow_nan=False)
    for record, _since in listed.all:
        for name in ("created_at", "ends_at"):
            time.gmtime(record[name] or 0)
    report = agents_report(cluster)
    json.dumps(report, allow_nan=False)
    "\n".join([*render_agents(report), *warnings_about(cluster)]).encode()


def _list(entries: Sequence[QueueEntry], cluster: ClusterState) -> None:
    records = [(entry.record, entry.enqueued_at) for entry in entries]
    records += [
        (session_record(session.plan, session.status, session.containers), session.plan.created_at)
        for session in cluster.sessions.values()
    ]
    for session_id, parts in cluster.strangers.items():
        record = stranger_record(session_id, parts)
        records.append((record, record["created_at"]))
    "\n".join(session_table(records, NOW)).encode()
    render_page(PAGE, [record for record, _since in records], cluster.facts, cluster.unavailable, {}, NOW).encode()
    for record, _since in records:
        "\n".join(summarize_record(record, check_mode=False)).encode()
    vacated = [session for sessions in find_vacated(cluster).values() for session in sessions]
    # One that no gateway accepts would stop all routes.
    parse_vacated(vacated)
    json.dumps(build_gateway_update(reachable_plans(cluster), entries, 0.0, vacated=vacated), allow_nan=False)
    "\n".join(describe_disagreements(cluster)).encode()
