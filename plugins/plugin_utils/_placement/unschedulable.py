# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Why there is no room: what is short, for whom, and by how much."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Sequence

from ...module_utils._model.facts import AgentFacts
from ...module_utils._model.quantity import format_slots
from .blockers import blocking_sessions
from .demand import Demand, Member
from .packing import Packing

# How many containers or sessions a phrase names.
MAX_NAMES = 4


@dataclasses.dataclass(frozen=True)
class Unschedulable:
    """Why a session cannot start now, as one phrase and as figures.

    ``shortfall`` is what the containers without a place ask of each slot that binds. By role, ``unplaced`` is how many
    containers have none, and ``missing`` how much of each slot the agent that lacks the least lacks for one more.
    ``makes_room`` are the names of sessions whose ends, all of them together, make room; none where none do.
    """

    reason: str
    shortfall: dict[str, int]
    unplaced: dict[str, int] = dataclasses.field(default_factory=dict)
    missing: dict[str, dict[str, int]] = dataclasses.field(default_factory=dict)
    blocking_sessions: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class PartialPlacement:
    """As many containers as there is room for: ``placed`` of each shape.

    ``agents`` are those that would have to take more, and ``packings`` what each of them has taken. An attempt that is
    not ``exact`` may have missed a better one.
    """

    placed: Packing
    agents: Sequence[AgentFacts]
    packings: Sequence[Packing]
    exact: bool


def explain(
    agents: Sequence[AgentFacts], demand: Demand, attempt: PartialPlacement, *, single_node: bool
) -> Unschedulable:
    """Return why the containers that an attempt leaves over have no place on these agents."""
    remaining = demand.unplaced(attempt.placed)
    unplaced = dict(Counter(member.role for member in remaining))
    qualifier = "" if attempt.exact else "found "
    summary = f"no room {qualifier}for {len(remaining)} of {demand.size} containers"
    if not agents:
        return Unschedulable(f"{summary}: no agent that may hold them is schedulable", {}, unplaced)
    shortfall: Counter[str] = Counter()
    missing: dict[str, dict[str, int]] = {}
    for shape, many in Counter(member.shape for member in remaining).items():
        request = demand.requests[shape]
        lacks = _shortfalls(demand, attempt, shape)
        shortfall.update({slot: many * request[slot] for slot in request if any(slot in lack for lack in lacks)})
        least = min(lacks, key=lambda lack: _weight(lack, request))
        missing |= {member.role: least for member in remaining if member.shape == shape}
    blocking = blocking_sessions(agents, demand, single_node=single_node) if attempt.exact else ()
    names = f" ({join_names([member.hostname for member in remaining])})" if len(demand.counts) > 1 else ""
    where = "on one agent" if len(agents) == 1 or (single_node and demand.size > 1) else f"on {len(agents)} agents"
    cause = f"short of {format_slots(shortfall)}" if shortfall else "the limit of containers per agent is reached"
    reason = f"{summary}{names} {where}: {cause}{_exceeds_online_cpus(agents, demand, remaining)}"
    if blocking:
        reason += f"; room comes when these end: {join_names(blocking)}"
    return Unschedulable(reason, dict(shortfall), unplaced, missing, blocking)


def join_names(names: Sequence[str]) -> str:
    """Return names as people read them: a few, and how many more there are."""
    shown = ", ".join(names[:MAX_NAMES])
    return shown if len(names) <= MAX_NAMES else f"{shown} and {len(names) - MAX_NAMES} more"


def _shortfalls(demand: Demand, attempt: PartialPlacement, shape: int) -> list[dict[str, int]]:
    """Return how much of each slot agents lack for one container more of a shape, beside what they have taken.

    What several lack is told once; nothing is lacking where only the limit of containers stands in the way.
    """
    request = demand.requests[shape]
    width = request.get("cpu", 0)
    needs = {packing: _needs(demand, packing, request) for packing in set(attempt.packings)}
    lacks = set()
    for agent, packing in zip(attempt.agents, attempt.packings, strict=True):
        free = agent.free
        lack = [(slot, need - free.get(slot, 0)) for slot, need in needs[packing] if free.get(slot, 0) < need]
        if width > agent.online_cpu_count:
            short = max(dict(lack).get("cpu", 0), width - agent.online_cpu_count)
            lack = [("cpu", short), *(item for item in lack if item[0] != "cpu")]
        lacks.add(tuple(lack))
    return [dict(lack) for lack in lacks]


def _needs(demand: Demand, packing: Packing, request: dict[str, int]) -> list[tuple[str, int]]:
    """Return what a packing and one container more take of each slot of which that one asks."""
    return [
        (
            slot,
            amount
            + sum(
                shape_request.get(slot, 0) * count
                for shape_request, count in zip(demand.requests, packing, strict=True)
            ),
        )
        for slot, amount in request.items()
    ]


def _weight(lack: dict[str, int], request: dict[str, int]) -> tuple[bool, list[float], list[tuple[str, int]]]:
    """Return how much is lacking of one container, its largest part first; an agent's limit is beyond measure."""
    return not lack, sorted((lack[slot] / request[slot] for slot in lack), reverse=True), sorted(lack.items())


def _exceeds_online_cpus(agents: Sequence[AgentFacts], demand: Demand, remaining: Sequence[Member]) -> str:
    widest = max(demand.requests[member.shape].get("cpu", 0) for member in remaining)
    most = max(agent.online_cpu_count for agent in agents)
    if widest <= most:
        return ""
    return f"; one container asks for {widest} cores and no agent has more than {most} online"
