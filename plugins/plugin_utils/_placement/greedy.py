# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Greedy placement of containers of several shapes: quick and within capacity, but not always optimal."""

from __future__ import annotations

import heapq
import math
import operator
from collections import Counter
from collections.abc import Callable, Sequence

from ...module_utils._model.facts import AgentFacts
from .agent_classes import AgentClasses, CapacityVector, first_in_order
from .packing import Budget, Packing, largest_packing, subtract
from .uniform import Order

# How many containers of each shape each agent gets, in rank order.
Assignment = list[tuple[AgentFacts, Packing]]

# The packing of each chosen agent.
Choice = list[tuple[CapacityVector, Packing]]

# How many elementary steps are spent on comparing packings of an agent, and as many on comparing agents.
STEPS = 200_000

# How many on containers that are spread.
SPREAD_STEPS = 1_000_000


# How the fractions that a container takes of the slots, after that of the containers themselves, make its share.
Weigh = Callable[[Sequence[float]], float]


class Greedy:
    """Chooses by shares: that of a container is, by default, the largest fraction that it takes of any slot."""

    def __init__(self, classes: AgentClasses, weigh: Weigh = max) -> None:
        self._field, self._scale, self._sizes = classes, classes.scale, classes.sizes
        asks = self._scale.asks
        self._weigh = weigh
        self._free = [
            sum(measure[slot] * many for measure, many in self._sizes.items()) for slot in range(len(asks[0]))
        ]
        self._shares = [weigh([part / (many or 1) for part, many in zip(ask, self._free, strict=True)]) for ask in asks]
        self._hardest = sorted(range(len(asks)), key=lambda shape: -self._shares[shape])
        # The slots that a shape requests; the first one is the container itself.
        self._parts = [[(slot, part) for slot, part in enumerate(ask) if part] for ask in asks]
        self._least = [min(parts) for parts in zip(*asks, strict=True)]
        self._comparisons, self._updates = Budget(STEPS), Budget(STEPS)

    def concentrate(self, counts: Packing) -> Choice:
        """Return the packings of agents, choosing each time the one with the largest share; incomplete if all are full.

        The share of an agent is computed again only when it comes first, as the shares of the others can only shrink;
        if that takes too many steps, the agents are taken in the order of what is known by then.
        """
        remaining, free = list(counts), dict(self._sizes)
        chosen: Choice = []
        queue = sorted((-self._most_share(measure), measure) for measure in free)
        while queue and any(remaining):
            previous_cost, measure = queue[0]
            packing = self.packing(measure, remaining)
            cost = -self._share(packing)
            if not cost or not free[measure]:
                heapq.heappop(queue)
            elif cost > previous_cost and self._updates.take(5 * len(counts)):
                heapq.heapreplace(queue, (cost, measure))
            else:
                free[measure] -= 1
                chosen.append((measure, packing))
                remaining = subtract(remaining, packing, 1)
        return chosen

    def packing(self, measure: CapacityVector, counts: Sequence[int]) -> Packing:
        """Return the packing of an agent within these counts, filled with one shape first and then with the hardest."""
        shapes = [shape for shape in self._hardest if counts[shape] and self._scale.widths[shape] <= measure[-1]]
        best = self._filled(measure, counts, shapes)
        share = self._share(best)
        for shape in shapes[1:]:
            if not self._comparisons.take(5 * len(shapes)):
                break
            packing = self._filled(measure, counts, [shape, *shapes])
            best, share = max((best, share), (packing, self._share(packing)), key=lambda one: (one[1], one[0]))
        return best

    def most(self, measure: CapacityVector, counts: Packing) -> Packing:
        """Return the packing with most containers, filled with the hardest first or with the smallest of any slot."""
        shapes = [shape for shape in self._hardest if self._fits(measure, shape, measure[-1])]
        packings = [self._filled(measure, counts, shapes)]
        for slot in range(1, len(self._least)):
            if self._comparisons.take(5 * len(shapes)):
                shapes.sort(key=lambda shape: self._scale.asks[shape][slot])
                packings.append(self._filled(measure, counts, shapes))
        return largest_packing(packings)

    def _filled(self, measure: CapacityVector, counts: Sequence[int], shapes: Sequence[int]) -> Packing:
        """Return the packing of an agent that is filled with these shapes one after the other."""
        packing, remaining = [0] * len(counts), list(measure)
        for shape in shapes:
            many = counts[shape] - packing[shape]
            for slot, part in self._parts[shape]:
                if remaining[slot] < part:
                    break
                many = min(many, remaining[slot] // part)
            else:
                packing[shape] += many
                for slot, part in self._parts[shape]:
                    remaining[slot] -= part * many
                if any(map(int.__lt__, remaining, self._least)):
                    break
        return tuple(packing)

    def bind_agents(self, chosen: Choice, order: Order) -> Assignment:
        """Return the agents of such a choice: of agents with equal vectors, the first in the order."""
        often = Counter(measure for measure, _packing in chosen)
        agents = {
            measure: iter(first_in_order(self._field.agents[measure], many, order)) for measure, many in often.items()
        }
        return [(next(agents[measure])[1], packing) for measure, packing in chosen]

    def disperse(self, counts: Packing, order: Order) -> Assignment:
        """Return containers on many agents: shapes that fit on the fewest agents first, always on the emptiest agent.

        That is the one with the fewest containers, then the first in the order. Raises :class:`BudgetExceededError`.
        """
        budget = Budget(SPREAD_STEPS)
        budget.spend(6 * len(counts) * len(self._sizes))
        able = [
            sum(many for measure, many in self._sizes.items() if self._fits(measure, shape, measure[-1]))
            for shape in range(len(counts))
        ]
        agents = sorted(
            (key, agent, measure)
            for measure, members in self._field.agents.items()
            if self._fits_any(measure)
            for key, agent in first_in_order(members, sum(counts), order)
        )
        remaining = [list(measure) for _key, _agent, measure in agents]
        packings = [[0] * len(counts) for _agent in agents]
        emptiest = [(0, at) for at in range(len(agents))]
        for shape in sorted(range(len(counts)), key=able.__getitem__):
            again: list[tuple[int, int, int]] = []
            missing, following = counts[shape], 0
            while missing and (again or following < len(emptiest)):
                if again and (following == len(emptiest) or again[0] < (*emptiest[following], 0)):
                    _many, at, place = heapq.heappop(again)
                else:
                    budget.spend(8)
                    place, following = following, following + 1
                    _many, at = emptiest[place]
                    if not self._fits(remaining[at], shape, agents[at][2][-1]):
                        continue
                budget.spend(30)
                missing -= 1
                packings[at][shape] += 1
                remaining[at] = subtract(remaining[at], self._scale.asks[shape], 1)
                emptiest[place] = (emptiest[place][0] + 1, at)
                if self._fits(remaining[at], shape, agents[at][2][-1]):
                    heapq.heappush(again, (*emptiest[place], place))
            budget.spend(len(emptiest))
            emptiest.sort()
        return [
            (agent, tuple(packing))
            for (_key, agent, _measure), packing in zip(agents, packings, strict=True)
            if any(packing)
        ]

    def usable_agent_count(self) -> int:
        """Return how many agents can hold any one of these containers."""
        return sum(many for measure, many in self._sizes.items() if self._fits_any(measure))

    def _fits_any(self, measure: CapacityVector) -> bool:
        if any(map(int.__lt__, measure, self._least)):
            return False
        return any(self._fits(measure, shape, measure[-1]) for shape in range(len(self._parts)))

    def _fits(self, free: Sequence[int], shape: int, cores: int) -> bool:
        if self._scale.widths[shape] > cores:
            return False
        return all(free[slot] >= part for slot, part in self._parts[shape])

    def _most_share(self, measure: CapacityVector) -> float:
        """Return an upper bound of the share of any packing of such an agent, if one follows from its slots."""
        if self._weigh not in (max, sum):
            return math.inf
        # Rounded up: the share is a sum of rounded fractions.
        return 1.001 * sum(part / (many or 1) for part, many in zip(measure, self._free, strict=False))

    def _share(self, packing: Packing) -> float:
        return sum(map(operator.mul, self._shares, packing))
