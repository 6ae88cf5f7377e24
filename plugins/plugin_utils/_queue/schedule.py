# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Decides which PENDING sessions start now, one after the other, each with the capacity that the earlier ones leave."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from .._placement.place import Unschedulable
from .._planner.cluster_state import ClusterState
from .._planner.decision import Decision
from .answers import Answers
from .entry import CREATING, QueueEntry
from .policy import count_skips, dominant_shares, due_sessions, first_ahead, queue_positions, sort_pending


@dataclasses.dataclass(frozen=True)
class QueuePolicy:
    """The order of a queue (``fifo``, ``lifo`` or ``drf``), and how many others may skip a PENDING session."""

    policy: str
    max_skips: int


def schedule(
    entries: Iterable[QueueEntry], answers: Answers, rules: QueuePolicy, barred: Collection[str] = ()
) -> list[tuple[QueueEntry, Decision | Unschedulable]]:
    """Return the PENDING sessions in the order in which they were tried, with their decision or why they stay PENDING.

    ``entries`` are all of the queue, since those that have started decide who is due. ``barred`` are the ids of those
    that may not start now, whatever room there is: they are not tried, and no other waits for them. A session that can
    never start on the agents as they are stays PENDING as well, with the problem as its reason.
    """
    queue = {entry.id: entry for entry in entries}
    tried: dict[str, tuple[QueueEntry, Decision | Unschedulable]] = {}
    while True:
        skips, due = _find_due(queue.values(), rules, barred)
        for entry in _order(queue.values(), answers.cluster, rules, due):
            if entry.id in tried or entry.id in barred:
                continue
            ahead = first_ahead(due, entry, answers.blocks)
            answer = answers.decide(entry) if ahead is None else _wait_behind(ahead, skips)
            tried[entry.id] = entry, answer
            if isinstance(answer, Decision):
                # It may make others due, and change the shares: the order is another one from here on.
                queue[entry.id] = _started(entry)
                if not answer.existing:
                    answers.start(answer.plan)
                break
        else:
            return [*tried.values()]


def waits_behind(
    entries: Collection[QueueEntry],
    entry: QueueEntry,
    blocks: Callable[[QueueEntry], bool],
    rules: QueuePolicy,
    barred: Collection[str] = (),
) -> Unschedulable | None:
    """Return why a session has to wait behind another one, even if it would fit; ``None`` if it may start.

    ``entries`` are all of the queue, ``blocks`` is as for :func:`first_ahead`, ``barred`` as for :func:`schedule`.
    """
    skips, due = _find_due(entries, rules, barred)
    ahead = first_ahead(due, entry, blocks)
    return None if ahead is None else _wait_behind(ahead, skips)


def still_first(
    entries: Iterable[QueueEntry],
    chosen: Sequence[QueueEntry],
    blocks: Callable[[QueueEntry], bool],
    rules: QueuePolicy,
    barred: Collection[str] = (),
) -> set[str]:
    """Return the ids of those chosen sessions that may still start, in this order, now that the queue has ``entries``.

    Others may have started since they were chosen, so that they would skip one too often. The other arguments are as
    for :func:`waits_behind`.
    """
    queue, first = {entry.id: entry for entry in entries}, set()
    for entry in chosen:
        if entry.id in queue and waits_behind(queue.values(), entry, blocks, rules, barred) is None:
            first.add(entry.id)
            queue[entry.id] = _started(entry)
    return first


def _started(entry: QueueEntry) -> QueueEntry:
    return dataclasses.replace(entry, state=CREATING, has_started=True)


def _find_due(
    entries: Collection[QueueEntry], rules: QueuePolicy, barred: Collection[str]
) -> tuple[dict[str, int], list[QueueEntry]]:
    """Return how often each session was skipped, and those that are due and not barred."""
    skips = count_skips(entries)
    due = due_sessions(entries, skips, rules.max_skips)
    return skips, [entry for entry in due if entry.id not in barred]


def _wait_behind(ahead: QueueEntry, skips: Mapping[str, int]) -> Unschedulable:
    return Unschedulable(f"it waits behind {ahead.name}, which {skips[ahead.id]} later sessions have skipped", {})


def positions(entries: Collection[QueueEntry], cluster: ClusterState, rules: QueuePolicy) -> dict[str, int]:
    """Return the positions of PENDING sessions by id, each in its resource group, from 1."""
    due = due_sessions(entries, count_skips(entries), rules.max_skips)
    return queue_positions(_order(entries, cluster, rules, due))


def _order(
    entries: Iterable[QueueEntry], cluster: ClusterState, rules: QueuePolicy, due: Iterable[QueueEntry]
) -> list[QueueEntry]:
    shares = dominant_shares(*usage(cluster)) if rules.policy == "drf" else {}
    return sort_pending(entries, rules.policy, shares, due)


def usage(cluster: ClusterState) -> tuple[dict[str, dict[str, float]], dict[str, float]]:
    """Return the usage of each user's sessions, and the capacity of all agents: amounts by slot."""
    taken: dict[str, dict[str, float]] = {}
    capacity: dict[str, float] = {}
    for facts in cluster.facts.values():
        _add(capacity, facts.capacity)
    for session in cluster.sessions.values():
        for kernel in session.plan.kernels:
            if kernel.agent in session.parts and not session.parts[kernel.agent].expired:
                _add(taken.setdefault(session.plan.user, {}), kernel.resources)
    return taken, capacity


def _add(total: dict[str, float], slots: Mapping[str, float]) -> None:
    for slot, amount in slots.items():
        total[slot] = total.get(slot, 0) + amount
