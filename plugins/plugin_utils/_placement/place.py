# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Assigns a session's containers to agents: pure, exact and deterministic.

A single agent is used if it can hold all containers. Otherwise containers of one shape are counted (``uniform``), and
those of several shapes are packed (``heterogeneous``).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from ...module_utils._model.facts import AgentFacts
from . import heterogeneous, uniform
from .agent_classes import AgentClasses
from .demand import Demand, Group
from .greedy import Assignment
from .packing import sum_packings
from .unschedulable import PartialPlacement, Unschedulable, explain


@dataclasses.dataclass(frozen=True)
class Placement:
    """The agent of each container, in rank order.

    ``lower_bound`` is a proven lower bound of the number of agents that the selection minimizes or maximizes: it equals
    their number if the search was exact.
    """

    hosts: tuple[str, ...]
    lower_bound: int

    @property
    def agents(self) -> tuple[str, ...]:
        """The agents that take part, in rank order."""
        return tuple(dict.fromkeys(self.hosts))


def place(
    agents: Sequence[AgentFacts],
    groups: Sequence[Group],
    *,
    single_node: bool,
    selection: str,
    name_blockers: bool = True,
) -> Placement | Unschedulable:
    """Return the agent of each container of the groups, which are in rank order: all of them or none.

    ``agents`` are the eligible ones. ``selection`` is ``concentrated`` (one agent if it can hold all containers, else
    the fewest), ``dispersed`` (a multi-node session on as many agents as possible, a single-node one on the emptiest)
    or ``roundrobin`` (as few agents as ``concentrated``, with the oldest latest session first). Ties are broken by the
    fewest free accelerators, then cores, then memory; for ``dispersed`` by the most.
    """
    demand = Demand.of(groups)
    order = {"concentrated": _best_fit, "dispersed": _worst_fit, "roundrobin": _least_recently_used}[selection]
    dispersed = selection == "dispersed" and not single_node
    if not dispersed:
        holders = demand.total.fitting_agents(agents)
        if holders:
            return Placement((min(holders, key=order).name,) * demand.size, 1)
    if not agents:
        attempt = PartialPlacement((0,) * len(demand.counts), [], [], demand.size)
    elif len(demand.counts) == 1:
        rooms = demand.per_shape[0].capacities(agents)
        room = max(rooms) if single_node else sum(rooms)
        if room >= demand.size:
            counts = (uniform.disperse if dispersed else uniform.concentrate)(agents, rooms, demand.size, order)
            return Placement(_assign_hosts(demand, [(agent, (count,)) for agent, count in counts]), len(counts))
        best = (
            [agent for agent, capacity in zip(agents, rooms, strict=True) if capacity == room]
            if single_node
            else agents
        )
        packings = {capacity: (capacity,) for capacity in set(rooms)}
        attempt = PartialPlacement(
            (room,),
            best,
            [packings[room]] * len(best) if single_node else [packings[capacity] for capacity in rooms],
            demand.size - room,
        )
    elif single_node:
        placed, best, unplaced = heterogeneous.most_on_one_agent(AgentClasses(agents, demand), demand.counts)
        attempt = PartialPlacement(placed, best, [placed] * len(best), unplaced)
    else:
        filling = heterogeneous.place_mixed(AgentClasses(agents, demand), demand.counts, order, as_many=dispersed)
        placed = sum_packings(filling.packings, demand.counts)
        if placed == demand.counts:
            return Placement(_assign_hosts(demand, filling.packings), filling.lower_bound)
        taken = {agent.name: packing for agent, packing in filling.packings}
        nothing = (0,) * len(placed)
        attempt = PartialPlacement(
            placed, agents, [taken.get(agent.name, nothing) for agent in agents], filling.unplaced
        )
    return explain(agents, demand, attempt, single_node=single_node, name_blockers=name_blockers)


def _assign_hosts(demand: Demand, packings: Assignment) -> tuple[str, ...]:
    """Return the agent of each container: in rank order per shape, starting with the agent that holds main1."""
    main = demand.members[0].shape
    position = next(position for position, (_agent, packing) in enumerate(packings) if packing[main])
    ordered = [packings[position], *packings[:position], *packings[position + 1 :]]
    names = [
        iter([agent.name for agent, packing in ordered for _container in range(packing[shape])])
        for shape in range(len(demand.counts))
    ]
    return tuple(next(names[member.shape]) for member in demand.members)


def _best_fit(agent: AgentFacts) -> tuple[Any, ...]:
    return (*_leftover(agent), agent.name)


def _worst_fit(agent: AgentFacts) -> tuple[Any, ...]:
    accelerators, cpu, mem = _leftover(agent)
    return -accelerators, -cpu, -mem, agent.name


def _least_recently_used(agent: AgentFacts) -> tuple[Any, ...]:
    return (agent.latest_session, *_leftover(agent), agent.name)


def _leftover(agent: AgentFacts) -> tuple[int, int, int]:
    """Return the free accelerators, cores and memory now: the less, the better the fit."""
    free = agent.free
    cpu, mem = free.get("cpu", 0), free.get("mem", 0)
    return sum(free.values()) - cpu - mem, cpu, mem
