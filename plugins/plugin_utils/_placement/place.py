# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Assigns a session's containers to agents: pure and deterministic.

A single agent is used if it can hold all containers. Otherwise containers of one shape are counted (``uniform``), which
is exact, and those of several shapes are packed (``mixed``), on the agents of the domains that ``topology`` chooses.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import Any

from ...module_utils._model.facts import AgentFacts
from ...module_utils._model.plan import SessionPlan
from . import mixed, uniform
from .demand import Demand, Group, Placement
from .mixed import Assignment, Packing
from .topology import Domains, Topology
from .uniform import Order
from .unschedulable import PartialPlacement, Unschedulable, explain


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
    or ``roundrobin`` (as few agents as ``concentrated``, with the oldest latest session first); of several shapes the
    numbers are as small or large as is found. Ties are broken by the fewest free accelerators, then cores, then memory;
    for ``dispersed`` by the most. A session that is not on one agent has domains as its ``topology`` asks. A refusal
    names sessions of ``plans``, by id, that would have to end; without these it takes a fraction of the time.
    """
    return place_in_first(
        [agents], groups, single_node=single_node, selection=selection, plans=plans, topology=topology
    )


def place_in_first(
    pools: Sequence[Sequence[AgentFacts]],
    groups: Sequence[Group],
    *,
    single_node: bool,
    selection: str,
    plans: Mapping[str, SessionPlan] | None = None,
    topology: Topology | None = None,
) -> Placement | Unschedulable:
    """Return the placement in the first pool of agents that has one, as :func:`place` does; there is at least one pool.

    If none has, return the refusal of the pool that is closest to a placement: with the fewest unplaced containers,
    then with sessions that make room when they end, then the last. What it says to be proven is so of all pools.
    """
    demand = Demand.of(groups)
    order = {"concentrated": _best_fit, "dispersed": _worst_fit, "roundrobin": _least_recently_used}[selection]
    dispersed = selection == "dispersed" and not single_node
    attempts: list[tuple[_Decision, PartialPlacement]] = []
    for agents in pools:
        decision = _Decision(agents, demand, order, single_node, dispersed)
        placed = decision.place(topology)
        if isinstance(placed, Placement):
            return placed
        attempts.append((decision, placed))
    unplaced = min(attempt.unplaced for _decision, attempt in attempts)
    most = max(sum(attempt.placed) for _decision, attempt in attempts)
    refusals: list[Unschedulable] = []
    for decision, attempt in reversed(attempts):
        if sum(attempt.placed) == most:
            refusals.append(decision.refuse(dataclasses.replace(attempt, unplaced=unplaced), plans))
            if refusals[-1].blocking_sessions:
                return refusals[-1]
    return refusals[0]


@dataclasses.dataclass(frozen=True)
class _Decision:
    """What is placed, and how."""

    agents: Sequence[AgentFacts]
    demand: Demand
    order: Order
    single_node: bool
    dispersed: bool

    def place(self, topology: Topology | None) -> Placement | PartialPlacement:
        """Return the placement, or as many containers as fit: on one agent if it can hold all, unless ``dispersed``."""
        holders = [] if self.dispersed else self.demand.total.fitting_agents(self.agents)
        if holders:
            return Placement((min(holders, key=self.order).name,) * self.demand.size)
        if topology is None or self.single_node or not self.agents:
            return self.attempt(self.agents)
        return self.spread(topology) if topology.spread else self.pack(topology)

    def attempt(self, agents: Sequence[AgentFacts]) -> Placement | PartialPlacement:
        """Return the placement on some of these agents, wherever they are, or of as many containers as fit."""
        demand = self.demand
        if not agents:
            return PartialPlacement([], (0,) * len(demand.counts), [], [], demand.size)
        if len(demand.counts) == 1:
            return self._attempt_one_shape(agents)
        if self.single_node:
            packing, best = mixed.most_on_one_agent(agents, demand)
            return PartialPlacement(agents, packing, best, [packing] * len(best), 1)
        spread = self._spread_evenly(agents, self.order) if self.dispersed else None
        if spread:
            return spread
        packings, unplaced = mixed.concentrate(agents, demand, self.order)
        placed = _sum(packings, demand)
        if placed == demand.counts:
            return Placement(_assign_hosts(demand, packings))
        taken, nothing = {agent.name: packing for agent, packing in packings}, (0,) * len(placed)
        held = [taken.get(agent.name, nothing) for agent in agents]
        return PartialPlacement(agents, placed, agents, held, unplaced)

    def _attempt_one_shape(self, agents: Sequence[AgentFacts]) -> Placement | PartialPlacement:
        demand = self.demand
        rooms = demand.per_shape[0].capacities(agents)
        room = max(rooms) if self.single_node else sum(rooms)
        if room >= demand.size:
            choose = uniform.disperse if self.dispersed else uniform.concentrate
            return self._placed_alike(choose(agents, rooms, demand.size, self.order))
        best = [at for at, some in enumerate(rooms) if not self.single_node or some == room]
        return PartialPlacement(
            agents, (room,), [agents[at] for at in best], [(rooms[at],) for at in best], demand.size - room
        )

    def _spread_evenly(self, agents: Sequence[AgentFacts], order: Order) -> Placement | None:
        """Return the placement of all containers on as many of these agents as it finds."""
        demand = self.demand
        if len(demand.counts) > 1:
            packings = mixed.disperse(agents, demand, order)
            return Placement(_assign_hosts(demand, packings)) if _sum(packings, demand) == demand.counts else None
        rooms = demand.per_shape[0].capacities(agents)
        held = sum(rooms) >= demand.size
        return self._placed_alike(uniform.disperse(agents, rooms, demand.size, order)) if held else None

    def _placed_alike(self, counts: uniform.Assignment) -> Placement:
        return Placement(_assign_hosts(self.demand, [(agent, (count,)) for agent, count in counts]))

    def pack(self, topology: Topology) -> Placement | PartialPlacement:
        """Return the placement in few domains, from the outside in, or in one."""
        domains = Domains(self.agents, self.demand, self.order, topology)
        if topology.within:
            return self._within(domains, topology)
        return domains.few(self._hold, as_many=self.dispersed) or self.attempt(self.agents)

    def _within(self, domains: Domains, topology: Topology) -> Placement | PartialPlacement:
        """Return the placement in one domain, or else in the one where most containers were found to fit."""
        size, ranked = self.demand.size, domains.ranked(topology.levels)
        placements: list[Placement] = []
        partial: list[PartialPlacement] = []
        for bound, domain in ranked:
            if bound and (placements or any(sum(each.placed) >= size - bound for each in partial)):
                break
            attempt = self.attempt(domain)
            if isinstance(attempt, Placement):
                placements.append(attempt)
            else:
                partial.append(dataclasses.replace(attempt, domain="/".join(topology.path(domain[0]))))
        if placements:
            return min(placements, key=functools.partial(domains.cost, as_many=self.dispersed))
        closest = max(partial, key=lambda each: sum(each.placed))
        return dataclasses.replace(closest, unplaced=ranked[0][0])

    def spread(self, topology: Topology) -> Placement | PartialPlacement:
        """Return the placement in many domains, from the outside in."""
        domains = Domains(self.agents, self.demand, self.order, topology)
        for agents in domains.many(as_many=self.dispersed):
            listed = {agent.name: position for position, agent in enumerate(agents)}
            found = self._spread_evenly(agents, functools.partial(_as_listed, listed))
            if found:
                return found
        return self.attempt(self.agents)

    def _hold(self, agents: Sequence[AgentFacts]) -> Placement | None:
        attempt = self.attempt(agents)
        return attempt if isinstance(attempt, Placement) else None

    def refuse(self, attempt: PartialPlacement, plans: Mapping[str, SessionPlan] | None) -> Unschedulable:
        """Return why there is no placement, with the sessions that would have to end if ``plans`` are given."""
        return explain(attempt, self.demand, single_node=self.single_node, plans=plans, fits=self._fits)

    def _fits(self, agents: Sequence[AgentFacts]) -> bool:
        return bool(self.demand.total.fitting_agents(agents)) or self._hold(agents) is not None


def _sum(packings: Assignment, demand: Demand) -> Packing:
    return tuple(map(sum, zip([0] * len(demand.counts), *(packing for _agent, packing in packings), strict=True)))


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


def _as_listed(listed: Mapping[str, int], agent: AgentFacts) -> tuple[int]:
    return (listed[agent.name],)


def _leftover(agent: AgentFacts) -> tuple[int, int, int]:
    """Return the free accelerators, cores and memory now: the less, the better the fit."""
    free = agent.free
    cpu, mem = free.get("cpu", 0), free.get("mem", 0)
    return sum(free.values()) - cpu - mem, cpu, mem
