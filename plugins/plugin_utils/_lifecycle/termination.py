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
from ...module_utils._model.validation import SpecError
from .._planner.cluster_state import Parts, Readings, plan_of
from .._planner.session_network import PlanError
from .._queue.entry import ENDED, ENDING, STARTING, WAITING, Entry, ended, ending
from .._report.record import ended_record, session_record, unplanned_record
from .due import doomed, note_of_end

BY_USER = "terminate_session was run"


@dataclasses.dataclass(frozen=True)
class End:
    """How a session ends: its last record, the ``note`` for the queue, and its plan where agents hold it.

    ``agents`` are those that can be cleared now, ``away`` those that are cleared when they return.
    """

    record: dict[str, Any]
    note: Entry | None = None
    plan: SessionPlan | None = None
    agents: tuple[str, ...] = ()
    away: tuple[str, ...] = ()


def end_session(
    name: str, session_id: str, entries: Sequence[Entry], readings: Readings, *, force: bool, now: float
) -> End:
    """Return how the session of that name or id ends; nothing happens where there is none.

    One that waits is cancelled. One that agents hold goes from all of them; with ``force`` from those that can be
    asked, and the note remembers the others. Raises :class:`SpecError` or :class:`PlanError` with one sentence.
    """
    parts, entry = _meant(name, session_id, entries, readings)
    if parts:
        return _taken_away(plan_of(parts), entry, readings, force=force, now=now)
    if entry and entry.state == STARTING and entry.owner:
        raise PlanError(
            f"the session {entry.name!r} is being started by another run, process {entry.owner.pid}: end that run"
            " first, or wait for it"
        )
    if entry and entry.state in (WAITING, STARTING):
        record = ended_record(entry.record, "CANCELLED", BY_USER, None, entry.enqueued_at, now)
        return End(record, ended(entry, record, now))
    if entry:
        return End(entry.record, away=entry.agents)
    record = unplanned_record(None, name or None, "TERMINATED", session_id or None)
    if readings.left_out and not force:
        raise PlanError(
            f"no session {name or session_id!r} was found, and not all agents can be asked:"
            f" {readings.why(readings.left_out)}; with session_force they are cleared of it when they return"
        )
    return _remembered(record, readings, now) if readings.left_out else End(record)


def _meant(name: str, session_id: str, entries: Sequence[Entry], readings: Readings) -> tuple[Parts, Entry | None]:
    """Return what agents hold of the session, nothing where they hold none, and what the queue has of it."""
    sessions = readings.sessions
    live = [entry for entry in entries if entry.state != ENDED]
    if session_id:
        parts = sessions.get(session_id, {})
        entry = next((one for one in entries if one.id == session_id), None)
        called = plan_of(parts).name if parts else entry.name if entry else name
        if name and called != name:
            raise SpecError(f"session_id: {session_id!r} is the id of {called!r}, not of {name!r}.")
        return parts, entry
    going = {one for _entry, ids in doomed(live, sessions) for one in ids}
    named = {one: parts for one, parts in sessions.items() if plan_of(parts).name == name}
    named = {one: parts for one, parts in named.items() if one not in going} or named
    if len(named) > 1:
        ids = ", ".join(sorted(named))
        raise SpecError(f"session_name: {len(named)} sessions are called {name!r}: give session_id ({ids}).")
    of_that_name = [one for one in live if one.name == name and (not named or one.id in named)]
    return next(iter(named.values()), {}), min(of_that_name, key=lambda one: one.state == ENDING, default=None)


def _taken_away(plan: SessionPlan, entry: Entry | None, readings: Readings, *, force: bool, now: float) -> End:
    away = tuple(agent for agent in plan.agents if agent not in readings.facts)
    if away and not force:
        raise PlanError(
            f"the session {plan.name!r} has containers on agents that cannot be used, so nothing was ended:"
            f" {readings.why(away)}; with session_force it ends without them, and they are cleared when they return"
        )
    record = ended_record(session_record(plan, "TERMINATED"), "TERMINATED", BY_USER, None, plan.created_at, now)
    live = entry if entry and entry.state != ENDED else None
    note = ending(live, record, plan.agents, now) if live else note_of_end(plan, record, now)
    # An overlay goes when nobody uses it any more: who has to take it away is asked last.
    manager = plan.network.manager if plan.network else None
    agents = sorted((agent for agent in plan.agents if agent not in away), key=lambda agent: agent == manager)
    return End(record, note, plan, tuple(agents), away)


def _remembered(record: dict[str, Any], readings: Readings, now: float) -> End:
    """Return the end of a session that only agents hold which cannot be asked: they learn of it when they return."""
    over = ended_record(record, "TERMINATED", BY_USER, None, None, now)
    away = tuple(sorted(readings.left_out))
    note = Entry(
        id=record["id"] or str(uuid.uuid4()),
        name=record["name"] or "",
        state=ENDING,
        user="",
        resource_group="",
        priority=0,
        spec=None,
        record=over,
        enqueued_at=now,
        updated_at=now,
        agents=away,
    )
    return End(over, note, away=away)
