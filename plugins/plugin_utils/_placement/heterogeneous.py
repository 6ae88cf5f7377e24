# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Placement of containers of several shapes, exact unless that takes too long.

Agents with equal frontiers are interchangeable. Of those only the first ones in the order matter, as many as can be
used at all: any other one can be exchanged for one of them that is not used (exchange argument).
"""

from __future__ import annotations

import dataclasses

from ...module_utils._model.facts import AgentFacts
from .agent_classes import AgentClasses, OrderedAgent, first_in_order
from .greedy import Assignment, Greedy
from .packing import (
    Budget,
    BudgetExceededError,
    Frontier,
    Packing,
    ReachableCounts,
    distribute,
    largest_packing,
    lexicographically_first,
    prune_dominated,
    reachability_table,
    reachable_totals,
    sum_packings,
)
from .uniform import Order

# How many elementary steps an exact search may take, about a second; beyond that, the greedy choice is used.
STEPS = 2_500_000


@dataclasses.dataclass(frozen=True)
class MixedPlacement:
    """How many containers of each shape each agent gets, in rank order: all, or as many as fit.

    ``lower_bound`` is one of the number of agents, and equals it if the search was ``exact``.
    """

    packings: Assignment
    lower_bound: int
    exact: bool


def place_mixed(classes: AgentClasses, counts: Packing, order: Order, *, as_many: bool) -> MixedPlacement:
    """Return containers on the fewest agents, of all such sets the first in ``order``; or on ``as_many`` as possible.

    If not all of them fit, it is as many as possible, then as many as possible of the first shapes.
    """
    greedy = Greedy(classes)
    disperse = greedy.disperse(counts, order) if as_many else []
    spread_all = sum_packings(disperse, counts) == counts
    if spread_all and len(disperse) == min(sum(counts), greedy.usable_agent_count(counts)):
        return MixedPlacement(disperse, len(disperse), True)
    try:
        return _search_exact(classes, greedy, counts, order, Budget(STEPS), as_many=as_many)
    except BudgetExceededError:
        if spread_all:
            return MixedPlacement(disperse, len(disperse), False)
        return MixedPlacement(greedy.bind_agents(greedy.concentrate(counts), order), greedy.lower_bound(counts), False)


def most_on_one_agent(classes: AgentClasses, counts: Packing) -> tuple[Packing, list[AgentFacts]]:
    """Return the largest packing of one agent, ties broken by the first shapes, and all agents that can hold it."""
    budget = Budget(STEPS)
    try:
        best = {measure: largest_packing(classes.scale.frontier(measure, counts, budget)) for measure in classes.agents}
    except BudgetExceededError:
        greedy = Greedy(classes)
        best = {measure: greedy.packing(measure, counts) for measure in classes.agents}
    packing = largest_packing(best.values())
    return packing, [
        agent for measure, candidate in best.items() if candidate == packing for agent in classes.agents[measure]
    ]


def _search_exact(
    classes: AgentClasses, greedy: Greedy, counts: Packing, order: Order, budget: Budget, *, as_many: bool
) -> MixedPlacement:
    agents: dict[Frontier, list[AgentFacts]] = {}
    for measure, members in classes.agents.items():
        packings = classes.scale.frontier(measure, counts, budget)
        if any(map(any, packings)):
            agents.setdefault(packings, []).extend(members)
    sizes = {packings: len(members) for packings, members in agents.items()}
    totals = ReachableCounts(counts, budget, none_empty=as_many)
    levels = min(sum(counts), sum(sizes.values()))
    rough = greedy.concentrate(counts)
    if sum_packings(rough, counts) != counts:
        reached = reachable_totals(totals, prune_dominated(totals, sizes, levels))
        if not reached & totals.everything:
            fewer = largest_packing(totals.iter_totals(reached))
            return _search_exact(classes, greedy, fewer, _by_name, budget, as_many=False)
    elif not as_many:
        levels = len(rough)
    candidates = {
        packings: first_in_order(agents[packings], often, order)
        for packings, often in prune_dominated(totals, sizes, levels)
    }
    search = _Search(totals, candidates, levels)
    if as_many:
        return search.filling(max(search.possible), evenly=True)
    size = min(search.possible)
    placement = search.filling(size, evenly=False)
    # Any set of that size consists of one of these, and others that can hold the rest.
    rest = search.table[0][size - 1]
    useful = [packings for packings in agents if totals.complements(totals.add_agent(totals.nothing, packings), rest)]
    try:
        every = {packings: first_in_order(agents[packings], size, order) for packings in useful}
        return _Search(totals, every, size).filling(size, evenly=False)
    except BudgetExceededError:
        return placement


class _Search:
    """A search through ``agents``, which are given by frontier, each after its key in the order."""

    def __init__(self, totals: ReachableCounts, agents: dict[Frontier, list[OrderedAgent]], levels: int) -> None:
        self._totals = totals
        self._agents = sorted((*keyed, packings) for packings, listed in agents.items() for keyed in listed)
        self._frontiers = [packings for _key, _agent, packings in self._agents]
        self.table = reachability_table(totals, self._frontiers, levels)

    @property
    def possible(self) -> list[int]:
        """The numbers of agents that can hold everything, none of them empty."""
        return [size for size, reached in enumerate(self.table[0]) if reached & self._totals.everything]

    def filling(self, size: int, *, evenly: bool) -> MixedPlacement:
        """Return the first ``size`` agents that hold everything, filled; unless ``evenly``, the largest first."""
        positions = lexicographically_first(self._totals, self._frontiers, self.table, size)
        chosen = [self._agents[position] for position in positions]
        if not evenly:
            chosen.sort(key=lambda choice: (-sum(largest_packing(choice[2])), choice[1].name))
        filled = distribute(self._totals, [packings for _key, _agent, packings in chosen], evenly=evenly)
        return MixedPlacement(
            [(choice[1], packing) for choice, packing in zip(chosen, filled, strict=True)], size, True
        )


def _by_name(agent: AgentFacts) -> tuple[str]:
    """Return a cheap sort key, for containers that are only counted."""
    return (agent.name,)
