# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Plans the end of a session: selects the session, the agents to remove it from, and the entry for the queue."""

from __future__ import annotations

import dataclasses
import uuid
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ...module_utils._model.plan import SessionPlan
from ...module_utils._model.validation import ValidationError
from .._planner.cluster_state import ClusterState, Parts, plan_of
from .._planner.session_network import PlanningError
from .._queue.entry import (
    CREATING,
    PENDING,
    RUNNING,
    TERMINATED,
    TERMINATING,
    QueueEntry,
    mark_terminated,
    mark_terminating,
)
from .._report.record import ended_record, session_record, unplanned_record
from .reconcile import find_terminating, make_terminating_entry, requested_at

BY_USER = "terminate_session was run"


def add_end_results(record: Mapping[str, Any], results: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the record of an ended session with what its agents report: the grace was exceeded, output was lost.

    Without results it is as it was; what an earlier run has added stays.
    """
    listed = list(results)
    if not listed:
        return dict(record)
    exceeded = bool(record.get("grace_exceeded")) or any(result.get("grace_exceeded") for result in listed)
    lost = [text for known in (record, *listed) for text in known.get("lost_output") or ()]
    return {**record, "grace_exceeded": exceeded, **({"lost_output": list(dict.fromkeys(lost))} if lost else {})}


@dataclasses.dataclass(frozen=True)
class Termination:
    """How a session ends: its last record, the entry for the queue (``note``), and its plan if agents hold it.

    The session is removed from ``agents`` now, and from ``unreachable`` agents when they return.
    """

    record: dict[str, Any]
    note: QueueEntry | None = None
    plan: SessionPlan | None = None
    agents: tuple[str, ...] = ()
    unreachable: tuple[str, ...] = ()


def end_session(
    name: str, session_id: str, entries: Sequence[QueueEntry], cluster: ClusterState, *, force: bool, now: float
) -> Termination:
    """Return how the session of that name or id ends; there are no actions if no such session exists.

    A PENDING session is cancelled; the entry lists agents of its last start that cannot be asked. A session on agents
    is removed from all of them, and from every agent that says that it holds a part; with ``force`` from those that are
    reachable, and the entry lists the others. Raises :class:`ValidationError` or :class:`PlanningError` with one
    sentence.
    """
    parts, entry = _resolve_session(name, session_id, entries, cluster)
    if entry and entry.state == RUNNING and entry.plan:
        return _terminate_held(entry.plan, entry.plan.agents, entry, cluster, force=force, now=now)
    if parts:
        named = [agent for part in parts.values() for agent in part.plan.agents]
        return _terminate_held(plan_of(parts), named, entry, cluster, force=force, now=now)
    if entry and entry.state == CREATING and entry.owner:
        raise PlanningError(
            f"the session {entry.name!r} is being started by another run, process {entry.owner.pid}: end that run"
            " first, or wait for it"
        )
    if entry and entry.state in (PENDING, CREATING):
        record = ended_record(entry.record, "CANCELLED", BY_USER, None, entry.enqueued_at, now)
        away = tuple(agent for agent in entry.plan.agents if agent not in cluster.facts) if entry.plan else ()
        note = mark_terminating(entry, record, away, now) if away else mark_terminated(entry, record, now)
        return Termination(record, note, unreachable=away)
    record = entry.record if entry else unplanned_record(None, name or None, "TERMINATED", session_id or None)
    holders = cluster.holders(entry.id if entry else session_id)
    if holders:
        return _terminate_unread(record, holders, entry.agents if entry else (), now)
    if entry:
        return Termination(entry.record, unreachable=entry.agents)
    if cluster.unavailable and not force:
        raise PlanningError(
            f"no session {name or session_id!r} was found, and not all agents are available:"
            f" {cluster.explain_unavailable(cluster.unavailable)};"
            " with session_force it is removed from them when they return"
        )
    return _terminate_later(record, cluster, now) if cluster.unavailable else Termination(record)


def _resolve_session(
    name: str, session_id: str, entries: Sequence[QueueEntry], cluster: ClusterState
) -> tuple[Parts, QueueEntry | None]:
    """Return the parts of the session on agents, empty if there are none, and its entry in the queue."""
    sessions = cluster.sessions
    live = [entry for entry in entries if entry.state != TERMINATED]
    if session_id:
        parts = sessions.get(session_id, {})
        entry = next((queued for queued in entries if queued.id == session_id), None)
        actual_name = plan_of(parts).name if parts else entry.name if entry else name
        if name and actual_name != name:
            raise ValidationError(f"session_id: {session_id!r} is the id of {actual_name!r}, not of {name!r}.")
        return parts, entry
    ending_ids = {candidate for _entry, ids in find_terminating(live, sessions) for candidate in ids}
    by_name = {candidate: parts for candidate, parts in sessions.items() if plan_of(parts).name == name}
    same_name = {queued.id: queued for queued in live if queued.name == name}
    waiting = [candidate for candidate, queued in same_name.items() if queued.state != TERMINATING]
    # If all are ending already, it is one of these.
    candidates = {*by_name, *waiting} - ending_ids or {*by_name}
    if len(candidates) > 1:
        ids = ", ".join(sorted(candidates))
        raise ValidationError(f"session_name: {len(candidates)} sessions are called {name!r}: give session_id ({ids}).")
    candidate = next(iter(candidates), next(iter(same_name), ""))
    return by_name.get(candidate, {}), same_name.get(candidate)


def _terminate_held(
    plan: SessionPlan,
    planned_agents: Iterable[str],
    entry: QueueEntry | None,
    cluster: ClusterState,
    *,
    force: bool,
    now: float,
) -> Termination:
    # Removing needs no plan: an agent removes what bears the session's id, so one agent too many is harmless.
    named = list(dict.fromkeys([*planned_agents, *cluster.holders(plan.id)]))
    unreachable = tuple(agent for agent in named if agent not in cluster.facts)
    if unreachable and not force:
        raise PlanningError(
            f"the session {plan.name!r} has containers on agents that cannot be used, so nothing was ended:"
            f" {cluster.explain_unavailable(unreachable)};"
            " with session_force it is removed from them when they return"
        )
    began = requested_at(plan, entry)
    record = ended_record(session_record(plan, "TERMINATED"), "TERMINATED", BY_USER, None, began, now)
    live = entry if entry and entry.state != TERMINATED else None
    note = mark_terminating(live or make_terminating_entry(plan, record, now), record, named, now)
    # An overlay can only be removed when it is no longer in use: the agent that removes it comes last.
    manager = plan.network.swarm_manager if plan.network else None
    agents = sorted((agent for agent in named if agent not in unreachable), key=lambda agent: agent == manager)
    return Termination(record, note, plan, tuple(agents), unreachable)


def _terminate_later(record: dict[str, Any], cluster: ClusterState, now: float) -> Termination:
    """Return the end of a session that may exist on unreachable agents: they remove it when they return."""
    unreachable = tuple(sorted(cluster.unavailable))
    note = _unplanned_entry(record, unreachable, now)
    return Termination(note.record, note, unreachable=unreachable)


def _terminate_unread(record: dict[str, Any], holders: Sequence[str], others: Iterable[str], now: float) -> Termination:
    """Return the end of a session of which agents have parts that they cannot read; ``others`` remove it, too."""
    unreachable = tuple(sorted({*others} - {*holders}))
    note = _unplanned_entry(record, (*holders, *unreachable), now)
    return Termination(note.record, note, agents=tuple(holders), unreachable=unreachable)


def _unplanned_entry(record: dict[str, Any], agents: tuple[str, ...], now: float) -> QueueEntry:
    """Return the entry of a session that has to be removed from agents and of which no plan is known."""
    return QueueEntry(
        id=record["id"] or str(uuid.uuid4()),
        name=record["name"] or "",
        state=TERMINATING,
        user="",
        resource_group="",
        priority=0,
        spec=None,
        record=ended_record(record, "TERMINATED", BY_USER, None, None, now),
        enqueued_at=now,
        updated_at=now,
        agents=agents,
    )
