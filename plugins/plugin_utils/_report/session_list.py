# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The list of sessions: what the queue knows of each, and what agents say of those that run."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from ...module_utils._model.plan import SessionPlan
from ...module_utils._model.printable import printable
from .._lifecycle.absence import Absences, describe_cut_off
from .._lifecycle.reconcile import reconcile
from .._lifecycle.time_limits import end_time, next_ends
from .._planner.agreement import describe_disagreements
from .._planner.cluster_state import ClusterState, Session
from .._queue.entry import CREATING, PENDING, RUNNING, TERMINATED, TERMINATING, QueueEntry
from .._queue.schedule import QueuePolicy, positions
from .agents import closed_storage
from .record import complete_record, session_record, stranger_record, with_next_end
from .session_table import format_duration


class Attendance(NamedTuple):
    """The agents of an inventory: all of them, those that could not be reached, and those that answered.

    Others were not asked.
    """

    agents: Collection[str]
    away: Sequence[str]
    answered: Sequence[str]


class SessionList(NamedTuple):
    """The records of sessions, each with the time of its request in seconds since the epoch.

    ``strangers`` are those that have no record here: operators see them, and they are nobody's.
    """

    sessions: list[tuple[dict[str, Any], float]]
    strangers: list[tuple[dict[str, Any], float]]
    warnings: list[str]

    @property
    def all(self) -> list[tuple[dict[str, Any], float]]:
        """The sessions, and then those without a record."""
        return [*self.sessions, *self.strangers]


def list_sessions(
    entries: Sequence[QueueEntry],
    cluster: ClusterState,
    attendance: Attendance,
    absences: Absences,
    rules: QueuePolicy,
    *,
    history: bool,
    now: float,
) -> SessionList:
    """Return the sessions of the agents and of the queue, with ``history`` those that have ended, too.

    The warnings are about sessions that need action.
    """
    unreachable = [name for name in attendance.agents if name not in cluster.facts]
    actions = reconcile(entries, cluster.held, unreachable, False, now)
    # Finished sessions that are not saved in the queue yet.
    finished = {entry.id: entry.record for entry in actions.entries_to_save if entry.state == TERMINATING}
    by_id = {entry.id: entry for entry in entries}
    sessions = [
        (
            finished.get(session_id)
            or {
                **_record(session, by_id[session_id], _silent(session.plan, cluster, absences, attendance.away), now),
                **_closed_storage(session.plan, cluster),
                **_gpu_models(session.plan, cluster),
                **_use(session),
            },
            session.plan.created_at,
        )
        for session_id, session in cluster.sessions.items()
    ]
    places = positions(entries, cluster, rules)
    ends = next_ends(entries, cluster, places, now)
    states = (PENDING, CREATING, TERMINATING, TERMINATED) if history else (PENDING, CREATING)
    sessions += [
        (
            {
                **with_next_end(complete_record(entry.record), ends.get(entry.id)),
                **_stage(entry),
                "queue_position": places.get(entry.id),
            },
            entry.enqueued_at,
        )
        for entry in entries
        if entry.state in states and entry.id not in cluster.sessions
    ]
    unseen = {*cluster.unavailable, *_removed_agents(entries, attendance.agents)}
    sessions += [
        (_unseen_record(entry, entry.plan, cluster, absences, (attendance.away, unseen)), entry.plan.created_at)
        for entry in entries
        if entry.state == RUNNING and entry.plan and entry.id not in cluster.sessions
        if not unseen.isdisjoint(entry.plan.agents)
    ]
    live = {entry.id for entry in entries if entry.state != TERMINATED}
    strangers = {name: parts for name, parts in cluster.strangers.items() if name not in live}
    others = [stranger_record(session_id, parts) for session_id, parts in strangers.items()]
    return SessionList(
        sessions,
        [(record, record["created_at"]) for record in others],
        [*_warnings(entries, cluster, attendance), *_due(actions.agents)],
    )


def _warnings(entries: Iterable[QueueEntry], cluster: ClusterState, attendance: Attendance) -> list[str]:
    away, answered = attendance.away, attendance.answered
    # Some agents, as with --limit, do not show whether this control node is cut off.
    asked_all = len(away) + len(answered) == len(attendance.agents)
    return [
        *(describe_cut_off(away, answered) if asked_all else []),
        *(
            f"session {entry.name or entry.id} has ended, but {', '.join(entry.agents)} may still run a part of it."
            for entry in entries
            if entry.state == TERMINATING
        ),
        *describe_disagreements(cluster),
    ]


def describe_timer(timer: Mapping[str, Any], entries: Iterable[QueueEntry], now: float) -> dict[str, Any]:
    """Return what is known of the timer, with its ``problem``: empty, unless its last pass is long ago.

    A pass that starts sessions now takes as long as their images.
    """
    if not timer or now <= timer["late_at"] or any(entry.state == CREATING and entry.owner for entry in entries):
        return {**timer, "problem": ""}
    ago, host = format_duration(now - timer["ran_at"]), timer["host"]
    effect = "sessions that wait do not start, and none ends by its time"
    why = f"systemctl status backendai-schedule.service on {host} says why"
    return {**timer, "problem": f"the last good run of the timer was {ago} ago: {effect}; {why}."}


def _due(agents: Collection[str]) -> list[str]:
    if not agents:
        return []
    text = (
        f"sessions on {', '.join(agents)} need action: run backendai.cluster.schedule_sessions to"
        " remove ended sessions and restart failed containers."
    )
    return [text]


def _absent(plan: SessionPlan, away: Collection[str]) -> list[str]:
    return [agent for agent in plan.agents if agent in away]


def _silent(plan: SessionPlan, cluster: ClusterState, absences: Absences, away: Collection[str]) -> str:
    """Return why agents of a session say nothing of it: some cannot be used, others are away."""
    unusable = [agent for agent in plan.agents if agent in cluster.unavailable and agent not in away]
    reasons = [cluster.explain_unavailable(unusable), absences.explain(_absent(plan, away))]
    return printable("; ".join(filter(None, reasons)))


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


def _gpu_models(plan: SessionPlan, cluster: ClusterState) -> dict[str, Any]:
    """Return the models of which the GPUs of a session are, as the drivers of its agents name them.

    It is a field of the record, if they are known: an agent may give a container any of the devices that it accepts.
    """
    models: set[str] = set()
    for kernel in plan.kernels:
        devices = cluster.facts[kernel.agent].devices if kernel.agent in cluster.facts else ()
        possible = {each.model for each in devices if each.slot in kernel.resources and plan.gpu.accepts(each)}
        if len(possible) > 1:
            return {}
        models |= possible
    models.discard("")
    return {"gpu_models": sorted(models)} if models else {}


def _use(session: Session) -> dict[str, Any]:
    """Return what a session uses now, in cores and in percent of each GPU, if all of its agents have measured it."""
    loads = [part.load for part in session.parts.values()]
    if session.parts.keys() != {*session.plan.agents} or None in loads:
        return {}
    known = list(filter(None, loads))
    use = {"cpu": round(sum(load.cpu for load in known), 2), "gpus": [each for load in known for each in load.gpus]}
    return {"use": use}


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
