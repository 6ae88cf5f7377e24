# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Decides which PENDING sessions start now, one after the other, each with the capacity that the earlier ones leave."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Mapping

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
    entries: Iterable[QueueEntry], answers: Answers, rules: QueuePolicy
) -> list[tuple[QueueEntry, Decision | Unschedulable]]:
    """Return every PENDING session in the order in which it was tried, with its decision or why it stays PENDING.

    ``entries`` are all of the queue, since those that have started decide who is due. A session that can never start on
    the agents as they are stays PENDING as well, with the problem as its reason.
    """
    queue = {entry.id: entry for entry in entries}
    tried: dict[str, tuple[QueueEntry, Decision | Unschedulable]] = {}
    while True:
        skips = count_skips(queue.values())
        due = due_sessions(queue.values(), skips, rules.max_skips)
        for entry in _order(queue.values(), answers.cluster, rules, due):
            if entry.id in tried:
                continue
            ahead = first_ahead(due, entry, answers.blocks)
            answer = answers.decide(entry) if ahead is None else _wait_behind(ahead, skips)
            tried[entry.id] = entry, answer
            if isinstance(answer, Decision):
                # It may make others due, and change the shares: the order is another one from here on.
                queue[entry.id] = dataclasses.replace(entry, state=CREATING, has_started=True)
                if not answer.existing:
                    answers.start(answer.plan)
                break
        else:
            return [*tried.values()]


def waits_behind(
    entries: Collection[QueueEntry], entry: QueueEntry, answers: Answers, rules: QueuePolicy
) -> Unschedulable | None:
    """Return why a session has to wait behind another one, even if it would fit; ``None`` if it may start."""
    skips = count_skips(entries)
    ahead = first_ahead(due_sessions(entries, skips, rules.max_skips), entry, answers.blocks)
    return None if ahead is None else _wait_behind(ahead, skips)


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
