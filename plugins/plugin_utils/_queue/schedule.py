# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Decides which PENDING sessions start now, one after the other, each with the capacity that the earlier ones leave."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping

from ...module_utils._model.plan import SessionPlan
from .._placement.place import Unschedulable
from .._planner.cluster_state import ClusterState
from .._planner.decision import Decision
from .answers import Answers
from .entry import QueueEntry
from .order import WaitingOrder
from .policy import blocked_by, dominant_shares, queue_positions, sort_pending


@dataclasses.dataclass(frozen=True)
class QueuePolicy:
    """The order of a queue (``fifo``, ``lifo`` or ``drf``), and how often a PENDING session may be skipped."""

    policy: str
    max_skips: int


def schedule(
    entries: Iterable[QueueEntry], answers: Answers, rules: QueuePolicy
) -> list[tuple[QueueEntry, Decision | Unschedulable]]:
    """Return every PENDING session in the order in which it was tried, with its decision or why it stays PENDING.

    Entries that stay PENDING have an updated ``skipped``. A session that can never start on the agents as they are
    stays PENDING as well, with the problem as its reason.
    """
    shares = _Shares(answers.cluster) if rules.policy == "drf" else None
    order = WaitingOrder(entries, rules.policy, shares.of_users if shares else {}, rules.max_skips)
    tried: list[tuple[QueueEntry, Decision | Unschedulable]] = []
    behind: dict[str, Unschedulable] = {}
    while (entry := order.next()) is not None:
        ahead = order.first_ahead(entry, answers.blocks)
        if ahead is not None:
            # One object for all that wait behind the same session.
            tried.append((entry, behind.setdefault(ahead.id, _wait_behind(ahead, order.skipped[ahead.id]))))
            continue
        decision = answers.decide(entry)
        tried.append((entry, decision))
        if isinstance(decision, Decision):
            order.started(entry)
            if not decision.existing:
                answers.start(decision.plan)
                if shares:
                    shares.add(decision.plan)
    return [
        (entry.with_skipped(order.skipped[entry.id]), answer)
        if order.skipped[entry.id] != entry.skipped
        else (entry, answer)
        for entry, answer in tried
    ]


def waits_behind(
    entries: Iterable[QueueEntry], entry: QueueEntry, answers: Answers, rules: QueuePolicy
) -> Unschedulable | None:
    """Return why a session has to wait behind another one, even if it would fit; ``None`` if it may start."""
    ahead = blocked_by(
        [*entries, entry], entry.priority, entry.resource_group, rules.max_skips, entry.id, answers.blocks
    )
    return None if ahead is None else _wait_behind(ahead, ahead.skipped)


def _wait_behind(ahead: QueueEntry, skipped: int) -> Unschedulable:
    return Unschedulable(f"it waits behind {ahead.name}, which {skipped} later sessions have skipped", {})


class _Shares:
    """The dominant shares of users, as sessions start."""

    def __init__(self, cluster: ClusterState) -> None:
        self._agents = cluster.facts.keys()
        self._usage, self._capacity = usage(cluster)
        self.of_users = dominant_shares(self._usage, self._capacity)

    def add(self, plan: SessionPlan) -> None:
        """Add a session that starts."""
        taken = self._usage.setdefault(plan.user, {})
        for kernel in plan.kernels:
            if kernel.agent in self._agents:
                _add(taken, kernel.resources)
        self.of_users |= dominant_shares({plan.user: taken}, self._capacity)


def positions(entries: Iterable[QueueEntry], cluster: ClusterState, rules: QueuePolicy) -> dict[str, int]:
    """Return the positions of PENDING sessions by id, each in its resource group, from 1."""
    shares = dominant_shares(*usage(cluster)) if rules.policy == "drf" else {}
    return queue_positions(sort_pending(entries, rules.policy, shares, rules.max_skips))


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
