# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a run tells gateways: which sessions they lead to from now on, and to which no more."""

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
    """Return ``routes`` to the sessions of these plans, the ids of those that ``ended``, and whether that is ``news``.

    A session has ended when the queue says so since a time in seconds since the epoch. ``told`` are the ids that this
    run has told of before. Nothing is taken from a gateway because it is not known here: another run may just have told
    it.
    """
    ended_at = {entry.id: entry.updated_at for entry in entries if entry.state in (TERMINATING, TERMINATED)}
    ended = sorted(session_id for session_id, at in ended_at.items() if at >= since)
    # Of two sessions of one name, which an agent may bring back, the newer one has it.
    newest = sorted(plans, key=lambda plan: plan.created_at)
    routes = {plan.name: build_gateway_route(plan) for plan in newest if plan.published and plan.id not in ended_at}
    changed = bool(routes) or not {*ended} <= {*already_sent}
    return {"routes": list(routes.values()), "ended": ended, "changed": changed}


def reachable(cluster: ClusterState) -> list[SessionPlan]:
    """Return the plans of the sessions that agents hold and users may be in."""
    sessions = cluster.sessions.values()
    return [plan_of(parts) for parts in sessions if status_of(parts) in ("RUNNING", "DEGRADED")]


def told_by(results: Iterable[Mapping[str, Any] | None]) -> set[str]:
    """Return the ids of the ended sessions that earlier results of a run have told of."""
    return {name for result in results for name in ((result or {}).get("routes") or {}).get("ended", ())}
