# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Finds sessions that need action: finished, failed, abandoned or timed out."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from ...module_utils._model.session import MAIN1, STOPPED
from .._planner.cluster_state import Parts, Session, find_sessions
from .._queue.entry import (
    CREATING,
    PENDING,
    RUNNING,
    TERMINATING,
    QueueEntry,
    forget_start,
    mark_running,
    mark_terminated,
    mark_terminating,
    recorded_plans,
    timed_out,
)
from .._report.record import command_end, ended_record, session_record
from .time_limits import time_reason


@dataclasses.dataclass(frozen=True)
class ReconcileActions:
    """The actions to take: ``end`` and ``restart`` are session ids by agent.

    ``withdraw`` are, by agent, the nonces of starts that claim nothing any more, by session id. Agents remove expired
    claims themselves.
    """

    end: dict[str, list[str]]
    restart: dict[str, list[str]]
    withdraw: dict[str, dict[str, str]]
    agents_with_expired_claims: tuple[str, ...]
    entries_to_save: tuple[QueueEntry, ...]

    def ending_only(self, ids: Collection[str]) -> ReconcileActions:
        """Return the actions without the ends of other sessions."""
        end = {agent: [each for each in ending if each in ids] for agent, ending in self.end.items()}
        return dataclasses.replace(self, end={agent: ending for agent, ending in end.items() if ending})

    @property
    def agents(self) -> list[str]:
        """The agents that have to take action."""
        return sorted({*self.end, *self.restart, *self.withdraw, *self.agents_with_expired_claims})


@dataclasses.dataclass(frozen=True)
class AgentAnswers:
    """What agents that have been asked say of all sessions.

    Those ``surveyed``, after ``since`` in seconds since the epoch, have the ids of sessions that they hold and cannot
    read. ``cleared`` are, by session id, the agents that have removed what they had of it, or refuse its last start.
    """

    surveyed: Mapping[str, Collection[str]] = dataclasses.field(default_factory=dict)
    since: float = 0.0
    cleared: Mapping[str, Collection[str]] = dataclasses.field(default_factory=dict)


def reconcile(
    entries: Iterable[QueueEntry],
    held: Mapping[str, Parts],
    unreachable: Collection[str],
    end_orphaned: bool,
    now: float,
    answers: AgentAnswers | None = None,
) -> ReconcileActions:
    """Return the actions that follow from the queue and from what agents hold, by session id.

    A session without an entry is left alone: whoever started it ends it. ``unreachable`` are the agents of the
    inventory without facts. Entries of runs that died must have the state ``CREATING`` and no owner; they are ended
    only with ``end_orphaned``. A session that started before the ``answers``, and that none of its agents holds, has
    ended elsewhere; one that waits forgets its last start, of which nothing is left. An agent that holds no part of a
    session is asked before, too, until it has cleared it: a request of a run that died may be about to claim there.
    ``now`` is in seconds since the epoch.
    """
    listed, answers = list(entries), answers or AgentAnswers()
    sessions = find_sessions(held, recorded_plans(listed))
    unreadable = _group((session_id, agent) for agent, ids in answers.surveyed.items() for session_id in ids)
    completed_starts = [
        mark_running(entry, now, _record(sessions[entry.id], entry, "RUNNING"))
        for entry in listed
        if entry.id in sessions and _has_completed(entry, sessions[entry.id])
    ]
    vanished = [
        entry
        for entry in listed
        if entry.id not in sessions and entry.updated_at < answers.since and _has_vanished(entry, answers.surveyed)
    ]
    waiting = [
        entry
        for entry in vanished
        if (entry.state == PENDING and not timed_out(entry, now)) or (_is_orphaned(entry) and not end_orphaned)
    ]
    withdraw: dict[str, dict[str, str]] = {}
    for entry in waiting:
        for agent in _unasked(entry, answers):
            withdraw.setdefault(agent, {})[entry.id] = entry.nonce
    forgotten = [forget_start(entry) for entry in waiting if not _unasked(entry, answers)]
    by_id = {entry.id: entry for entry in [*listed, *completed_starts, *forgotten]}
    parts = {session_id: session.parts for session_id, session in sessions.items()}

    def may_hold(session_id: str, agent: str) -> bool:
        """Return whether an agent that answers holds a part of a session, or may do so by the time that it is asked."""
        read = {*held.get(session_id, ()), *unreadable.get(session_id, ())}
        return agent in read or (agent in answers.surveyed and agent not in answers.cleared.get(session_id, ()))

    def left_on(entry: QueueEntry) -> list[str]:
        """Return the agents that have to be asked, now or when they answer again, to end a session."""
        started = [*(entry.plan.agents if entry.plan else ()), *held.get(entry.id, ())]
        agents = entry.agents if entry.state == TERMINATING else dict.fromkeys(started)
        return [agent for agent in agents if agent in unreachable or may_hold(entry.id, agent)]

    save = [
        _next_entry(entry, parts.get(entry.id, {}), left_on, end_orphaned=end_orphaned, now=now)
        for entry in by_id.values()
    ]
    save += [_vanished_entry(entry, now) for entry in vanished if entry.state == RUNNING]
    committed = {
        session_id: session
        for session_id, session in sessions.items()
        if not by_id[session_id].unfinished and all(part.committed for part in session.parts.values())
    }
    save += [_termination_entry(session, by_id[session_id], now) for session_id, session in committed.items()]
    changed = {entry.id: entry for entry in [*completed_starts, *forgotten, *save] if entry is not None}
    ending = [entry for entry in {**by_id, **changed}.values() if entry.state == TERMINATING]
    return ReconcileActions(
        end=_group((agent, entry.id) for entry in ending for agent in entry.agents if may_hold(entry.id, agent)),
        restart=_group(
            (agent, session_id)
            for session_id, session in committed.items()
            if session.plan.failure_policy == "restart" and session_id not in changed
            for agent in _agents_with_stopped(session)
        ),
        withdraw=withdraw,
        agents_with_expired_claims=tuple(
            sorted({agent for each in held.values() for agent, part in each.items() if part.expired})
        ),
        entries_to_save=tuple(changed.values()),
    )


def _group(pairs: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    """Return the second items of pairs by the first ones."""
    groups: dict[str, list[str]] = {}
    for key, item in pairs:
        groups.setdefault(key, []).append(item)
    return groups


def find_end_reason(session: Session, now: float) -> tuple[str, int | None]:
    """Return why a committed session is over (empty if it is not) and the exit code that ended it."""
    plan, stopped = session.plan, session.stopped
    if session.command_is_over:
        if MAIN1 not in stopped:
            return f"{MAIN1} was removed, and with it the command", None
        exit_code = stopped[MAIN1].exit_code
        return command_end(exit_code), exit_code
    failed = [name for name in stopped if not session.completed(name) and name not in session.waiting]
    if failed and plan.failure_policy == "terminate":
        exit_code = stopped[failed[0]].exit_code
        return f"{failed[0]} died with exit code {exit_code} and session_failure_policy is terminate", exit_code
    return time_reason(session, now), None


def _next_entry(
    entry: QueueEntry,
    parts: Parts,
    left_on: Callable[[QueueEntry], list[str]],
    *,
    end_orphaned: bool,
    now: float,
) -> QueueEntry | None:
    """Return the changed entry; ``None`` if it stays as it is. ``left_on`` are the agents to end it on."""
    if timed_out(entry, now) and not any(part.committed for part in parts.values()):
        reason = f"it waited longer than session_pending_timeout, {entry.pending_timeout} seconds"
        record = ended_record(entry.record, "CANCELLED", reason, None, entry.enqueued_at, now)
        return _mark_ending(entry, record, left_on(entry), now)
    if _is_orphaned(entry) and end_orphaned:
        record = ended_record(entry.record, "ERROR", "the run that created it was killed", None, entry.enqueued_at, now)
        planned = session_record(entry.plan, "ERROR") if entry.plan and parts else record
        return _mark_ending(entry, {**planned, **_end_fields(record)}, left_on(entry), now)
    if entry.state == TERMINATING:
        remaining = left_on(entry)
        if not remaining:
            return mark_terminated(entry, entry.record, now)
        if tuple(remaining) != entry.agents:
            return dataclasses.replace(entry, agents=tuple(remaining), updated_at=now)
    return None


def _mark_ending(entry: QueueEntry, record: dict[str, Any], agents: Collection[str], now: float) -> QueueEntry:
    """Return the entry of a session that ends before it has started."""
    return mark_terminating(entry, record, agents, now) if agents else mark_terminated(entry, record, now)


def _has_vanished(entry: QueueEntry, surveyed: Mapping[str, Collection[str]]) -> bool:
    """Return whether nothing is left of a session without parts: all of the agents of its plan could say so."""
    if entry.plan is None:
        return False
    return all(agent in surveyed and entry.id not in surveyed[agent] for agent in entry.plan.agents)


def _unasked(entry: QueueEntry, answers: AgentAnswers) -> list[str]:
    """Return the agents that do not know yet that a start, which nobody goes on with, must claim nothing any more."""
    agents = entry.plan.agents if entry.plan and entry.nonce else ()
    return [agent for agent in agents if agent not in answers.cleared.get(entry.id, ())]


def _vanished_entry(entry: QueueEntry, now: float) -> QueueEntry:
    reason = "no agent holds a part of it any more"
    return mark_terminated(entry, ended_record(entry.record, "TERMINATED", reason, None, entry.enqueued_at, now), now)


def _is_orphaned(entry: QueueEntry) -> bool:
    """Return whether the run that was starting its own session has died."""
    return entry.state == CREATING and entry.owner is None and not entry.waits_for_start


def _has_completed(entry: QueueEntry, session: Session) -> bool:
    """Return whether nothing is left to do of the start of a run that died: all agents have committed the session.

    One whose command has begun runs, also if it waits for another start: that would begin the command again, or end it.
    """
    if not session.committed:
        return False
    if session.plan.command:
        return session.command_has_begun and (entry.state == PENDING or _is_orphaned(entry))
    return _is_orphaned(entry)


def _end_fields(record: Mapping[str, Any]) -> dict[str, Any]:
    return {key: record[key] for key in ("error", "reason", "exit_code", "created_at", "ended_at")}


def _termination_entry(session: Session, entry: QueueEntry, now: float) -> QueueEntry | None:
    """Return the TERMINATING entry of a committed session that is over; ``None`` if it is not."""
    reason, exit_code = find_end_reason(session, now)
    if not reason:
        return None
    record = ended_record(
        _record(session, entry, "TERMINATED"), "TERMINATED", reason, exit_code, entry.enqueued_at, now
    )
    return mark_terminating(entry, record, session.plan.agents, now)


def _record(session: Session, entry: QueueEntry, status: str) -> dict[str, Any]:
    known = {hostname: keys.host for hostname, keys in session.public_keys.items()} or entry.record.get("host_keys")
    return session_record(session.plan, status, session.containers, host_keys=known)


def _agents_with_stopped(session: Session) -> list[str]:
    """Return the agents with a container of the session that exists and does not run."""
    startable = (*STOPPED, "created")
    stopped = {name for name, state in session.containers.items() if state.status in startable}
    due = {name for name in stopped if not session.completed(name) and name not in session.waiting}
    return list(dict.fromkeys(kernel.agent for kernel in session.plan.kernels if kernel.hostname in due))
