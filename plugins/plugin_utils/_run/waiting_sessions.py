# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Plans the sessions that wait, as many as there is room for, and saves in the queue why the others still do."""

from __future__ import annotations

import dataclasses
import time
import uuid
from collections.abc import Iterable, Sequence
from typing import Any, TypeGuard

from ...module_utils._model.plain_data import to_plain
from .._lifecycle.start_steps import start_arguments
from .._placement.place import Unschedulable
from .._planner.decision import Decision
from .._planner.disk_room import describe_tight_disks
from .._queue.answers import Answers as Decider
from .._queue.answers import digest_of_inputs
from .._queue.entry import PENDING, QueueEntry, ending_ids, mark_creating
from .._queue.owner import current_owner
from .._queue.schedule import schedule, still_first
from .._report.record import describe_pending
from .._request.spec import SessionSpec
from ..cluster_view import Answers
from ..host_program import release
from .planning import cluster_of, free_room, with_groups
from .site import Site

Chosen = tuple[QueueEntry, Decision]


@dataclasses.dataclass(frozen=True)
class Pass:
    """The sessions that start in a pass over the queue, as :func:`start_arguments`, and their requests by id.

    Requests may hold secrets.
    """

    starts: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    specs: dict[str, SessionSpec] = dataclasses.field(default_factory=dict, repr=False)
    warnings: list[str] = dataclasses.field(default_factory=list)


def plan_waiting(site: Site, answers: Answers) -> Pass:
    """Decide which pending sessions start now, and save in the queue why the others do not."""
    now = time.time()
    before = {entry.id: entry for entry in site.entries()}
    cluster = cluster_of(site, answers, before.values())
    stale_ids = ending_ids(before.values())
    free = free_room(cluster, before.values())
    seen = digest_of_inputs(before.values(), free, site.request.pools, _inputs(site))
    if site.queue.has_seen(seen):
        return Pass()
    # The queue is not locked while deciding, which may take long: entries that other runs have changed are left
    # to the next pass.
    held_back = site.limits.held_back(before.values())
    refused: dict[str, str] = {}
    while True:
        decider = Decider(free, site.request.pools, now)
        barred = {*site.rules.held, *held_back, *refused}
        decisions = schedule(before.values(), decider, site.policy, barred)
        chosen = [(entry, answer) for entry, answer in decisions if isinstance(answer, Decision)]
        chosen, without_groups = with_groups(site, chosen, cluster)
        if not without_groups:
            break
        # The room of those that cannot start is for others.
        refused |= without_groups
    waiting = [(entry, answer) for entry, answer in decisions if isinstance(answer, Unschedulable)]
    waiting += [(before[name], Unschedulable(reason, {})) for name, reason in {**held_back, **refused}.items()]
    started = _save_starts(site, chosen, decider, refused, now)
    if not site.check_mode:
        _save_reasons(site, waiting)
        waits = any(entry.state == PENDING for entry in before.values())
        if waits and not chosen and not refused:
            site.queue.save_seen(seen)
    missing = [decision.missing_images for _entry, decision in started]
    return Pass(
        starts=[
            start_arguments(decision, stale_ids, nonce=entry.nonce, never_completed=True) for entry, decision in started
        ],
        specs={entry.id: entry.request for entry, _decision in started},
        warnings=[*dict.fromkeys(describe_tight_disks(missing, cluster.facts))],
    )


def _inputs(site: Site) -> list[Any]:
    """Return what decides a pass beside the queue and the agents, as plain data."""
    rules = {"held": sorted(site.rules.held), "limits": site.rules.limits, "groups": site.rules.groups}
    pools = dataclasses.asdict(site.request.pools)
    return [release(), dataclasses.asdict(site.policy), to_plain({"pools": pools, **rules})]


def _save_starts(
    site: Site, chosen: Sequence[Chosen], decider: Decider, refused: Iterable[str], now: float
) -> list[Chosen]:
    """Mark sessions as CREATING, and return those that no other run has changed since, nor made wait for others."""
    started = []
    for batch in [chosen] if site.check_mode else site.queue.batches(chosen):
        entries = {entry.id: entry for entry in site.entries()}
        barred = {*site.rules.held, *site.limits.held_back(entries.values()), *refused}
        same = [
            entry for entry, _decision in batch if entry.id not in barred and _is_same(entries.get(entry.id), entry)
        ]
        first = still_first(entries.values(), same, decider.may_block, site.policy, barred)
        for entry, decision in batch:
            if entry.id not in first:
                continue
            creating = mark_creating(entries[entry.id], current_owner(), now, decision.plan, uuid.uuid4().hex)
            started.append((creating, decision))
            if not site.check_mode:
                site.queue.save(creating)
    return started


def _save_reasons(site: Site, waiting: Iterable[tuple[QueueEntry, Unschedulable]]) -> None:
    """Save in the records of sessions why they wait, where that has changed."""
    pending = {entry.id: (entry, describe_pending(answer)) for entry, answer in waiting}
    changed = [each for each in pending.values() if each[0].record.get("pending") != each[1]]
    for batch in site.queue.batches(changed):
        current = [(site.entry(entry.id), entry, reason) for entry, reason in batch]
        site.queue.save(
            *(
                dataclasses.replace(now, record={**now.record, "pending": reason})
                for now, entry, reason in current
                if _is_same(now, entry)
            )
        )


def _is_same(current: QueueEntry | None, entry: QueueEntry) -> TypeGuard[QueueEntry]:
    """Return whether an entry is as it was, whatever its record says of why it waits."""
    return current is not None and dataclasses.replace(current, record=entry.record) == entry
