# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Finds sessions that need action: finished, failed, abandoned or timed out."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from ...module_utils._model.plan import SessionPlan
from ...module_utils._model.session import MAIN1, STOPPED
from .._planner.agreement import find_disagreement
from .._planner.cluster_state import Parts, completed, containers_of, host_keys_of, plan_of
from .._queue.entry import (
    CREATING,
    PENDING,
    RUNNING,
    TERMINATING,
    QueueEntry,
    mark_running,
    mark_terminated,
    mark_terminating,
    recorded_plans,
    timed_out,
)
from .._report.record import ended_record, session_record
from .time_limits import time_reason


@dataclasses.dataclass(frozen=True)
class ReconcileActions:
    """The actions to take: ``end`` and ``restart`` are session ids by agent.

    Agents remove expired claims themselves.
    """

    end: dict[str, list[str]]
    restart: dict[str, list[str]]
    agents_with_expired_claims: tuple[str, ...]
    entries_to_save: tuple[QueueEntry, ...]

    @property
    def agents(self) -> list[str]:
        """The agents that have to take action."""
        return sorted({*self.end, *self.restart, *self.agents_with_expired_claims})


def reconcile(
    entries: Iterable[QueueEntry],
    sessions: Mapping[str, Parts],
    unreachable: Collection[str],
    end_orphaned: bool,
    now: float,
    surveyed: Mapping[str, Collection[str]] | None = None,
    surveyed_since: float = 0.0,
) -> ReconcileActions:
    """Return the actions that follow from the queue and from the ``sessions`` on agents, by id.

    ``unreachable`` are the agents of the inventory without facts. Entries of runs that died must have the state
    ``CREATING`` and no owner; they are ended only with ``end_orphaned``. The agents ``surveyed`` were read after
    ``surveyed_since``, each with the ids of sessions that it holds and cannot read: a session that started earlier and
    that none of them holds has ended elsewhere; the plan of one that waits is forgotten then, since nothing is left of
    its last start. Times are in seconds since the epoch.
    """
    listed = list(entries)
    unreadable = _group((session_id, agent) for agent, ids in (surveyed or {}).items() for session_id in ids)
    completed_starts = [
        mark_running(entry, now, _record(sessions[entry.id], "RUNNING"))
        for entry in listed
        if _is_orphaned(entry) and _is_complete(sessions.get(entry.id, {}))
    ]
    vanished = [
        entry
        for entry in listed
        if entry.id not in sessions and entry.updated_at < surveyed_since and _has_vanished(entry, surveyed or {})
    ]
    forgotten = [dataclasses.replace(entry, plan=None) for entry in vanished if entry.state == PENDING]
    by_id = {entry.id: entry for entry in [*listed, *completed_starts, *forgotten]}
    terminations = find_terminating(by_id.values(), sessions)
    ending_parts = {
        entry.id: _merge_parts(sessions.get(session_id, {}) for session_id in ids) for entry, ids in terminations
    }
    save = [
        _next_entry(
            entry,
            ending_parts.get(entry.id, sessions.get(entry.id, {})),
            [*unreachable, *unreadable.get(entry.id, ())],
            end_orphaned=end_orphaned,
            now=now,
        )
        for entry in by_id.values()
    ]
    save += [_vanished_entry(entry, now) for entry in vanished if entry.state == RUNNING]
    queued_ids = {
        *(entry.id for entry in by_id.values() if entry.unfinished),
        *(session_id for _entry, ids in terminations for session_id in ids),
    }
    unqueued = [parts for session_id, parts in sessions.items() if session_id not in queued_ids]
    # What agents disagree on is left alone: one of them must not end or restart what another one runs.
    committed = [
        parts for parts in unqueued if all(part.committed for part in parts.values()) and not find_disagreement(parts)
    ]
    recorded = recorded_plans(by_id.values())
    save += [
        _termination_entry(parts, by_id.get(plan_of(parts).id), now)
        for parts in committed
        if plan_of(parts).id in recorded or _all_answered(parts)
    ]
    changed = {entry.id: entry for entry in [*completed_starts, *forgotten, *save] if entry is not None}
    all_terminations = find_terminating({**by_id, **changed}.values(), sessions)
    return ReconcileActions(
        end=_group(
            (agent, session_id)
            for entry, ids in all_terminations
            for session_id in ids
            for agent in (*sessions.get(session_id, {}), *unreadable.get(session_id, ()))
            if agent in entry.agents
        ),
        restart=_group(
            (agent, plan_of(parts).id)
            for parts in committed
            if plan_of(parts).failure_policy == "restart" and plan_of(parts).id not in changed
            for agent in _agents_with_stopped(parts)
        ),
        agents_with_expired_claims=tuple(
            sorted({agent for parts in sessions.values() for agent, part in parts.items() if part.expired})
        ),
        entries_to_save=tuple(changed.values()),
    )


def find_terminating(
    entries: Iterable[QueueEntry], sessions: Mapping[str, Parts]
) -> list[tuple[QueueEntry, list[str]]]:
    """Return each TERMINATING entry with the ids of the sessions that it applies to.

    A session that was ended while all of its agents were unreachable is known only by its name: the entry applies to
    sessions of that name that are older than the entry, if all of their agents say so.
    """

    def matching_ids(entry: QueueEntry) -> list[str]:
        if entry.record["id"] is not None:
            return [entry.id]
        return [
            session_id
            for session_id, parts in sessions.items()
            if all(part.plan.name == entry.name for part in parts.values())
            and all(part.plan.created_at <= entry.enqueued_at for part in parts.values())
        ]

    return [(entry, matching_ids(entry)) for entry in entries if entry.state == TERMINATING]


def _merge_parts(sessions: Iterable[Parts]) -> Parts:
    """Return the parts of several sessions as if they were one: only their agents matter."""
    return {agent: part for parts in sessions for agent, part in parts.items()}


def _group(pairs: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    """Return the second items of pairs by the first ones."""
    groups: dict[str, list[str]] = {}
    for key, item in pairs:
        groups.setdefault(key, []).append(item)
    return groups


def find_end_reason(parts: Parts, now: float) -> tuple[str, int | None]:
    """Return why a committed session is over (empty if it is not) and the exit code that ended it."""
    plan, containers = plan_of(parts), containers_of(parts)
    stopped = {name: state for name, state in containers.items() if state.status in STOPPED}
    if plan.command and MAIN1 in stopped:
        exit_code = stopped[MAIN1].exit_code
        return f"the command ended with exit code {exit_code}", exit_code
    if plan.command and MAIN1 not in containers and plan.agents[0] in parts:
        return f"{MAIN1} was removed, and with it the command", None
    failed = [
        kernel.hostname
        for kernel in plan.kernels
        if kernel.hostname in stopped and not completed(plan, kernel.hostname, stopped)
    ]
    if failed and plan.failure_policy == "terminate":
        exit_code = stopped[failed[0]].exit_code
        return f"{failed[0]} died with exit code {exit_code} and session_failure_policy is terminate", exit_code
    return time_reason(parts, now), None


def _next_entry(
    entry: QueueEntry,
    parts: Parts,
    unreachable: Collection[str],
    *,
    end_orphaned: bool,
    now: float,
) -> QueueEntry | None:
    """Return the changed entry; ``None`` if it stays as it is."""
    if timed_out(entry, now) and not any(part.committed for part in parts.values()):
        reason = f"it waited longer than session_pending_timeout, {entry.pending_timeout} seconds"
        record = ended_record(entry.record, "CANCELLED", reason, None, entry.enqueued_at, now)
        away = [agent for agent in entry.plan.agents if agent in unreachable] if entry.plan else []
        return mark_terminating(entry, record, away, now) if away else mark_terminated(entry, record, now)
    if _is_orphaned(entry) and end_orphaned:
        record = ended_record(entry.record, "ERROR", "the run that created it was killed", None, entry.enqueued_at, now)
        if not parts:
            return (
                mark_terminating(entry, record, unreachable, now)
                if unreachable
                else mark_terminated(entry, record, now)
            )
        plan = plan_of(parts)
        return mark_terminating(entry, {**session_record(plan, "ERROR"), **_end_fields(record)}, plan.agents, now)
    if entry.state == TERMINATING:
        remaining = [agent for agent in entry.agents if agent in parts or agent in unreachable]
        if not remaining:
            return mark_terminated(entry, entry.record, now)
        if tuple(remaining) != entry.agents:
            return dataclasses.replace(entry, agents=tuple(remaining), updated_at=now)
    return None


def _all_answered(parts: Parts) -> bool:
    """Return whether all agents of a session hold its plan: without a record, nothing is ended on the word of some."""
    return parts.keys() >= {*plan_of(parts).agents}


def _has_vanished(entry: QueueEntry, surveyed: Mapping[str, Collection[str]]) -> bool:
    """Return whether nothing is left of a session without parts: all of the agents of its plan could say so."""
    if entry.plan is None:
        return False
    return all(agent in surveyed and entry.id not in surveyed[agent] for agent in entry.plan.agents)


def _vanished_entry(entry: QueueEntry, now: float) -> QueueEntry:
    reason = "no agent holds a part of it any more"
    return mark_terminated(entry, ended_record(entry.record, "TERMINATED", reason, None, entry.enqueued_at, now), now)


def _is_orphaned(entry: QueueEntry) -> bool:
    """Return whether the run that was starting its own session has died."""
    return entry.state == CREATING and entry.owner is None and not entry.waits_for_start


def _is_complete(parts: Parts) -> bool:
    """Return whether the start is complete: all agents have committed, and there is no command left to start."""
    if not parts or plan_of(parts).command:
        return False
    return all(part.committed for part in parts.values()) and parts.keys() >= set(plan_of(parts).agents)


def _end_fields(record: Mapping[str, Any]) -> dict[str, Any]:
    return {key: record[key] for key in ("error", "reason", "exit_code", "created_at", "ended_at")}


def _termination_entry(parts: Parts, entry: QueueEntry | None, now: float) -> QueueEntry | None:
    """Return the TERMINATING entry of a committed session that is over; ``None`` if it is not."""
    plan = plan_of(parts)
    reason, exit_code = find_end_reason(parts, now)
    if not reason:
        return None
    record = _record(parts, "TERMINATED")
    return make_terminating_entry(
        plan, ended_record(record, "TERMINATED", reason, exit_code, requested_at(plan, entry), now), now
    )


def _record(parts: Parts, status: str) -> dict[str, Any]:
    return session_record(plan_of(parts), status, containers_of(parts), host_keys=host_keys_of(parts))


def requested_at(plan: SessionPlan, entry: QueueEntry | None) -> float:
    """Return when a session was requested, from its entry in the queue if there is one."""
    return entry.enqueued_at if entry else plan.created_at


def make_terminating_entry(plan: SessionPlan, record: dict[str, Any], now: float) -> QueueEntry:
    """Return the entry by which a session is removed from all of its agents."""
    return QueueEntry(
        id=plan.id,
        name=plan.name,
        state=TERMINATING,
        user=plan.user,
        resource_group=plan.resource_group,
        priority=0,
        spec=None,
        record=record,
        enqueued_at=plan.created_at,
        updated_at=now,
        agents=tuple(plan.agents),
        user_uid=plan.user_uid,
    )


def _agents_with_stopped(parts: Parts) -> list[str]:
    """Return the agents with a container of the session that exists and does not run."""
    startable = (*STOPPED, "created")
    return [
        agent
        for agent, part in parts.items()
        if any(
            state.status in startable and not completed(part.plan, name, part.containers)
            for name, state in part.containers.items()
        )
    ]
