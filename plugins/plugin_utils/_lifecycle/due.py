# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What is due about sessions that are there: what ended, what died, what was given up, what waited too long."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from ansible_collections.backendai.cluster.plugins.module_utils._model.plan import SessionPlan
from ansible_collections.backendai.cluster.plugins.module_utils._model.session import MAIN1, STOPPED
from ansible_collections.backendai.cluster.plugins.plugin_utils._planner.cluster_state import (
    Found,
    containers_of,
    finished,
)
from ansible_collections.backendai.cluster.plugins.plugin_utils._queue.entry import (
    ENDED,
    ENDING,
    STARTING,
    Entry,
    ended,
    ending,
    timed_out,
)
from ansible_collections.backendai.cluster.plugins.plugin_utils._report.record import ended_record, session_record


@dataclasses.dataclass(frozen=True)
class Due:
    """What is to be done: ``end`` and ``restart`` name sessions by agent, ``save`` are entries of the queue to write.

    ``sweep`` are agents with claims whose time is over; they remove those themselves. ``drop`` are the ids of entries
    that the queue can forget: the run was killed, but all agents have committed.
    """

    end: dict[str, list[str]]
    restart: dict[str, list[str]]
    sweep: tuple[str, ...]
    save: tuple[Entry, ...]
    drop: tuple[str, ...]

    @property
    def agents(self) -> list[str]:
        """The agents that have something to do."""
        return sorted({*self.end, *self.restart, *self.sweep})


def due(
    entries: Iterable[Entry], found: Mapping[str, Sequence[Found]], away: Collection[str], given_up: bool, now: float
) -> Due:
    """Return what is due, from the queue and from what the agents hold (``found``, by session id).

    ``away`` are the agents of the inventory that gave no facts. Entries of runs that died must come as such: state
    ``starting`` and no owner; only with ``given_up`` they are acted upon. ``now`` is in seconds since the epoch.
    """
    listed = list(entries)
    drop = [entry.id for entry in listed if _left_alone(entry) and _proven(found.get(entry.id, ()))]
    by_id = {entry.id: entry for entry in listed if entry.id not in drop}
    going = doomed(by_id.values(), found)
    holders = {entry.id: [part for one in ids for part in found.get(one, ())] for entry, ids in going}
    save = [
        _of_entry(entry, holders.get(entry.id, found.get(entry.id, [])), away, given_up=given_up, now=now)
        for entry in by_id.values()
    ]
    noted = {*(one.id for one in by_id.values() if one.state != ENDED), *(one for _entry, ids in going for one in ids)}
    unnoted = [parts for session_id, parts in found.items() if session_id not in noted]
    committed = [parts for parts in unnoted if all(part.committed for part in parts)]
    save += [_over(parts, now) for parts in committed]
    changed = {entry.id: entry for entry in save if entry is not None}
    now_going = doomed({**by_id, **changed}.values(), found)
    return Due(
        end=_by_agent((part.agent, one) for _entry, ids in now_going for one in ids for part in found.get(one, ())),
        restart=_by_agent(
            (agent, parts[0].plan.id)
            for parts in committed
            if parts[0].plan.failure_policy == "restart" and parts[0].plan.id not in changed
            for agent in _with_stopped(parts)
        ),
        sweep=tuple(sorted({part.agent for parts in found.values() for part in parts if part.expired})),
        save=tuple(changed.values()),
        drop=tuple(drop),
    )


def doomed(entries: Iterable[Entry], found: Mapping[str, Sequence[Found]]) -> list[tuple[Entry, list[str]]]:
    """Return each entry that says that a session must go, with the ids of the sessions that it means.

    A session that was ended while no agent that holds it could be asked is known by its name alone: what bears that
    name and is older than the note is meant.
    """

    def meant(entry: Entry) -> list[str]:
        if entry.record["id"] is not None:
            return [entry.id]
        plans = [parts[0].plan for parts in found.values()]
        return [plan.id for plan in plans if plan.name == entry.name and plan.created_at <= entry.enqueued_at]

    return [(entry, meant(entry)) for entry in entries if entry.state == ENDING]


def _by_agent(pairs: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    sessions: dict[str, list[str]] = {}
    for agent, session_id in pairs:
        sessions.setdefault(agent, []).append(session_id)
    return sessions


def end_of(parts: Sequence[Found]) -> tuple[str, int | None]:
    """Return why a committed session is over, empty where it is not, and the exit code that ended it."""
    plan, containers = parts[0].plan, containers_of(parts)
    stopped = {name: one for name, one in containers.items() if one["status"] in STOPPED}
    if plan.command and MAIN1 in stopped:
        exit_code = stopped[MAIN1].get("exit_code")
        return f"the command ended with exit code {exit_code}", exit_code
    if plan.command and MAIN1 not in containers and plan.agents[0] in [part.agent for part in parts]:
        return f"{MAIN1} was removed, and with it the command", None
    dead = [
        one.hostname for one in plan.kernels if one.hostname in stopped and not finished(plan, one.hostname, stopped)
    ]
    if dead and plan.failure_policy == "terminate":
        exit_code = stopped[dead[0]].get("exit_code")
        return f"{dead[0]} died with exit code {exit_code} and session_failure_policy is terminate", exit_code
    return "", None


def _of_entry(
    entry: Entry, parts: Sequence[Found], away: Collection[str], *, given_up: bool, now: float
) -> Entry | None:
    """Return what becomes of an entry of the queue; ``None`` where it stays as it is."""
    if timed_out(entry, now) and not any(part.committed for part in parts):
        reason = f"it waited longer than session_pending_timeout, {entry.pending_timeout} seconds"
        return ended(entry, ended_record(entry.record, "CANCELLED", reason, None, entry.enqueued_at, now), now)
    if _left_alone(entry) and given_up:
        record = ended_record(entry.record, "ERROR", "the run that made it was killed", None, entry.enqueued_at, now)
        plan = parts[0].plan if parts else None
        if plan is None:
            return ending(entry, record, away, now) if away else ended(entry, record, now)
        return ending(entry, {**session_record(plan, "ERROR"), **_times(record)}, plan.agents, now)
    if entry.state == ENDING:
        held = {part.agent for part in parts}
        left = [agent for agent in entry.agents if agent in held or agent in away]
        if not left:
            return ended(entry, entry.record, now)
        if tuple(left) != entry.agents:
            return dataclasses.replace(entry, agents=tuple(left), updated_at=now)
    return None


def _left_alone(entry: Entry) -> bool:
    """Return whether the run is gone that was starting a session of its own."""
    return entry.state == STARTING and entry.owner is None and entry.spec is None


def _proven(parts: Sequence[Found]) -> bool:
    """Return whether nothing is missing: all agents have committed, and there is no command that has to be started."""
    if not parts or parts[0].plan.command:
        return False
    return all(part.committed for part in parts) and {part.agent for part in parts} >= set(parts[0].plan.agents)


def _times(record: Mapping[str, Any]) -> dict[str, Any]:
    return {key: record[key] for key in ("error", "reason", "exit_code", "created_at", "ended_at")}


def _over(parts: Sequence[Found], now: float) -> Entry | None:
    """Return the note that a committed session has to go, where it is over."""
    plan = parts[0].plan
    reason, exit_code = end_of(parts)
    if not reason:
        return None
    record = session_record(plan, "TERMINATED", containers_of(parts))
    return note_of_end(plan, ended_record(record, "TERMINATED", reason, exit_code, plan.created_at, now), now)


def note_of_end(plan: SessionPlan, record: dict[str, Any], now: float) -> Entry:
    """Return the entry that says: this session must go from all of its agents."""
    return Entry(
        id=plan.id,
        name=plan.name,
        state=ENDING,
        user=plan.user,
        resource_group=plan.resource_group,
        priority=0,
        spec=None,
        record=record,
        enqueued_at=plan.created_at,
        updated_at=now,
        agents=tuple(plan.agents),
    )


def _with_stopped(parts: Iterable[Found]) -> list[str]:
    """Return the agents on which a container of the session is there and does not run."""
    startable = (*STOPPED, "created")
    return [
        part.agent
        for part in parts
        if any(
            one["status"] in startable and not finished(part.plan, name, part.containers)
            for name, one in part.containers.items()
        )
    ]
