# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The updates that a run sends to gateways: routes to add, and ended sessions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ...module_utils._model.plan import SessionPlan
from .._planner.agreement import find_disagreement
from .._planner.cluster_state import ClusterState, plan_of, status_of
from .._planner.route_address import find_foreign_address
from .._queue.entry import TERMINATED, TERMINATING, QueueEntry
from .._report.access import build_gateway_route


def build_gateway_update(
    plans: Iterable[SessionPlan],
    entries: Iterable[QueueEntry],
    since: float,
    already_sent: Iterable[str] = (),
    reported: Iterable[SessionPlan] = (),
) -> dict[str, Any]:
    """Return ``routes`` to the sessions of ``plans``, the ids of sessions that ``ended``, and whether that is a change.

    ``reported`` are plans that only agents have: they become routes that take nothing from other routes.

    Sessions count as ended if they are TERMINATING or TERMINATED since ``since`` (seconds since the epoch).
    ``already_sent`` are the ids that this run has sent before. Routes of sessions that are unknown here are kept:
    another run may just have added them.
    """
    ended_at = {entry.id: entry.updated_at for entry in entries if entry.state in (TERMINATING, TERMINATED)}
    ended = sorted(session_id for session_id, at in ended_at.items() if at >= since)
    # Two sessions can have the same name if an agent returns: the newer one gets the route.
    newest = sorted(plans, key=lambda plan: plan.created_at)
    routes = {plan.name: build_gateway_route(plan) for plan in newest if plan.published and plan.id not in ended_at}
    others = [build_gateway_route(plan) for plan in reported if plan.published and plan.id not in ended_at]
    changed = bool(routes or others) or not {*ended} <= {*already_sent}
    return {"routes": list(routes.values()), "reported": others, "ended": ended, "changed": changed}


def reachable_plans(cluster: ClusterState) -> tuple[list[SessionPlan], list[SessionPlan]]:
    """Return the plans of the sessions that users can access: those of the record, and those that only agents have.

    Left out are sessions whose agents disagree, and those at an address that is not their agent's own.
    """
    sessions = [
        parts
        for parts in cluster.sessions.values()
        if status_of(parts) in ("RUNNING", "DEGRADED") and not find_disagreement(parts)
    ]
    plans = [plan for plan in map(plan_of, sessions) if not find_foreign_address(plan, cluster)]
    recorded = [plan for plan in plans if plan.id in cluster.records]
    return recorded, [plan for plan in plans if plan.id not in cluster.records]


def sent_ids(results: Iterable[Mapping[str, Any] | None]) -> set[str]:
    """Return the ids of ended sessions in earlier results of a run."""
    return {name for result in results for name in ((result or {}).get("routes") or {}).get("ended", ())}
