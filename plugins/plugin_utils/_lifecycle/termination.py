# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Plans the end of a session: selects the session, the agents to remove it from, and the entry for the queue."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from ...module_utils._model.plan import SessionPlan
from ...module_utils._model.validation import ValidationError
from .._planner.cluster_state import ClusterState
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
from .._queue.selection import find_entry
from .._report.record import ended_record, session_record, unplanned_record

BY_USER = "on request"


def add_end_results(record: Mapping[str, Any], results: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Return the record of an ended session with what its agents report: the grace was exceeded, output was lost.

    ``results`` are by agent. One that the record does not name has no say, even if it says that it held a part, unless
    the record names none. Without results it is as it was; what an earlier run has added stays.
    """
    named = {kernel["agent"] for kernel in record.get("kernels") or ()}
    listed = [result for agent, result in results.items() if agent in named or not named]
    if not listed:
        return dict(record)
    exceeded = bool(record.get("grace_exceeded")) or any(result.get("grace_exceeded") for result in listed)
    lost = [text for known in (record, *listed) for text in known.get("lost_output") or ()]
    return {**record, "grace_exceeded": exceeded, **({"lost_output": list(dict.fromkeys(lost))} if lost else {})}


@dataclasses.dataclass(frozen=True)
class Termination:
    """How a session ends: its last record, and the entry for the queue (``note``).

    The session is removed from ``agents`` now, and from ``unreachable`` agents when they return.
    """

    record: dict[str, Any]
    note: QueueEntry | None = None
    agents: tuple[str, ...] = ()
    unreachable: tuple[str, ...] = ()


def end_session(
    name: str, session_id: str, entries: Sequence[QueueEntry], cluster: ClusterState, *, force: bool, now: float
) -> Termination:
    """Return how the session of that name or id ends; there are no actions if no such session exists.

    A PENDING session is cancelled, and removed from the agents of its last start. A session on agents is removed from
    all of its plan, and from every agent that says that it holds a part; with ``force`` from those that are reachable,
    and the entry lists the others. One without a record has an id only, and is removed from the agents
    that hold it. Raises :class:`ValidationError` or :class:`PlanningError` with one sentence.
    """
    entry = find_entry(name, session_id, entries)
    if entry is None or (entry.state == TERMINATED and not session_id):
        return _end_stranger(name, session_id, cluster, force=force, now=now)
    if entry.plan and (entry.state == RUNNING or entry.id in cluster.sessions):
        return _terminate_held(entry, entry.plan, cluster, force=force, now=now)
    if entry.state == CREATING and entry.owner:
        raise PlanningError(
            f"the session {entry.name!r} is being started by another run, process {entry.owner.pid}: end that run"
            " first, or wait for it"
        )
    if entry.state in (PENDING, CREATING):
        record = ended_record(entry.record, "CANCELLED", BY_USER, None, entry.enqueued_at, now)
        # Requests of a run that died may be about to claim on agents that hold nothing yet.
        started = entry.plan.agents if entry.plan else ()
        named = tuple(dict.fromkeys([*started, *cluster.holders(entry.id)]))
        note = mark_terminating(entry, record, named, now) if named else mark_terminated(entry, record, now)
        away = tuple(agent for agent in named if agent not in cluster.facts)
        return Termination(record, note, tuple(agent for agent in named if agent not in away), away)
    holders = cluster.holders(entry.id)
    away = tuple(agent for agent in entry.agents if agent not in holders)
    again = mark_terminating(entry, entry.record, [*holders, *away], now) if holders else None
    return Termination(entry.record, again, agents=tuple(holders), unreachable=away)


def _terminate_held(
    entry: QueueEntry, plan: SessionPlan, cluster: ClusterState, *, force: bool, now: float
) -> Termination:
    # An agent removes what bears the session's id, so one agent too many is harmless.
    named = list(dict.fromkeys([*plan.agents, *cluster.holders(plan.id)]))
    unreachable = tuple(agent for agent in named if agent not in cluster.facts)
    if unreachable and not force:
        raise PlanningError(
            f"the session {plan.name!r} has containers on agents that cannot be used, so nothing was ended:"
            f" {cluster.explain_unavailable(unreachable)};"
            " with session_force it is removed from them when they return"
        )
    record = session_record(plan, "TERMINATED", host_keys=entry.record.get("host_keys"))
    record = ended_record(record, "TERMINATED", BY_USER, None, entry.enqueued_at, now)
    agents = tuple(agent for agent in named if agent not in unreachable)
    return Termination(record, mark_terminating(entry, record, named, now), agents, unreachable)


def _end_stranger(name: str, session_id: str, cluster: ClusterState, *, force: bool, now: float) -> Termination:
    """Return the end of a session that has no record here; only its id says which one it is."""
    if not session_id:
        ids = sorted(
            stranger
            for stranger, parts in cluster.strangers.items()
            if any(part.name == name for part in parts.values())
        )
        if ids:
            raise ValidationError(
                f"session_name: this control node has no record of {name!r}, and agents hold sessions of that name: end"
                f" it where it was started, or give session_id ({', '.join(ids)})."
            )
        return Termination(unplanned_record(None, name, "TERMINATED"))
    names = [part.name for part in cluster.strangers.get(session_id, {}).values()]
    if name and names and name not in names:
        raise ValidationError(f"session_id: {session_id!r} is the id of {names[0]!r}, not of {name!r}.")
    record = unplanned_record(None, name or next(iter(names), None), "TERMINATED", session_id)
    holders, away = cluster.holders(session_id), tuple(sorted(cluster.unavailable))
    if away and not force:
        raise PlanningError(
            f"this control node has no record of the session {session_id}, and not all agents are available:"
            f" {cluster.explain_unavailable(away)}; with session_force it is removed from them when they return"
        )
    if not holders and not away:
        return Termination(record)
    note = _unplanned_entry(record, (*holders, *away), now)
    return Termination(note.record, note, tuple(holders), away)


def _unplanned_entry(record: dict[str, Any], agents: tuple[str, ...], now: float) -> QueueEntry:
    """Return the entry of a session that has to be removed from agents and of which no plan is known."""
    return QueueEntry(
        id=record["id"],
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
