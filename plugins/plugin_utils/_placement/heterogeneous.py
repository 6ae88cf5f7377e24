# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Placement of containers of several shapes, exact unless that takes too long.

Agents with equal frontiers are interchangeable. Of those only the first ones in the order matter, as many as can be
used at all: any other one can be exchanged for one of them that is not used (exchange argument).
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import operator
from collections.abc import Iterable, Sequence

from ...module_utils._model.facts import AgentFacts
from .agent_classes import AgentClasses, CapacityVector, OrderedAgent, first_in_order
from .bounds import Bounds
from .greedy import STEPS as GREEDY_STEPS
from .greedy import Assignment, Choice, Greedy, Weigh
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

# How many elementary steps an exact search may take, about a fifth of a second; beyond, the greedy choice is used.
STEPS = 2_000_000


@dataclasses.dataclass(frozen=True)
class MixedPlacement:
    """How many containers of each shape each agent gets, in rank order: all, or as many as were found to fit.

    ``lower_bound`` is a proven one of the number of agents, and ``unplaced`` of the containers that do not fit.
    """

    packings: Assignment
    lower_bound: int
    unplaced: int


def place_mixed(classes: AgentClasses, counts: Packing, order: Order, *, as_many: bool) -> MixedPlacement:
    """Return containers on the fewest agents, of all such sets the first in ``order``; or on ``as_many`` as possible.

    If not all of them fit, it is as many as possible, then as many as possible of the first shapes. For the fewest
    agents, the containers must not all fit on one.
    """
    greedy = Greedy(classes)
    spread: Assignment = []
    if as_many:
        with contextlib.suppress(BudgetExceededError):
            spread = greedy.disperse(counts, order)
    spread_all = sum_packings(spread, counts) == counts
    if spread_all and len(spread) == min(sum(counts), greedy.usable_agent_count()):
        return MixedPlacement(spread, len(spread), 0)
    rough, budget = greedy.concentrate(counts), Budget(STEPS)
    try:
        return _search_exact(classes, greedy, counts, rough, order, budget, as_many=as_many)
    except BudgetExceededError:
        if spread_all:
            return MixedPlacement(spread, len(spread), 0)
        bounds = Bounds(classes, counts)
        fewest, unplaced = max(2, bounds.fewest_agents()), bounds.unplaced()
        best = _best_choice(classes, counts, rough, (unplaced, fewest), budget)
        return MixedPlacement(greedy.bind_agents(best, order), len(best) if as_many else fewest, unplaced)


def _best_choice(
    classes: AgentClasses, counts: Packing, first: Choice, bound: tuple[int, int], budget: Budget
) -> Choice:
    """Return the choice that leaves the fewest containers and then takes the fewest agents, of those by several shares.

    None does better than ``bound``.
    """
    slots = range(1, len(classes.scale.asks[0]))
    best, quality = first, (sum(counts) - sum(sum_packings(first, counts)), len(first))
    weights: list[Weigh] = [_smallest_first, sum, *(functools.partial(_mostly, slot) for slot in slots)]
    steps = 2 * GREEDY_STEPS + 5 * len(classes.agents) * len(counts)
    for weigh in weights:
        if quality <= bound or not budget.take(steps):
            break
        choice = Greedy(classes, weigh).concentrate(counts)
        reached = (sum(counts) - sum(sum_packings(choice, counts)), len(choice))
        if reached < quality:
            best, quality = choice, reached
    return best


def _smallest_first(parts: Sequence[float]) -> float:
    return 2 - max(parts)


def _mostly(slot: int, parts: Sequence[float]) -> float:
    return parts[slot] + max(parts) / 1000


def most_on_one_agent(classes: AgentClasses, counts: Packing) -> tuple[Packing, list[AgentFacts], int]:
    """Return the largest packing of one agent, and all agents that can hold it; ties are broken by the first shapes.

    The last value is a proven lower bound of the containers that do not fit.
    """
    budget = Budget(STEPS)
    measures = _undominated(classes.agents, budget)
    try:
        frontiers = (classes.scale.frontier(measure, counts, budget) for measure in measures)
        packing = largest_packing(largest_packing(packings) for packings in frontiers)
        unplaced = sum(counts) - sum(packing)
    except BudgetExceededError:
        greedy = Greedy(classes)
        packing = largest_packing(greedy.most(measure, counts) for measure in measures)
        unplaced = Bounds(classes, counts).unplaced_on_one()
    holders = [members for measure, members in classes.agents.items() if classes.scale.holds(measure, packing)]
    return packing, [agent for members in holders for agent in members], unplaced


def _undominated(measures: Iterable[CapacityVector], budget: Budget) -> list[CapacityVector]:
    """Return those that no other one exceeds in everything, or more if that takes too long."""
    kept: list[CapacityVector] = []
    for measure in sorted(measures, reverse=True):
        if not budget.take(5 * len(kept)) or not any(all(map(operator.ge, other, measure)) for other in kept):
            kept.append(measure)
    return kept


def _search_exact(
    classes: AgentClasses,
    greedy: Greedy,
    counts: Packing,
    rough: Choice,
    order: Order,
    budget: Budget,
    *,
    as_many: bool,
) -> MixedPlacement:
    totals = ReachableCounts(counts, budget, none_empty=as_many)
    agents: dict[Frontier, list[AgentFacts]] = {}
    for measure, members in classes.agents.items():
        packings = classes.scale.frontier(measure, counts, budget)
        if any(map(any, packings)):
            agents.setdefault(packings, []).extend(members)
    sizes = {packings: len(members) for packings, members in agents.items()}
    levels = min(sum(counts), sum(sizes.values()))
    if sum_packings(rough, counts) != counts:
        reached = reachable_totals(totals, prune_dominated(totals, sizes, levels))
        if not reached & totals.everything:
            return _place_fewer(classes, greedy, counts, largest_packing(totals.maximal(reached)), budget)
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
    try:
        useful = [packings for packings in agents if totals.add_agent(totals.nothing, packings) & rest]
        every = {packings: first_in_order(agents[packings], size, order) for packings in useful}
        return _Search(totals, every, size).filling(size, evenly=False)
    except BudgetExceededError:
        return placement


def _place_fewer(
    classes: AgentClasses, greedy: Greedy, counts: Packing, fewer: Packing, budget: Budget
) -> MixedPlacement:
    """Return a placement of those containers, the most that fit."""
    rough, unplaced = greedy.concentrate(fewer), sum(counts) - sum(fewer)
    try:
        found = _search_exact(classes, greedy, fewer, rough, _by_name, budget, as_many=False)
        return dataclasses.replace(found, unplaced=unplaced)
    except BudgetExceededError:
        return MixedPlacement(greedy.bind_agents(rough, _by_name), len(rough), unplaced)


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
        return [size for size, completed in enumerate(self.table[0]) if completed & self._totals.nothing]

    def filling(self, size: int, *, evenly: bool) -> MixedPlacement:
        """Return the first ``size`` agents that hold everything, filled; unless ``evenly``, the largest first."""
        positions = lexicographically_first(self._totals, self._frontiers, self.table, size)
        chosen = [self._agents[position] for position in positions]
        if not evenly:
            chosen.sort(key=lambda choice: (-sum(largest_packing(choice[2])), choice[1].name))
        filled = distribute(self._totals, [packings for _key, _agent, packings in chosen], evenly=evenly)
        return MixedPlacement([(choice[1], packing) for choice, packing in zip(chosen, filled, strict=True)], size, 0)


def _by_name(agent: AgentFacts) -> tuple[str]:
    """Return a cheap sort key, for containers that are only counted."""
    return (agent.name,)
