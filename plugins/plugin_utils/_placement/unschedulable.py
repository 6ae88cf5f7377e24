# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Explains why a session does not fit: the slots that are short, for which containers, and by how much."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Sequence

from ...module_utils._model.facts import AgentFacts
from ...module_utils._model.quantity import format_slots
from .blockers import blocking_sessions
from .demand import Demand, Member
from .packing import Packing

# How many containers or sessions a message names.
MAX_NAMES = 4


@dataclasses.dataclass(frozen=True)
class Unschedulable:
    """Why a session cannot start now, as one phrase and as figures.

    ``shortfall`` is the request of the unplaced containers for each slot that is short. By role, ``unplaced`` is the
    number of unplaced containers, and ``missing`` the amount of each slot that the closest agent lacks for one more.
    ``blocking_sessions`` are the names of sessions that free enough capacity when all of them end; empty if none do.
    """

    reason: str
    shortfall: dict[str, int]
    unplaced: dict[str, int] = dataclasses.field(default_factory=dict)
    missing: dict[str, dict[str, int]] = dataclasses.field(default_factory=dict)
    blocking_sessions: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class PartialPlacement:
    """As many containers as fit: ``placed`` of each shape.

    ``agents`` are those that would have to hold more, and ``packings`` what each of them holds. If it is not ``exact``,
    there may be a better one.
    """

    placed: Packing
    agents: Sequence[AgentFacts]
    packings: Sequence[Packing]
    exact: bool


def explain(
    agents: Sequence[AgentFacts],
    demand: Demand,
    attempt: PartialPlacement,
    *,
    single_node: bool,
    name_blockers: bool = True,
) -> Unschedulable:
    """Return why the containers that an attempt leaves unplaced do not fit on these agents.

    Without ``name_blockers``, the sessions that would have to end are not looked for.
    """
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
    blocking = blocking_sessions(agents, demand, single_node=single_node) if attempt.exact and name_blockers else ()
    names = f" ({join_names([member.hostname for member in remaining])})" if len(demand.counts) > 1 else ""
    where = "on one agent" if len(agents) == 1 or (single_node and demand.size > 1) else f"on {len(agents)} agents"
    cause = f"short of {format_slots(shortfall)}" if shortfall else "the limit of containers per agent is reached"
    reason = f"{summary}{names} {where}: {cause}{_exceeds_online_cpus(agents, demand, remaining)}"
    if blocking:
        reason += f"; it fits when these end: {join_names(blocking)}"
    return Unschedulable(reason, dict(shortfall), unplaced, missing, blocking)


def join_names(names: Sequence[str]) -> str:
    """Return the first few names, and the number of the others, as text."""
    shown = ", ".join(names[:MAX_NAMES])
    return shown if len(names) <= MAX_NAMES else f"{shown} and {len(names) - MAX_NAMES} more"


def _shortfalls(demand: Demand, attempt: PartialPlacement, shape: int) -> list[dict[str, int]]:
    """Return the amount of each slot that agents lack for one more container of a shape, in addition to their packing.

    Duplicates are removed; an entry is empty if the limit of containers is the only obstacle.
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
    """Return the usage of a packing plus one more container, for each slot that this container requests."""
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
    """Return a sort key of how much is lacking for one container; an agent at its limit of containers comes last."""
    return not lack, sorted((lack[slot] / request[slot] for slot in lack), reverse=True), sorted(lack.items())


def _exceeds_online_cpus(agents: Sequence[AgentFacts], demand: Demand, remaining: Sequence[Member]) -> str:
    widest = max(demand.requests[member.shape].get("cpu", 0) for member in remaining)
    most = max(agent.online_cpu_count for agent in agents)
    if widest <= most:
        return ""
    return f"; one container requests {widest} cores and no agent has more than {most} online"
