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


def find_unrouted(
    update: Mapping[str, Any], gateways: Iterable[str], confirmed: Mapping[str, Collection[str]]
) -> list[str]:
    """Return the ids of the ended and vacated sessions of an update whose routes all gateways have removed.

    ``confirmed`` are the ids that each gateway has said so of. One that was not reached, or that ``--limit`` hides,
    confirms nothing.
    """
    unrouted = {*update.get("ended", ()), *(session["id"] for session in update.get("vacated", ()))}
    for gateway in gateways if unrouted else ():
        unrouted &= {*confirmed.get(gateway, ())}
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
