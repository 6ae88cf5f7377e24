# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What ending a session means: which one is meant, what goes where, and what stays noted."""

from __future__ import annotations

import dataclasses
import uuid
from collections.abc import Sequence
from typing import Any

from ...module_utils._model.plan import SessionPlan
from ...module_utils._model.validation import ValidationError
from .._planner.cluster_state import ClusterState, Parts, plan_of
from .._planner.session_network import PlanningError
from .._queue.entry import CREATING, PENDING, TERMINATED, TERMINATING, QueueEntry, ended, ending
from .._report.record import ended_record, session_record, unplanned_record
from .due import terminating, terminating_entry

BY_USER = "terminate_session was run"


@dataclasses.dataclass(frozen=True)
class Termination:
    """How a session ends: its last record, the ``note`` for the queue, and its plan where agents hold it.

    ``agents`` are those that can be cleared now, ``away`` those that are cleared when they return.
    """

    record: dict[str, Any]
    note: QueueEntry | None = None
    plan: SessionPlan | None = None
    agents: tuple[str, ...] = ()
    unreachable: tuple[str, ...] = ()


def end_session(
    name: str, session_id: str, entries: Sequence[QueueEntry], readings: ClusterState, *, force: bool, now: float
) -> Termination:
    """Return how the session of that name or id ends; nothing happens where there is none.

    One that waits is cancelled. One that agents hold goes from all of them; with ``force`` from those that can be
    asked, and the note remembers the others. Raises :class:`ValidationError` or :class:`PlanningError` with one sentence.
    """
    parts, entry = _resolve_session(name, session_id, entries, readings)
    if parts:
        return _terminate_held(plan_of(parts), entry, readings, force=force, now=now)
    if entry and entry.state == CREATING and entry.owner:
        raise PlanningError(
            f"the session {entry.name!r} is being started by another run, process {entry.owner.pid}: end that run"
            " first, or wait for it"
        )
    if entry and entry.state in (PENDING, CREATING):
        record = ended_record(entry.record, "CANCELLED", BY_USER, None, entry.enqueued_at, now)
        return Termination(record, ended(entry, record, now))
    if entry:
        return Termination(entry.record, unreachable=entry.agents)
    record = unplanned_record(None, name or None, "TERMINATED", session_id or None)
    if readings.unavailable and not force:
        raise PlanningError(
            f"no session {name or session_id!r} was found, and not all agents can be asked:"
            f" {readings.why(readings.unavailable)}; with session_force they are cleared of it when they return"
        )
    return _terminate_later(record, readings, now) if readings.unavailable else Termination(record)


def _resolve_session(
    name: str, session_id: str, entries: Sequence[QueueEntry], readings: ClusterState
) -> tuple[Parts, QueueEntry | None]:
    """Return what agents hold of the session, nothing where they hold none, and what the queue has of it."""
    sessions = readings.sessions
    live = [entry for entry in entries if entry.state != TERMINATED]
    if session_id:
        parts = sessions.get(session_id, {})
        entry = next((one for one in entries if one.id == session_id), None)
        called = plan_of(parts).name if parts else entry.name if entry else name
        if name and called != name:
            raise ValidationError(f"session_id: {session_id!r} is the id of {called!r}, not of {name!r}.")
        return parts, entry
    going = {one for _entry, ids in terminating(live, sessions) for one in ids}
    named = {one: parts for one, parts in sessions.items() if plan_of(parts).name == name}
    named = {one: parts for one, parts in named.items() if one not in going} or named
    if len(named) > 1:
        ids = ", ".join(sorted(named))
        raise ValidationError(f"session_name: {len(named)} sessions are called {name!r}: give session_id ({ids}).")
    of_that_name = [one for one in live if one.name == name and (not named or one.id in named)]
    return next(iter(named.values()), {}), min(of_that_name, key=lambda one: one.state == TERMINATING, default=None)


def _terminate_held(
    plan: SessionPlan, entry: QueueEntry | None, readings: ClusterState, *, force: bool, now: float
) -> Termination:
    away = tuple(agent for agent in plan.agents if agent not in readings.facts)
    if away and not force:
        raise PlanningError(
            f"the session {plan.name!r} has containers on agents that cannot be used, so nothing was ended:"
            f" {readings.why(away)}; with session_force it ends without them, and they are cleared when they return"
        )
    record = ended_record(session_record(plan, "TERMINATED"), "TERMINATED", BY_USER, None, plan.created_at, now)
    live = entry if entry and entry.state != TERMINATED else None
    note = ending(live, record, plan.agents, now) if live else terminating_entry(plan, record, now)
    # An overlay goes when nobody uses it any more: who has to take it away is asked last.
    manager = plan.network.swarm_manager if plan.network else None
    agents = sorted((agent for agent in plan.agents if agent not in away), key=lambda agent: agent == manager)
    return Termination(record, note, plan, tuple(agents), away)


def _terminate_later(record: dict[str, Any], readings: ClusterState, now: float) -> Termination:
    """Return the end of a session that only agents hold which cannot be asked: they learn of it when they return."""
    over = ended_record(record, "TERMINATED", BY_USER, None, None, now)
    away = tuple(sorted(readings.unavailable))
    note = QueueEntry(
        id=record["id"] or str(uuid.uuid4()),
        name=record["name"] or "",
        state=TERMINATING,
        user="",
        resource_group="",
        priority=0,
        spec=None,
        record=over,
        enqueued_at=now,
        updated_at=now,
        agents=away,
    )
    return Termination(over, note, unreachable=away)
