# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The updates that a run sends to gateways: routes to add, and ended sessions."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from ...module_utils._model.plan import SessionPlan
from .._planner.cluster_state import ClusterState
from .._planner.published_ports import gateway_address
from .._planner.route_address import find_foreign_address, find_other_owner
from .._planner.session_network import PlanningError
from .._queue.entry import QueueEntry
from .._report.access import build_gateway_route

ROUTES_RESULTS = ("__session_gateway", "__session_pending_gateway", "__session_slow_gateway")
"""The variables of each gateway with its results of ``gateway_routes``: own session, pending sessions, slow ones."""


def build_gateway_update(
    plans: Iterable[SessionPlan],
    entries: Iterable[QueueEntry],
    since: float,
    already_sent: Iterable[str] = (),
    *,
    ending: Collection[str] = (),
    vacated: Sequence[Mapping[str, str]] = (),
) -> dict[str, Any]:
    """Return ``routes`` to the sessions of ``plans``, the ids of sessions that ``ended``, and whether that is a change.

    Sessions count as ended if they are TERMINATING or TERMINATED since ``since`` (seconds since the epoch), or among
    those that this run is about to end, ``ending``. ``already_sent`` are the ids that this run has sent before.
    ``vacated`` are returned as they are. Routes of sessions that are unknown here are kept: another run may just have
    added them.
    """
    ended_at = {entry.id: entry.updated_at for entry in entries if entry.has_ended}
    ended = sorted({*ending, *(session_id for session_id, at in ended_at.items() if at >= since)})
    over = {*ended_at, *ending}
    # Two sessions can have the same name if an agent returns: the newer one gets the route.
    newest = sorted(plans, key=lambda plan: plan.created_at)
    routes = {plan.name: build_gateway_route(plan) for plan in newest if plan.published and plan.id not in over}
    return {
        "routes": list(routes.values()),
        "ended": ended,
        "vacated": list(vacated),
        "changed": bool(routes or vacated) or not {*ended} <= {*already_sent},
    }


def find_vacated(cluster: ClusterState) -> dict[str, list[dict[str, str]]]:
    """Return the sessions that agents no longer hold but still reserve ports for, with the address of the agent.

    They are listed by agent; one without a known address for gateways, or with that of another agent, is left out.
    """
    vacated: dict[str, list[dict[str, str]]] = {}
    for agent in cluster.agents:
        if not agent.reserved_ports:
            continue
        with contextlib.suppress(PlanningError):
            address = gateway_address(agent)
            if not find_other_owner(agent.name, address, cluster):
                vacated[agent.name] = [{"id": session_id, "address": address} for session_id in agent.reserved_ports]
    return vacated


def find_unrouted(update: Mapping[str, Any], gateways: Iterable[str], hostvars: Mapping[str, Any]) -> list[str]:
    """Return the ids of the ended and vacated sessions of an update whose routes all gateways have removed.

    A gateway that was not reached, or that ``--limit`` hides, has no result and confirms nothing.
    """
    unrouted = {*update.get("ended", ()), *(session["id"] for session in update.get("vacated", ()))}
    for gateway in gateways if unrouted else ():
        results = [hostvars[gateway].get(name) or {} for name in ROUTES_RESULTS]
        unrouted &= {session_id for result in results for session_id in result.get("unrouted") or ()}
    return sorted(unrouted)


def reachable_plans(cluster: ClusterState) -> list[SessionPlan]:
    """Return the plans of the sessions that users can access: the agent of main1 has committed its part.

    Left out are those at an address that is not their agent's own.
    """
    plans = [
        session.plan
        for session in cluster.sessions.values()
        if session.status in ("RUNNING", "DEGRADED") and session.plan.agents[0] in session.parts
    ]
    return [plan for plan in plans if not find_foreign_address(plan, cluster)]


def sent_ids(results: Iterable[Mapping[str, Any] | None]) -> set[str]:
    """Return the ids of ended sessions in earlier results of a run."""
    return {name for result in results for name in ((result or {}).get("routes") or {}).get("ended", ())}
