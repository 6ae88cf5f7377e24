# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Groups agents into classes that are equivalent for a demand: of many agents, few classes remain."""

from __future__ import annotations

import heapq
import math
import operator
from collections.abc import Iterable
from typing import Any

from ...module_utils._model.capacity import HasCapacity
from ...module_utils._model.facts import AgentFacts, Headroom
from .demand import Demand
from .packing import Budget, Frontier, Packing, frontier, max_count
from .uniform import Order

# An agent's free capacity: containers, then each requested slot, and last its online cores.
CapacityVector = tuple[int, ...]

# An agent after its sort key.
OrderedAgent = tuple[tuple[Any, ...], AgentFacts]


class Normalizer:
    """Measures agents in the units of a demand: agents with equal vectors can hold the same containers.

    The unit of a slot is the greatest common divisor of the requests of all shapes, and capacity beyond the total
    demand is not counted. ``asks`` is the request of one container of each shape, in these units; the first element is
    1, for the container itself. ``widths`` are the cores of one container of each shape.
    """

    def __init__(self, demand: Demand) -> None:
        self._size = demand.size
        self.widths = [request.get("cpu", 0) for request in demand.requests]
        self._widest = max(self.widths)
        self._slots: list[tuple[str, int, int]] = []
        parts = [[1] * len(demand.requests)]
        for slot, whole in demand.total.amounts:
            amounts = [request.get(slot, 0) for request in demand.requests]
            unit = math.gcd(*amounts)
            self._slots.append((slot, unit, whole // unit))
            parts.append([amount // unit for amount in amounts])
        self.asks = list(zip(*parts, strict=True))

    def measure(self, agent: HasCapacity) -> CapacityVector:
        """Return the capacity vector of an agent."""
        limit = agent.max_containers
        measured = [max(0, min(self._size, limit - agent.containers)) if limit else self._size]
        for slot, unit, whole in self._slots:
            units = agent.free.get(slot, 0) // unit
            measured.append(0 if units < 0 else whole if units > whole else units)
        measured.append(min(agent.online_cpu_count, self._widest))
        return tuple(measured)

    def usable_counts(self, measure: CapacityVector, counts: Packing) -> Packing:
        """Return the counts of the shapes that do not need more cores than such an agent has, 0 for the others."""
        return tuple(count if width <= measure[-1] else 0 for count, width in zip(counts, self.widths, strict=True))

    def capacity(self, measure: CapacityVector, shape: int, most: int) -> int:
        """Return how many containers of one shape such an agent can hold alone, at most ``most``."""
        return max_count(measure, self.asks[shape], most) if self.widths[shape] <= measure[-1] else 0

    def holds(self, measure: CapacityVector, packing: Packing) -> bool:
        """Return whether such an agent can hold that packing."""
        used = (sum(map(operator.mul, parts, packing)) for parts in zip(*self.asks, strict=True))
        return self.usable_counts(measure, packing) == packing and all(map(operator.ge, measure, used))

    def frontier(self, measure: CapacityVector, counts: Packing, budget: Budget) -> Frontier:
        """Return the maximal packings of such an agent within these counts."""
        return frontier(measure[:-1], self.asks, self.usable_counts(measure, counts), budget)


class AgentClasses:
    """The agents that may hold a demand, grouped by capacity vector."""

    def __init__(self, agents: Iterable[AgentFacts], demand: Demand) -> None:
        self.scale = Normalizer(demand)
        self.agents: dict[CapacityVector, list[AgentFacts]] = {}
        measures: dict[Headroom, CapacityVector] = {}
        for agent in agents:
            headroom = agent.headroom
            if headroom not in measures:
                measures[headroom] = self.scale.measure(headroom)
            self.agents.setdefault(measures[headroom], []).append(agent)

    @property
    def sizes(self) -> dict[CapacityVector, int]:
        """The number of agents by capacity vector."""
        return {measure: len(members) for measure, members in self.agents.items()}


def first_in_order(agents: Iterable[AgentFacts], many: int, order: Order) -> list[OrderedAgent]:
    """Return the first ``many`` agents in an order, each after its key."""
    return heapq.nsmallest(many, ((order(agent), agent) for agent in agents))
