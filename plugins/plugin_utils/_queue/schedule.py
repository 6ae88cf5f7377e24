# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Decides which PENDING sessions start now, one after the other, each with the capacity that the earlier ones leave."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping

from ...module_utils._model.errors import as_phrase
from ...module_utils._model.validation import ValidationError
from .._placement.place import Unschedulable
from .._planner.cluster_state import ClusterState
from .._planner.decision import Decision, decide, is_feasible
from .._planner.session_network import PlanningError
from .._request.run_options import NetworkPools
from .._request.spec import SessionSpec, check_stored, spec_from_dict
from .entry import QueueEntry, blocked_by, count_skips, dominant_shares, sort_pending


@dataclasses.dataclass(frozen=True)
class QueuePolicy:
    """The order of a queue (``fifo``, ``lifo`` or ``drf``), and how often a PENDING session may be skipped."""

    policy: str
    max_skips: int


def schedule(
    entries: Iterable[QueueEntry], cluster: ClusterState, pools: NetworkPools, rules: QueuePolicy, now: float
) -> list[tuple[QueueEntry, Decision | Unschedulable]]:
    """Return every PENDING session in the order in which it was tried, with its decision or why it stays PENDING.

    Entries that stay PENDING have an updated ``skipped``. A session that can never start on the agents as they are
    stays PENDING as well, with the problem as its reason.
    """
    remaining = {entry.id: entry for entry in entries}
    tried: dict[str, tuple[QueueEntry, Decision | Unschedulable]] = {}
    while True:
        shares = dominant_shares(*usage(cluster)) if rules.policy == "drf" else {}
        waiting = [entry for entry in remaining.values() if entry.id not in tried]
        ordered = sort_pending(waiting, rules.policy, shares, rules.max_skips)
        if not ordered:
            return [(remaining.get(session_id, entry), decision) for session_id, (entry, decision) in tried.items()]
        entry = ordered[0]
        decision = waits_behind(remaining.values(), entry, cluster, rules) or _decide_entry(entry, cluster, pools, now)
        tried[entry.id] = entry, decision
        if isinstance(decision, Decision):
            cluster = cluster if decision.existing else cluster.with_plan(decision.plan)
            del remaining[entry.id]
            remaining.update({passed.id: passed for passed in count_skips(remaining.values(), entry)})


def waits_behind(
    entries: Iterable[QueueEntry], entry: QueueEntry, cluster: ClusterState, rules: QueuePolicy
) -> Unschedulable | None:
    """Return why a session has to wait behind another one, even if it would fit; ``None`` if it may start."""
    listed = [
        other for other in entries if other.id not in cluster.sessions and not _is_infeasible(other, cluster, rules)
    ]
    ahead = blocked_by([*listed, entry], entry.priority, entry.resource_group, rules.max_skips, entry.id)
    if ahead is None:
        return None
    return Unschedulable(f"it waits behind {ahead.name}, which {ahead.skipped} later sessions have skipped", {})


def usage(cluster: ClusterState) -> tuple[dict[str, dict[str, float]], dict[str, float]]:
    """Return the usage of each user's sessions, and the capacity of all agents: amounts by slot."""
    taken: dict[str, dict[str, float]] = {}
    capacity: dict[str, float] = {}
    for agent, facts in cluster.facts.items():
        _add(capacity, facts.capacity)
        for plan in (session.plan for session in facts.sessions if not session.expired):
            for kernel in plan.kernels_on(agent):
                _add(taken.setdefault(plan.user, {}), kernel.resources)
    return taken, capacity


def _add(total: dict[str, float], slots: Mapping[str, float]) -> None:
    for slot, amount in slots.items():
        total[slot] = total.get(slot, 0) + amount


def _decide_entry(
    entry: QueueEntry, cluster: ClusterState, pools: NetworkPools, now: float
) -> Decision | Unschedulable:
    try:
        decision = decide(_checked_spec(entry), cluster, pools, entry.id, entry.user, now)
    except (ValidationError, PlanningError) as error:
        return Unschedulable(as_phrase(error), {})
    if isinstance(decision, Decision) and decision.plan.id != entry.id:
        return Unschedulable(f"the name {entry.name!r} is taken by the session {decision.plan.id}", {})
    return decision


def _is_infeasible(entry: QueueEntry, cluster: ClusterState, rules: QueuePolicy) -> bool:
    """Return whether a session could not start even if all others ended: no session has to wait behind it."""
    if entry.spec is None or entry.skipped < rules.max_skips:
        return False
    try:
        return not is_feasible(_checked_spec(entry), cluster, entry.id)
    except ValidationError:
        return True


def _checked_spec(entry: QueueEntry) -> SessionSpec:
    """Return the request of an entry, validated again: whoever writes to the queue is not the one that starts it.

    Raises :class:`ValidationError`.
    """
    spec = spec_from_dict(entry.spec or {})
    check_stored(spec)
    return spec
