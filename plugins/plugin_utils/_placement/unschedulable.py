# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Explains why a session does not fit: the slots that are short, for which containers, and by how much."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from ...module_utils._model.facts import AgentFacts
from ...module_utils._model.plan import SessionPlan
from ...module_utils._model.quantity import format_slots
from .blockers import blocking_sessions
from .demand import Demand, Member
from .mixed import Packing

# How many containers or sessions a message names.
MAX_NAMES = 4


@dataclasses.dataclass(frozen=True)
class Unschedulable:
    """Why a session cannot start now, as one phrase and as figures.

    ``shortfall`` is the request of the unplaced containers for each slot that is short, ``unplaced`` their number by
    role. ``blocking_sessions`` are the names of sessions that free enough capacity when all of them end; empty if none
    do. ``proven``: there is no place on these agents, whatever placement is tried. ``outlook`` is a phrase about what
    may be expected, if anything is known; ``never``: there would be no place on empty agents either, which is proven.
    """

    reason: str
    shortfall: dict[str, int]
    unplaced: dict[str, int] = dataclasses.field(default_factory=dict)
    blocking_sessions: tuple[str, ...] = ()
    proven: bool = dataclasses.field(default=False, compare=False)
    outlook: str = ""
    never: bool = False


@dataclasses.dataclass(frozen=True)
class PartialPlacement:
    """As many containers as were found to fit: ``placed`` of each shape.

    ``among`` are the agents that they were placed on, ``agents`` those that would have to hold more, and ``packings``
    what each of these holds. ``unplaced`` is a proven lower bound of the containers that remain, wherever they may
    be. ``domain`` is the one of these agents, if all have to be in one: of those looked at, one with the fewest that
    remain.
    """

    among: Sequence[AgentFacts]
    placed: Packing
    agents: Sequence[AgentFacts]
    packings: Sequence[Packing]
    unplaced: int
    domain: str = ""


def explain(
    attempt: PartialPlacement,
    demand: Demand,
    *,
    single_node: bool,
    plans: Mapping[str, SessionPlan] | None,
    fits: Callable[[Sequence[AgentFacts]], bool],
) -> Unschedulable:
    """Return why the containers that an attempt leaves unplaced do not fit on its agents.

    It names sessions of ``plans``, by id, that would have to end, so that the demand ``fits`` on the agents; without
    these they are not looked for.
    """
    agents = attempt.among
    remaining = demand.unplaced(attempt.placed)
    unplaced = dict(Counter(member.role for member in remaining))
    summary = _summary(len(remaining), attempt.unplaced, demand.size)
    if not agents:
        return Unschedulable(f"{summary}: no agent that may hold them is schedulable", {}, unplaced, proven=True)
    shortfall: Counter[str] = Counter()
    least = _least_left(demand, attempt)
    for shape, many in Counter(member.shape for member in remaining).items():
        request = demand.requests[shape]
        shortfall.update({slot: many * request[slot] for slot in _short_slots(request, least)})
    blocking = blocking_sessions(agents, demand, plans, single_node=single_node, fits=fits) if plans else ()
    names = f" ({join_names([member.hostname for member in remaining])})" if len(demand.counts) > 1 else ""
    where = "on one agent" if len(agents) == 1 or (single_node and demand.size > 1) else f"on {len(agents)} agents"
    cause = f"short of {format_slots(shortfall)}" if shortfall else "the limit of containers per agent is reached"
    reason = f"{summary}{names} {where}: {cause}{_exceeds_online_cpus(agents, demand, remaining)}"
    if blocking:
        reason += f"; it fits when these end: {join_names(blocking)}"
    if attempt.domain:
        proven = len(remaining) == attempt.unplaced < demand.size
        reason += f"; this is in {attempt.domain}{', where most of them fit' if proven else ''}"
    return Unschedulable(reason, dict(shortfall), unplaced, blocking, proven=attempt.unplaced > 0)


def join_names(names: Sequence[str]) -> str:
    """Return the first few names, and the number of the others, as text."""
    shown = ", ".join(names[:MAX_NAMES])
    return shown if len(names) <= MAX_NAMES else f"{shown} and {len(names) - MAX_NAMES} more"


def _summary(found: int, proven: int, size: int) -> str:
    """Return how many containers have no place: proven, or only found."""
    if found == proven or not proven:
        return f"no room {'' if proven else 'found '}for {found} of {size} containers"
    return f"no room for at least {proven} of {size} containers, found for all but {found}"


_Free = tuple[dict[str, int], int]
"""The free amount of each slot, and the most cores of one container."""


def _least_left(demand: Demand, attempt: PartialPlacement) -> _Free:
    """Return the least of each slot that a partial placement leaves free on agents that may hold more containers.

    If there are none, it is that of all.
    """
    slots = list(dict.fromkeys(slot for request in demand.requests for slot in request))
    used = {packing: _used(demand, packing) for packing in set(attempt.packings)}
    found: dict[bool, set[tuple[int, ...]]] = {True: set(), False: set()}
    # A refusal looks at all agents, of which many are alike.
    for agent, packing in set(zip([agent.headroom for agent in attempt.agents], attempt.packings, strict=True)):
        taken, limit = used[packing], agent.max_containers
        left = (*(agent.free.get(slot, 0) - taken[slot] for slot in slots), agent.online_cpu_count)
        found[bool(limit) and agent.containers + sum(packing) >= limit].add(left)
    *free, cores = map(min, zip(*(found[False] or found[True]), strict=True))
    return dict(zip(slots, free, strict=True)), cores


def _used(demand: Demand, packing: Packing) -> Counter[str]:
    used: Counter[str] = Counter()
    for request, count in zip(demand.requests, packing, strict=True):
        if count:
            used.update({slot: amount * count for slot, amount in request.items()})
    return used


def _short_slots(request: Mapping[str, int], left: _Free) -> list[str]:
    """Return the slots of which too little is left for one container."""
    free, cores = left
    return [slot for slot, amount in request.items() if free[slot] < amount or (slot == "cpu" and amount > cores)]


def _exceeds_online_cpus(agents: Sequence[AgentFacts], demand: Demand, remaining: Sequence[Member]) -> str:
    widest = max(demand.requests[member.shape].get("cpu", 0) for member in remaining)
    most = max({agent.online_cpu_count for agent in agents})
    if widest <= most:
        return ""
    return f"; one container requests {widest} cores and no agent has more than {most} online"
