# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The order in which PENDING sessions are tried.

**No session starves.** Without a limit, small sessions that fit would be started before a large one forever. So a
PENDING session may be skipped at most ``max_skips`` times: by sessions of its resource group that arrived later and do
not have a higher priority. Then it is *due*, and such sessions do not start before it.

The argument: each skip is counted, and the last one that is allowed makes the session due, so there is no further one.
Only sessions of a higher priority, which is what priorities are for, and those that arrived earlier, of which there are
finitely many, start before a due session. Every other session ends at some time and releases its capacity: the due
session starts as soon as the capacity that it requests is free. This holds for every policy, since a policy only orders
the sessions that are not due. The caller has one obligation: a session that would not fit even if its resource group
were empty, because an agent was removed, must not be in ``entries`` for :func:`blocked_by`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping

from .entry import CREATING, PENDING, QueueEntry

# How many times a PENDING session may be skipped.
DEFAULT_MAX_SKIPS = 16


def sort_pending(
    entries: Iterable[QueueEntry], policy: str, shares: Mapping[str, float], max_skips: int = DEFAULT_MAX_SKIPS
) -> list[QueueEntry]:
    """Return the PENDING sessions in the order in which to try them.

    Due sessions come first, by arrival. The others are sorted by priority, highest first, and within one priority by
    the earliest arrival (``fifo``), the latest (``lifo``), or the user with the smallest dominant share (``drf``), then
    the earliest. ``shares`` is the result of :func:`dominant_shares`, to be updated by the caller as sessions start; a
    user that is missing there has a share of 0.
    """

    def place(entry: QueueEntry) -> tuple[bool, int, float, float, str]:
        if entry.skipped >= max_skips:
            return False, 0, 0.0, *entry.arrival_key
        return True, *place_in_order(entry, policy, shares)

    return sorted((entry for entry in entries if entry.state == PENDING), key=place)


def place_in_order(entry: QueueEntry, policy: str, shares: Mapping[str, float]) -> tuple[int, float, float, str]:
    """Return the sort key of a session that is not due."""
    share = shares.get(entry.user, 0.0) if policy == "drf" else 0.0
    return -entry.priority, share, -entry.enqueued_at if policy == "lifo" else entry.enqueued_at, entry.id


def queue_positions(ordered: Iterable[QueueEntry]) -> dict[str, int]:
    """Return the positions of PENDING sessions by id, each in its resource group, from 1, as they will be tried."""
    groups: dict[str, int] = {}
    positions = {}
    for entry in ordered:
        positions[entry.id] = groups[entry.resource_group] = groups.get(entry.resource_group, 0) + 1
    return positions


def blocked_by(
    entries: Iterable[QueueEntry],
    candidate_priority: int,
    resource_group: str,
    max_skips: int = DEFAULT_MAX_SKIPS,
    own_id: str | None = None,
    blocks: Callable[[QueueEntry], bool] = lambda _entry: True,
) -> QueueEntry | None:
    """Return the earliest due session that a candidate has to wait behind; ``None`` if the candidate may start.

    The candidate is the entry ``own_id``, or a new session if there is no such entry. It waits behind due sessions of
    its resource group that arrived earlier and have no lower priority. CREATING sessions count as well, or they could
    lose their capacity to others again and again; once the agents hold its claim, a session's capacity is safe, and the
    caller may omit it. ``blocks`` is asked, the earliest first, until one of them is what others wait behind.
    """
    listed = list(entries)
    own = next((entry for entry in listed if entry.id == own_id), None)
    ahead = [
        entry
        for entry in listed
        if entry.state in (PENDING, CREATING)
        and entry.resource_group == resource_group
        and entry.skipped >= max_skips
        and entry.priority >= candidate_priority
        and (own is None or entry.arrival_key < own.arrival_key)
    ]
    return next(filter(blocks, sorted(ahead, key=lambda entry: entry.arrival_key)), None)


def count_skips(entries: Iterable[QueueEntry], started: QueueEntry) -> list[QueueEntry]:
    """Return the entries that ``started`` skips, with ``skipped`` incremented, for the caller to save.

    Those are the PENDING sessions of its resource group that arrived earlier and have no lower priority. They have to
    be counted in the transaction that marks a session as CREATING, so that the limit holds when several sessions start
    at once: a start that fails afterwards is then counted too, which makes no session wait longer.
    """
    return [
        dataclasses.replace(entry, skipped=entry.skipped + 1)
        for entry in entries
        if entry.state == PENDING
        and entry.resource_group == started.resource_group
        and entry.priority >= started.priority
        and entry.arrival_key < started.arrival_key
    ]


def dominant_shares(usage: Mapping[str, Mapping[str, float]], capacity: Mapping[str, float]) -> dict[str, float]:
    """Return each user's dominant share: the largest fraction that the user has of any one slot's capacity.

    ``usage`` (by user) and ``capacity`` are amounts by slot; slots without capacity are ignored. After Ghodsi et al.,
    "Dominant Resource Fairness", NSDI 2011.
    """
    return {
        user: max((amount / capacity[slot] for slot, amount in slots.items() if capacity.get(slot)), default=0.0)
        for user, slots in usage.items()
    }
