# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What may be expected of a request without a place: whether it ever has one, and whether another mode would help."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from ...module_utils._model.facts import AgentFacts
from ...module_utils._model.validation import ValidationError
from .._placement.place import Placement, Unschedulable
from .._placement.unschedulable import join_names
from .._request.run_options import NetworkPools
from .._request.spec import SessionSpec
from .cluster_state import ClusterState
from .decision import Decision, decide, place_request
from .eligibility import eligible_agents, may_hold
from .session_network import PlanningError

NEVER = "it does not fit even on an empty cluster"
SPREAD = "--multi-node (session_cluster_mode: multi-node)"


def look_ahead(
    refusal: Unschedulable, spec: SessionSpec, cluster: ClusterState, pools: NetworkPools, session_id: str, now: float
) -> Unschedulable:
    """Return the refusal of a request with its outlook.

    It is tried on all agents of its group that may hold it, as if they were empty, in service or not. That it has no
    place there is a proof as far as the placement has one, and none while one of them is away.
    """
    spread = dataclasses.replace(spec, cluster_mode="multi-node") if _may_spread(spec) else None
    try:
        empty = _emptied(spec, cluster)
        if not empty:
            return refusal
        alone = place_request(spec, empty, None)
        helps = spread is not None and isinstance(
            decide(spread, cluster, pools, session_id, "", now, name_blockers=False), Decision
        )
        phrases = [f"it would start now with {SPREAD}"] if helps else []
        if isinstance(alone, Placement):
            return dataclasses.replace(refusal, outlook="; ".join(phrases))
        if spread and not helps and isinstance(place_request(spread, _emptied(spread, cluster), None), Placement):
            phrases.append(f"on an empty cluster it would fit with {SPREAD}")
    except (ValidationError, PlanningError):
        return refusal
    # Why one is silent is part of the reason.
    away = [agent.name if agent.silent else agent.description for agent in may_hold(spec, cluster.away)]
    never = alone.proven and not away
    if never:
        reason = "" if alone.reason in refusal.reason else f": {alone.reason}"
        phrases.insert(0, f"{NEVER}{reason}")
    else:
        without = f" without {join_names(away)}" if away else ""
        phrases.insert(0, f"no place was found even on an empty cluster{without}")
    return dataclasses.replace(refusal, outlook="; ".join(phrases), never=never)


def _may_spread(spec: SessionSpec) -> bool:
    return spec.cluster_mode == "single-node" and sum(role.replicas for role in spec.effective_roles) > 1


def _emptied(spec: SessionSpec, cluster: ClusterState) -> Sequence[AgentFacts]:
    """Return the agents that may hold a request as if nothing ran there: what they take on leave it free some time."""
    group = [agent.emptied for agent in cluster.agents if agent.resource_group == spec.resource_group]
    return eligible_agents(spec, group, cluster.unavailable, cluster.away, in_service=False)
