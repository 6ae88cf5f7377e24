# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The updates that a run sends to gateways: routes to add, and ended sessions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ...module_utils._model.plan import SessionPlan
from .._planner.cluster_state import ClusterState, plan_of, status_of
from .._queue.entry import TERMINATED, TERMINATING, QueueEntry
from .._report.access import build_gateway_route


def build_gateway_update(
    plans: Iterable[SessionPlan], entries: Iterable[QueueEntry], since: float, already_sent: Iterable[str] = ()
) -> dict[str, Any]:
    """Return ``routes`` to the sessions of ``plans``, the ids of sessions that ``ended``, and whether that is a change.

    Sessions count as ended if they are TERMINATING or TERMINATED since ``since`` (seconds since the epoch).
    ``already_sent`` are the ids that this run has sent before. Routes of sessions that are unknown here are kept:
    another run may just have added them.
    """
    ended_at = {entry.id: entry.updated_at for entry in entries if entry.state in (TERMINATING, TERMINATED)}
    ended = sorted(session_id for session_id, at in ended_at.items() if at >= since)
    # Two sessions can have the same name if an agent returns: the newer one gets the route.
    newest = sorted(plans, key=lambda plan: plan.created_at)
    routes = {plan.name: build_gateway_route(plan) for plan in newest if plan.published and plan.id not in ended_at}
    changed = bool(routes) or not {*ended} <= {*already_sent}
    return {"routes": list(routes.values()), "ended": ended, "changed": changed}


def reachable_plans(cluster: ClusterState) -> list[SessionPlan]:
    """Return the plans of the sessions that users can access."""
    sessions = cluster.sessions.values()
    return [plan_of(parts) for parts in sessions if status_of(parts) in ("RUNNING", "DEGRADED")]


def sent_ids(results: Iterable[Mapping[str, Any] | None]) -> set[str]:
    """Return the ids of ended sessions in earlier results of a run."""
    return {name for result in results for name in ((result or {}).get("routes") or {}).get("ended", ())}
