# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Greedy placement of containers of several shapes: quick and within capacity, but not always optimal."""

from __future__ import annotations

import heapq
import math
from collections import Counter

from ...module_utils._model.facts import AgentFacts
from .agent_classes import AgentClasses, CapacityVector, first_in_order
from .packing import Packing, max_count, subtract
from .uniform import Order, fewest_reaching

# How many containers of each shape each agent gets, in rank order.
Assignment = list[tuple[AgentFacts, Packing]]


class Greedy:
    """Chooses by dominant shares: that of a container is the largest fraction that it takes of any slot."""

    def __init__(self, classes: AgentClasses) -> None:
        self._field, self._scale, self._sizes = classes, classes.scale, classes.sizes
        asks = self._scale.asks
        free = [sum(measure[slot] * many for measure, many in self._sizes.items()) for slot in range(len(asks[0]))]
        self._shares = [max(part / (capacity or 1) for part, capacity in zip(ask, free, strict=True)) for ask in asks]
        self._hardest = sorted(range(len(asks)), key=lambda shape: -self._shares[shape])

    def concentrate(self, counts: Packing) -> list[tuple[CapacityVector, Packing]]:
        """Return the packings of agents, choosing each time the one with the largest share; incomplete if all are full.

        The share of an agent is computed again only when it comes first, as the shares of the others can only shrink.
        """
        remaining, free = counts, dict(self._sizes)
        chosen: list[tuple[CapacityVector, Packing]] = []
        queue = [(-math.inf, measure) for measure in sorted(free)]
        while queue and any(remaining):
            previous_cost, measure = queue[0]
            packing = self.packing(measure, remaining)
            cost = -self._share(packing)
            if not cost or not free[measure]:
                heapq.heappop(queue)
            elif cost > previous_cost:
                heapq.heapreplace(queue, (cost, measure))
            else:
                free[measure] -= 1
                chosen.append((measure, packing))
                remaining = tuple(subtract(remaining, packing, 1))
        return chosen

    def packing(self, measure: CapacityVector, counts: Packing) -> Packing:
        """Return the packing of an agent within these counts, filled with one shape first and then with the hardest."""
        useful, asks = self._scale.usable_counts(measure, counts), self._scale.asks
        packings = []
        for shape in self._hardest:
            packing, remaining = [0] * len(counts), list(measure)
            for each in (shape, *self._hardest):
                many = max_count(remaining, asks[each], useful[each] - packing[each])
                packing[each] += many
                remaining = subtract(remaining, asks[each], many)
            packings.append(tuple(packing))
        return max(packings, key=lambda packing: (self._share(packing), packing))

    def bind_agents(self, chosen: list[tuple[CapacityVector, Packing]], order: Order) -> Assignment:
        """Return the agents of such a choice: of agents with equal vectors, the first in the order."""
        often = Counter(measure for measure, _packing in chosen)
        agents = {
            measure: iter(first_in_order(self._field.agents[measure], many, order)) for measure, many in often.items()
        }
        return [(next(agents[measure])[1], packing) for measure, packing in chosen]

    def disperse(self, counts: Packing, order: Order) -> Assignment:
        """Return containers on many agents: shapes that fit on the fewest agents first, always on the emptiest agent.

        That is the one with the fewest containers, then the first in the order.
        """
        shapes = range(len(counts))
        rooms = {measure: self._scale.capacities(measure, counts) for measure in self._sizes}
        able = [sum(many for measure, many in self._sizes.items() if rooms[measure][shape]) for shape in shapes]
        agents = sorted(
            (key, agent, measure)
            for measure, members in self._field.agents.items()
            if any(rooms[measure])
            for key, agent in first_in_order(members, sum(counts), order)
        )
        remaining = [list(measure) for _key, _agent, measure in agents]
        packings = [[0] * len(counts) for _agent in agents]
        for shape in sorted(shapes, key=able.__getitem__):
            ask, missing = self._scale.asks[shape], counts[shape]
            candidates = [at for at, (_key, _agent, measure) in enumerate(agents) if rooms[measure][shape]]
            queue = [(sum(packings[at]), at) for at in candidates if max_count(remaining[at], ask, 1)]
            heapq.heapify(queue)
            while queue and missing:
                many, at = queue[0]
                missing -= 1
                packings[at][shape] += 1
                remaining[at] = subtract(remaining[at], ask, 1)
                if max_count(remaining[at], ask, 1):
                    heapq.heapreplace(queue, (many + 1, at))
                else:
                    heapq.heappop(queue)
        return [
            (agent, tuple(packing))
            for (_key, agent, _measure), packing in zip(agents, packings, strict=True)
            if any(packing)
        ]

    def usable_agent_count(self, counts: Packing) -> int:
        """Return how many agents can hold any one of these containers."""
        return sum(many for measure, many in self._sizes.items() if any(self._scale.capacities(measure, counts)))

    def lower_bound(self, counts: Packing) -> int:
        """Return a lower bound of the number of agents: the largest for any shape alone, and for any slot alone."""
        rooms = {measure: self._scale.capacities(measure, counts) for measure in self._sizes}
        needed = [
            self._min_agents({measure: rooms[measure][shape] for measure in rooms}, count)
            for shape, count in enumerate(counts)
        ]
        for slot, parts in enumerate(zip(*self._scale.asks, strict=True)):
            total = sum(part * count for part, count in zip(parts, counts, strict=True))
            needed.append(self._min_agents({measure: measure[slot] for measure in rooms}, total))
        return max(needed)

    def _min_agents(self, amounts: dict[CapacityVector, int], total: int) -> int:
        """Return the smallest number of agents with ``amounts`` that add up to ``total``."""
        tally: Counter[int] = Counter()
        for measure, amount in amounts.items():
            tally[amount] += self._sizes[measure]
        return len(fewest_reaching(tally, total))

    def _share(self, packing: Packing) -> float:
        return sum(share * count for share, count in zip(self._shares, packing, strict=True))
