# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whether the time of a session is up, and when it will be."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from .._planner.cluster_state import ClusterState, Session
from .._queue.entry import CREATING, PENDING, RUNNING, QueueEntry


def time_reason(session: Session, now: float) -> str:
    """Return why the time of a session is up; empty if it is not. ``now`` is in seconds since the epoch."""
    plan = session.plan
    cordons = {agent: part.cordon for agent, part in session.parts.items() if part.cordon and part.cordon.is_due(now)}
    if cordons:
        return "; ".join(f"{agent} is {cordon.description}" for agent, cordon in cordons.items())
    if plan.max_lifetime and lived_seconds(session, now) >= plan.max_lifetime:
        return f"it has lived for session_max_lifetime, {plan.max_lifetime} seconds"
    if plan.idle_timeout and (idle_seconds(session) or 0) >= plan.idle_timeout:
        return f"it was idle for session_idle_timeout, {plan.idle_timeout} seconds"
    return ""


def end_time(session: Session, now: float) -> float | None:
    """Return when the time of a session will be up if nobody uses it until then; ``None`` for never.

    A session that is in use has no such time but that of its longest life.
    """
    plan, idle = session.plan, idle_seconds(session)
    ends = [now + plan.max_lifetime - lived_seconds(session, now)] if plan.max_lifetime else []
    ends += [now + plan.idle_timeout - idle] if plan.idle_timeout and idle else []
    ends += [
        time for part in session.parts.values() if part.cordon and (time := part.cordon.sessions_end_at) is not None
    ]
    return min(ends, default=None)


def lived_seconds(session: Session, now: float) -> float:
    """Return how long a session has lived. What agents count does not depend on clocks, which may be set."""
    counted = [part.lived for part in session.parts.values() if part.lived is not None]
    return max(counted, default=now - session.plan.created_at)


def idle_seconds(session: Session) -> int | None:
    """Return how long a session has been idle on all of its agents; ``None`` unless all say so."""
    idle = [session.parts[agent].idle if agent in session.parts else None for agent in session.plan.agents]
    known = [seconds for seconds in idle if seconds is not None]
    return min(known) if len(known) == len(idle) else None


def next_ends(
    entries: Collection[QueueEntry], cluster: ClusterState, places: Mapping[str, int], now: float
) -> dict[str, float]:
    """Return when the next session ends by its limit, by the ids of those that wait for it in its resource group.

    Nothing is said of one if a session that runs there, or one before it in ``places``, has no limit: it may never end.
    """
    ends: dict[str, float] = {}
    for group in {entry.resource_group for entry in entries if entry.id in places}:
        own = [entry for entry in entries if entry.resource_group == group]
        limits = [_limit(entry, cluster, now) for entry in own if entry.state in (CREATING, RUNNING) and entry.plan]
        known = [limit for limit in limits if limit is not None]
        holders = {agent for parts in cluster.strangers.values() for agent in parts}
        if not known or len(known) < len(limits) or group in {cluster.facts[name].resource_group for name in holders}:
            continue
        for entry in sorted((entry for entry in own if entry.state == PENDING), key=lambda entry: places[entry.id]):
            ends[entry.id] = min(known)
            if not (entry.spec or {}).get("max_lifetime"):
                break
    return ends


def _limit(entry: QueueEntry, cluster: ClusterState, now: float) -> float | None:
    """Return when a session will have lived for its longest time; ``None`` if it has none."""
    if not entry.plan or not entry.plan.max_lifetime:
        return None
    session = cluster.sessions.get(entry.id)
    return entry.plan.max_lifetime + (now - lived_seconds(session, now) if session else entry.plan.created_at)
