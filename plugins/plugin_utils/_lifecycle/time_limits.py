# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whether the time of a session is up, and when it will be."""

from __future__ import annotations

from .._planner.cluster_state import Parts, plan_of


def time_reason(parts: Parts, now: float) -> str:
    """Return why the time of a session is up; empty if it is not. ``now`` is in seconds since the epoch."""
    plan = plan_of(parts)
    cordons = {agent: part.cordon for agent, part in parts.items() if part.cordon and part.cordon.is_due(now)}
    if cordons:
        return "; ".join(f"{agent} is {cordon.description}" for agent, cordon in cordons.items())
    if plan.max_lifetime and lived_seconds(parts, now) >= plan.max_lifetime:
        return f"it has lived for session_max_lifetime, {plan.max_lifetime} seconds"
    if plan.idle_timeout and (idle_seconds(parts) or 0) >= plan.idle_timeout:
        return f"it was idle for session_idle_timeout, {plan.idle_timeout} seconds"
    return ""


def end_time(parts: Parts, now: float) -> float | None:
    """Return when the time of a session will be up if nobody uses it until then; ``None`` for never.

    A session that is in use has no such time but that of its longest life.
    """
    plan, idle = plan_of(parts), idle_seconds(parts)
    ends = [now + plan.max_lifetime - lived_seconds(parts, now)] if plan.max_lifetime else []
    ends += [now + plan.idle_timeout - idle] if plan.idle_timeout and idle else []
    ends += [time for part in parts.values() if part.cordon and (time := part.cordon.sessions_end_at) is not None]
    return min(ends, default=None)


def lived_seconds(parts: Parts, now: float) -> float:
    """Return how long a session has lived. What agents count does not depend on clocks, which may be set."""
    counted = [part.lived for part in parts.values() if part.lived is not None]
    return max(counted, default=now - plan_of(parts).created_at)


def idle_seconds(parts: Parts) -> int | None:
    """Return how long a session has been idle on all of its agents; ``None`` unless all say so."""
    idle = [parts[agent].idle if agent in parts else None for agent in plan_of(parts).agents]
    known = [seconds for seconds in idle if seconds is not None]
    return min(known) if len(known) == len(idle) else None
