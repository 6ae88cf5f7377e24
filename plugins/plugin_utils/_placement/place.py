# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Assigns a session's containers to agents: pure, exact and deterministic.

A single agent is used if it can hold all containers. Otherwise containers of one shape are counted (``uniform``), and
those of several shapes are packed (``heterogeneous``), on the agents of the domains that ``topology`` chooses.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ...module_utils._model.facts import AgentFacts
from ...module_utils._model.plan import SessionPlan
from . import heterogeneous, uniform
from .agent_classes import AgentClasses
from .bounds import Bounds
from .demand import Demand, Group
from .greedy import Assignment
from .packing import BudgetExceededError, sum_packings
from .topology import Topology, cheapest_agents, domains_first, narrow, roomiest_domain
from .uniform import Order
from .unschedulable import PartialPlacement, Unschedulable, explain

# How many pools of agents are tried before the search for the domains of a session.
MAX_POOLS = 8


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
    plans: Mapping[str, SessionPlan] | None = None,
    topology: Topology | None = None,
) -> Placement | Unschedulable:
    """Return the agent of each container of the groups, which are in rank order: all of them or none.

    ``agents`` are the eligible ones. ``selection`` is ``concentrated`` (one agent if it can hold all containers, else
    the fewest), ``dispersed`` (a multi-node session on as many agents as possible, a single-node one on the emptiest)
    or ``roundrobin`` (as few agents as ``concentrated``, with the oldest latest session first). Ties are broken by the
    fewest free accelerators, then cores, then memory; for ``dispersed`` by the most. A session that is not on one agent
    has the domains that its ``topology`` asks for, and of these the fewest or most agents. A refusal names sessions of
    ``plans``, by id, that would have to end; without these it takes a fraction of the time.
    """
    demand = Demand.of(groups)
    order = {"concentrated": _best_fit, "dispersed": _worst_fit, "roundrobin": _least_recently_used}[selection]
    dispersed = selection == "dispersed" and not single_node
    if not dispersed:
        holders = demand.total.fitting_agents(agents)
        if holders:
            return Placement((min(holders, key=order).name,) * demand.size, 1)
    ordinary = functools.partial(
        _place, demand=demand, order=order, single_node=single_node, dispersed=dispersed, plans=plans
    )
    if topology is None or single_node or not agents:
        return ordinary(agents)
    decision = _ByTopology(agents, demand, order, topology, dispersed, ordinary)
    return decision.spread() if topology.spread else decision.pack()


def _place(
    agents: Sequence[AgentFacts],
    demand: Demand,
    order: Order,
    *,
    single_node: bool,
    dispersed: bool,
    plans: Mapping[str, SessionPlan] | None,
) -> Placement | Unschedulable:
    """Return the placement wherever the agents are; unless ``dispersed``, none of them can hold all containers."""
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
    return explain(agents, demand, attempt, single_node=single_node, plans=plans)


@dataclasses.dataclass(frozen=True)
class _ByTopology:
    """A decision by topology; ``ordinary`` places a session on some agents, wherever these are."""

    agents: Sequence[AgentFacts]
    demand: Demand
    order: Order
    topology: Topology
    dispersed: bool
    ordinary: Callable[..., Placement | Unschedulable]

    def spread(self) -> Placement | Unschedulable:
        """Return the placement in as many domains as possible, from the outside in."""
        try:
            found = self._search(None)
            if found:
                return Placement(_assign_hosts(self.demand, found), len(found))
        except BudgetExceededError:
            shapes = self.demand.per_shape
            able = [agent for agent in self.agents if any(bundle.fitting_agents([agent]) for bundle in shapes)]
            order = domains_first(able, self.order, self.topology)
            placed = self.ordinary(able, order=order, dispersed=True, plans=None)
            if isinstance(placed, Placement):
                return self._bounded(placed)
        return self.ordinary(self.agents)

    def pack(self) -> Placement | Unschedulable:
        """Return the placement in as few domains as possible, from the outside in, or in one.

        The search is for the domains only: of their agents, those are taken that would be without any others.
        """
        known, most = self._try_pools()
        try:
            found = self._search(most)
        except BudgetExceededError:
            if known:
                return self._bounded(known)
            found = []
        if found:
            domains = {self.topology.path(agent) for agent, _packing in found}
            agents = [agent for agent in self.agents if self.topology.path(agent) in domains]
            placed = self.ordinary(agents, plans=None)
            if isinstance(placed, Placement) and len(placed.agents) == len(found):
                return dataclasses.replace(placed, lower_bound=len(found))
            return Placement(_assign_hosts(self.demand, found), len(found))
        return self._refuse() if self.topology.within else self.ordinary(self.agents)

    def _try_pools(self) -> tuple[Placement | None, int | None]:
        """Return a placement that is found without a search, and the cost that none needs to exceed, if it is known."""
        pools = narrow(self.agents, self.demand, self.order, self.topology)[:MAX_POOLS]
        for placed in (self.ordinary(pool, plans=None) for pool in pools):
            if isinstance(placed, Placement):
                used = {*placed.agents}
                agents = [agent for agent in self.agents if agent.name in used]
                return placed, self.topology.cost(agents, as_many=self.dispersed)
        one_domain = self.topology.step(0, as_many=False) + self.demand.size
        return None, one_domain if self.topology.within else None

    def _search(self, most: int | None) -> Assignment:
        classes = AgentClasses(self.agents, self.demand)
        return cheapest_agents(
            classes, self.demand.counts, self.order, self.topology, as_many=self.dispersed, most=most
        )

    def _bounded(self, placed: Placement) -> Placement:
        """Return a placement that may not be the best, with a lower bound of its agents."""
        bounds = Bounds(AgentClasses(self.agents, self.demand), self.demand.counts)
        return dataclasses.replace(placed, lower_bound=bounds.fewest_agents())

    def _refuse(self) -> Placement | Unschedulable:
        """Return why no domain can hold the session, from the one that can hold most of it."""
        domain = roomiest_domain(self.agents, self.demand, self.order, self.topology)
        placed = self.ordinary(domain)
        if isinstance(placed, Placement):
            return placed
        where = "/".join(self.topology.path(domain[0]))
        return dataclasses.replace(placed, reason=f"{placed.reason}; this is in {where}, where most of them fit")


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
