# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Finds the sessions to end or restart, from what agents have answered, and saves them in the queue."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from .._lifecycle.absence import describe_cut_off, end_lost
from .._lifecycle.reconcile import AgentAnswers, ReconcileActions, reconcile
from .._lifecycle.routes import build_gateway_update, find_vacated, reachable_plans
from .._lifecycle.termination import add_end_results
from .._planner.cluster_state import ClusterState
from .._queue.entry import TERMINATED, TERMINATING, QueueEntry, expired_history, recorded_plans
from .._queue.policy import still_counted
from .._queue.store import BATCH
from ..absence_file import load_absences, save_absences
from ..cluster_view import Answers, attendance_in, read_answers, with_addresses
from .site import Site

Ends = Mapping[str, Mapping[str, Mapping[str, Any]]]
"""What agents have said of the ends of sessions, by session id, then by agent; ``failed`` if they have not ended it.

That of a session whose last start they refuse from now on is empty.
"""


@dataclasses.dataclass(frozen=True)
class Reconciled:
    """What has to be done before sessions are planned.

    ``end``, ``restart`` and ``withdraw`` are as in :class:`ReconcileActions`, for the ``agents`` that have to act;
    ``reserving`` are agents with ports of sessions that ended while a gateway could not be reached. ``routes`` is the
    update of gateways before agents end sessions. ``lines`` are for people.
    """

    end: Mapping[str, list[str]]
    restart: Mapping[str, list[str]]
    withdraw: Mapping[str, Mapping[str, str]]
    agents: list[str]
    reserving: list[str]
    routes: dict[str, Any]
    lines: list[str]
    warnings: list[str]

    @property
    def releases_capacity(self) -> bool:
        """Whether sessions end, or agents clear what may hold room, so that there is or will be room for others."""
        return bool(self.agents or self.routes["ended"])


def reconcile_queue(
    site: Site,
    answers: Answers,
    ends: Ends,
    *,
    abandoned: bool,
    all_routes: bool,
    sent: Collection[str] = (),
) -> Reconciled:
    """Reconcile the queue with the agents; ``ends`` are those that have been reported since the last time.

    With ``abandoned``, sessions of runs that died are ended. With ``all_routes`` gateways get the routes of all
    sessions; ``sent`` are the ids of ended sessions that they have been told of.
    """
    now, queue, started_at = time.time(), site.queue, site.request.started_at
    cluster = read_answers(answers)
    unreachable = [name for name in site.agents if name not in cluster.facts]
    # Before the lock is taken: under it, only entries that have changed since are parsed.
    site.entries()
    with site.transaction():
        entries = site.entries()
        cluster = dataclasses.replace(cluster, records=recorded_plans(entries))
        away, answered = attendance_in(answers)
        if len(away) + len(answered) < len(site.agents):
            # What some say, as with --limit, does not show whether this control node is cut off.
            away, answered = [], []
        before = load_absences(queue.path)
        absences = before.after(away, answered, started_at or now, now)
        lost_after = site.request.run.agent_lost_after
        lost = absences.lost(away, answered, lost_after)
        gone = {entry.id: entry for entry in end_lost(entries, cluster.sessions, lost, lost_after, now)}
        current = [_with_ends(gone.get(entry.id, entry), ends) for entry in entries]
        read = {name: facts.damaged_sessions for name, facts in cluster.facts.items()}
        cleared = {each: [name for name, end in by.items() if "failed" not in end] for each, by in ends.items()}
        said = AgentAnswers(read, started_at, cleared)
        actions = reconcile(current, cluster.held, unreachable, abandoned, now, said)
        # Another run has ended it meanwhile, and does not know what this one was told.
        told = {entry.id: entry for entry in current if entry.state == TERMINATED and entry.id in ends}
        to_save = [*{**gone, **told, **{entry.id: entry for entry in actions.entries_to_save}}.values()]
        if not site.check_mode:
            save_absences(queue.path, before, absences)
            queue.save(*to_save[:BATCH])
    needed = still_counted(entries, site.request.run.queue_patience)
    expired = [
        entry for entry in expired_history(entries, now, site.request.run.history_days) if entry.id not in needed
    ]
    if not site.check_mode:
        _save_others(site, entries, to_save[BATCH:])
        for batch in queue.batches(expired):
            queue.remove(*(entry.id for entry in batch))
    ending_ids = {entry.id for entry in entries if entry.state in (TERMINATING, TERMINATED)}
    known = site.entries() if to_save or expired else entries
    if not site.check_mode:
        # Another run may have taken one over that was not saved.
        actions = actions.ending_only({entry.id for entry in known if entry.state == TERMINATING})
    if all_routes:
        cluster = with_addresses(cluster, site.agents, site.hosts)
    return Reconciled(
        end=actions.end,
        restart=actions.restart,
        withdraw=actions.withdraw,
        agents=actions.agents,
        reserving=sorted(find_vacated(cluster)) if all_routes else [],
        routes=_routes(site, cluster, known, actions, sent, all_routes=all_routes),
        lines=[
            f"Session {entry.name} {'would be' if site.check_mode else 'is'} {entry.record['status']}:"
            f" {entry.record['reason']}."
            for entry in to_save
            if entry.id not in ending_ids and entry.has_ended
        ],
        warnings=describe_cut_off(away, answered),
    )


def _with_ends(entry: QueueEntry, ends: Ends) -> QueueEntry:
    """Return an entry with what agents have reported of the end of its session."""
    if entry.state not in (TERMINATING, TERMINATED) or entry.id not in ends:
        return entry
    return dataclasses.replace(entry, record=add_end_results(entry.record, ends[entry.id]))


def _save_others(site: Site, entries: Iterable[QueueEntry], others: Iterable[QueueEntry]) -> None:
    """Save the changes that do not fit in one batch, except of entries that other runs have changed since."""
    before = {entry.id: entry for entry in entries}
    for batch in site.queue.batches(others):
        site.queue.save(*(entry for entry in batch if site.entry(entry.id) == before.get(entry.id)))


def _routes(
    site: Site,
    cluster: ClusterState,
    entries: Iterable[QueueEntry],
    actions: ReconcileActions,
    sent: Collection[str],
    *,
    all_routes: bool,
) -> dict[str, Any]:
    """Return the update of gateways before agents end sessions: those, and with ``all_routes`` all others."""
    ending = {session_id for ids in actions.end.values() for session_id in ids if not site.check_mode}
    if all_routes:
        vacated = [session for sessions in find_vacated(cluster).values() for session in sessions]
        return build_gateway_update(reachable_plans(cluster), entries, 0.0, ending=ending, vacated=vacated)
    return build_gateway_update([], entries, site.request.started_at, sent, ending=ending)
