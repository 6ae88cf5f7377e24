# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which agent holds which of a session's containers: pure, exact and deterministic.

One agent is taken where one can hold all. Otherwise containers that are alike are counted (``uniform``), and those of
several shapes are packed (``heterogeneous``).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from ...module_utils._model.facts import AgentFacts
from . import heterogeneous, uniform
from .agent_classes import Field
from .demand import Demand, Group
from .greedy import Packings
from .packing import together
from .unschedulable import Attempt, NoRoom, explain


@dataclasses.dataclass(frozen=True)
class Placement:
    """The agent of each container, in rank order.

    ``at_least`` is a lower bound, proven, of the number of agents that the selection aims at: it is their number
    wherever the search was exact.
    """

    hosts: tuple[str, ...]
    at_least: int

    @property
    def agents(self) -> tuple[str, ...]:
        """The agents that take part, in rank order."""
        return tuple(dict.fromkeys(self.hosts))


def place(
    agents: Sequence[AgentFacts], groups: Sequence[Group], *, single_node: bool, selection: str
) -> Placement | NoRoom:
    """Return where each container of the groups, which are in rank order, goes: all of them or none.

    ``agents`` are those that may be used at all. ``selection`` is ``concentrated`` (one agent where one holds all,
    else the fewest), ``dispersed`` (a multi-node session on as many agents as possible, a single-node one on the
    emptiest) or ``roundrobin`` (as few agents as ``concentrated``, those whose latest session is oldest). Of several
    agents that do, the one that keeps the least accelerators, then cores, then memory is taken, but the emptiest
    where the session is ``dispersed``.
    """
    demand = Demand.of(groups)
    order = {"concentrated": _tightest, "dispersed": _emptiest, "roundrobin": _oldest}[selection]
    dispersed = selection == "dispersed" and not single_node
    if not dispersed:
        holders = demand.whole.holders(agents)
        if holders:
            return Placement((min(holders, key=order).name,) * demand.size, 1)
    if not agents:
        attempt = Attempt((0,) * len(demand.counts), [], [], True)
    elif len(demand.counts) == 1:
        rooms = demand.ones[0].rooms(agents)
        room = max(rooms) if single_node else sum(rooms)
        if room >= demand.size:
            counts = (uniform.spread if dispersed else uniform.fewest)(agents, rooms, demand.size, order)
            return Placement(_hosts(demand, [(agent, (count,)) for agent, count in counts]), len(counts))
        best = [agent for agent, one in zip(agents, rooms, strict=True) if one == room] if single_node else agents
        held = {one: (one,) for one in set(rooms)}
        attempt = Attempt(
            (room,), best, [held[room]] * len(best) if single_node else [held[one] for one in rooms], True
        )
    elif single_node:
        placed, best = heterogeneous.most_on_one(Field(agents, demand), demand.counts)
        attempt = Attempt(placed, best, [placed] * len(best), True)
    else:
        filling = heterogeneous.hold(Field(agents, demand), demand.counts, order, as_many=dispersed)
        placed = together(filling.packings, demand.counts)
        if placed == demand.counts:
            return Placement(_hosts(demand, filling.packings), filling.at_least)
        taken = {agent.name: packing for agent, packing in filling.packings}
        nothing = (0,) * len(placed)
        attempt = Attempt(placed, agents, [taken.get(agent.name, nothing) for agent in agents], filling.exact)
    return explain(agents, demand, attempt, single_node=single_node)


def _hosts(demand: Demand, packings: Packings) -> tuple[str, ...]:
    """Return the agent of each container: those of a shape in rank order, the agent with the first of all first."""
    main = demand.members[0].shape
    position = next(position for position, (_agent, packing) in enumerate(packings) if packing[main])
    ordered = [packings[position], *packings[:position], *packings[position + 1 :]]
    names = [
        iter([agent.name for agent, packing in ordered for _one in range(packing[shape])])
        for shape in range(len(demand.counts))
    ]
    return tuple(next(names[member.shape]) for member in demand.members)


def _tightest(agent: AgentFacts) -> tuple[Any, ...]:
    return (*_leftover(agent), agent.name)


def _emptiest(agent: AgentFacts) -> tuple[Any, ...]:
    accelerators, cpu, mem = _leftover(agent)
    return -accelerators, -cpu, -mem, agent.name


def _oldest(agent: AgentFacts) -> tuple[Any, ...]:
    return (agent.latest_session, *_leftover(agent), agent.name)


def _leftover(agent: AgentFacts) -> tuple[int, int, int]:
    """Return what is free of accelerators, cpu and memory today: the less, the better the fit."""
    free = agent.free
    cpu, mem = free.get("cpu", 0), free.get("mem", 0)
    return sum(free.values()) - cpu - mem, cpu, mem
