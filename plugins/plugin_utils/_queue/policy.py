# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The order in which PENDING sessions are tried.

**No session starves.** Without a limit, small sessions that fit would be started before a large one forever. So a
PENDING session that could start some time may be skipped by at most ``max_skips`` others: sessions of its resource
group that arrived later and do not have a higher priority. Then it is *due*, and such sessions do not start before it.

The argument: a session has skipped another one once a run has begun to start it, and its entry says so from then on,
also after it has failed or ended: :func:`still_counted` keeps it as long as the other waits. So each counts once, by
existing, and as soon as there are ``max_skips`` of them there is no further one. Only sessions of a higher priority,
which is what priorities are for, and those that arrived earlier, of which there are finitely many, start before a due
session. Every other session ends at some time and releases its capacity: the due session starts as soon as the capacity
that it requests is free. This holds for every policy, since a policy only orders the sessions that are not due. The
caller has three obligations:

* It counts over all entries, and again under the lock of the queue before it saves a start: another run may have begun
  to start one of the ``max_skips`` in the meantime.
* A session that may not start, because its user has enough that run or the manager holds it back, is not among those
  that :func:`first_ahead` is given: what it waits for is not capacity. It is due again once it may start.
* Nor does :func:`first_ahead` return (``blocks``) one that the placement would not place even if all sessions of the
  record had ended, for example because an agent was removed, or other software has its ports: to wait for it would
  free nothing. What was not judged yet is one that others wait behind.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from itertools import islice

from .entry import CREATING, PENDING, QueueEntry

# How many sessions may skip a PENDING one.
DEFAULT_MAX_SKIPS = 16


def count_skips(entries: Iterable[QueueEntry]) -> dict[str, int]:
    """Return how many others have skipped each session that waits or is started, by id.

    A start that has failed counts, too: sessions that fail again and again would keep its room from one that waits.
    """
    skips = {}
    # By resource group and priority, the sessions that have started among those that arrived later.
    started: dict[str, Counter[int]] = {}
    for entry in _latest_first(entries):
        later = started.setdefault(entry.resource_group, Counter())
        if entry.state in (PENDING, CREATING):
            skips[entry.id] = sum(count for priority, count in later.items() if priority <= entry.priority)
        later[entry.priority] += entry.has_started
    return skips


def still_counted(entries: Iterable[QueueEntry], max_skips: int) -> set[str]:
    """Return the ids of sessions whose entries are needed to know that one that waits is due.

    They are the last ``max_skips`` to arrive of those that have skipped it, so that they are few however long it waits.
    """
    needed: set[str] = set()
    started: dict[str, list[QueueEntry]] = {}
    for entry in _latest_first(entries):
        later = started.setdefault(entry.resource_group, [])
        if entry.state in (PENDING, CREATING):
            needed.update(islice((other.id for other in later if other.priority <= entry.priority), max_skips))
        if entry.has_started:
            later.append(entry)
    return needed


def _latest_first(entries: Iterable[QueueEntry]) -> list[QueueEntry]:
    return sorted(entries, key=lambda entry: entry.arrival_key, reverse=True)


def due_sessions(
    entries: Iterable[QueueEntry], skips: Mapping[str, int], max_skips: int = DEFAULT_MAX_SKIPS
) -> list[QueueEntry]:
    """Return the sessions that no later one may skip any more, the earliest first; ``skips`` are their counts.

    CREATING ones are among them, or they could lose their capacity to others again and again.
    """
    due = [entry for entry in entries if entry.id in skips and skips[entry.id] >= max_skips]
    return sorted(due, key=lambda entry: entry.arrival_key)


def sort_pending(
    entries: Iterable[QueueEntry], policy: str, shares: Mapping[str, float], due: Iterable[QueueEntry] = ()
) -> list[QueueEntry]:
    """Return the PENDING sessions in the order in which to try them.

    Those that are ``due`` come first, by arrival. The others are sorted by priority, highest first, and within one
    priority by the earliest arrival (``fifo``), the latest (``lifo``), or the user with the smallest dominant share
    (``drf``), then the earliest. ``shares`` is the result of :func:`dominant_shares`; a user that is missing there has
    a share of 0.
    """
    due_ids = {entry.id for entry in due}

    def place(entry: QueueEntry) -> tuple[bool, int, float, float, str]:
        if entry.id in due_ids:
            return False, 0, 0.0, *entry.arrival_key
        share = shares.get(entry.user, 0.0) if policy == "drf" else 0.0
        arrival = -entry.enqueued_at if policy == "lifo" else entry.enqueued_at
        return True, -entry.priority, share, arrival, entry.id

    return sorted((entry for entry in entries if entry.state == PENDING), key=place)


def queue_positions(ordered: Iterable[QueueEntry]) -> dict[str, int]:
    """Return the positions of PENDING sessions by id, each in its resource group, from 1, as they will be tried."""
    groups: Counter[str] = Counter()
    positions = {}
    for entry in ordered:
        groups[entry.resource_group] += 1
        positions[entry.id] = groups[entry.resource_group]
    return positions


def first_ahead(
    due: Iterable[QueueEntry], candidate: QueueEntry, blocks: Callable[[QueueEntry], bool] = lambda _entry: True
) -> QueueEntry | None:
    """Return the earliest due session that a candidate has to wait behind; ``None`` if the candidate may start.

    It waits behind sessions of its resource group that arrived earlier and have no lower priority. ``blocks`` is asked,
    the earliest first, until one of them is what others wait behind: once the agents hold its claim, a session's
    capacity is safe.
    """
    ahead = (
        entry
        for entry in due
        if entry.resource_group == candidate.resource_group
        and entry.priority >= candidate.priority
        and entry.arrival_key < candidate.arrival_key
    )
    return next(filter(blocks, ahead), None)


def dominant_shares(usage: Mapping[str, Mapping[str, float]], capacity: Mapping[str, float]) -> dict[str, float]:
    """Return each user's dominant share: the largest fraction that the user has of any one slot's capacity.

    ``usage`` (by user) and ``capacity`` are amounts by slot; slots without capacity are ignored. After Ghodsi et al.,
    "Dominant Resource Fairness", NSDI 2011.
    """
    return {
        user: max((amount / capacity[slot] for slot, amount in slots.items() if capacity.get(slot)), default=0.0)
        for user, slots in usage.items()
    }
