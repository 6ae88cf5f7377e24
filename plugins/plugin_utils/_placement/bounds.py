# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Bounds that are proven without a search: of the agents that a demand needs, and of the containers that do not fit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from .agent_classes import AgentClasses, CapacityVector
from .packing import Packing
from .uniform import fewest_reaching

# How many pairs of a shape and a class of agents are looked at.
MAX_PAIRS = 20_000


class Bounds:
    """Bounds for containers on the agents of these classes, which may be any agents, or one of them."""

    def __init__(self, classes: AgentClasses, counts: Packing) -> None:
        self._counts, self._asks, self._sizes = counts, classes.scale.asks, classes.sizes
        # The more a shape requests, the fewer of its containers agents can hold.
        largest = sorted(range(len(counts)), key=lambda shape: self._asks[shape], reverse=True)
        some = largest[: max(1, MAX_PAIRS // max(1, len(self._sizes)))]
        slots = range(len(self._asks[0]))
        self._smallest = [sorted(range(len(counts)), key=lambda shape: self._asks[shape][slot]) for slot in slots]
        self._rooms = {shape: self._rooms_of(classes, shape) for shape in some}

    def _rooms_of(self, classes: AgentClasses, shape: int) -> dict[CapacityVector, int]:
        return {measure: classes.scale.capacity(measure, shape, self._counts[shape]) for measure in self._sizes}

    def fewest_agents(self) -> int:
        """Return the fewest agents that may hold everything: the most that any shape, or any slot, alone needs."""
        needed = [self._fewest(rooms, self._counts[shape]) for shape, rooms in self._rooms.items()]
        for slot, parts in enumerate(zip(*self._asks, strict=True)):
            total = sum(part * count for part, count in zip(parts, self._counts, strict=True))
            needed.append(self._fewest({measure: measure[slot] for measure in self._sizes}, total))
        return max(needed)

    def unplaced(self) -> int:
        """Return how many containers have no room at least, wherever the others are."""
        most = list(self._counts)
        for shape, rooms in self._rooms.items():
            most[shape] = min(most[shape], sum(room * self._sizes[measure] for measure, room in rooms.items()))
        slots = range(len(self._asks[0]))
        free = [sum(measure[slot] * many for measure, many in self._sizes.items()) for slot in slots]
        return sum(self._counts) - self._most_within(free, most)

    def unplaced_on_one(self) -> int:
        """Return how many containers have no room at least if all others are on one agent."""
        if len(self._sizes) * len(self._counts) > MAX_PAIRS:
            # An agent that has of each slot as much as any of them.
            return sum(self._counts) - self._most_within(list(map(max, zip(*self._sizes, strict=True))), self._counts)
        placed = 0
        for measure in self._sizes:
            most = [min(count, self._rooms[shape][measure]) for shape, count in enumerate(self._counts)]
            placed = max(placed, self._most_within(measure, most))
        return sum(self._counts) - placed

    def _most_within(self, free: Sequence[int], most: Sequence[int]) -> int:
        """Return the most containers for which each slot alone has room, the smallest requests first."""
        within = sum(most)
        for slot, shapes in enumerate(self._smallest):
            placed, left = 0, free[slot]
            for shape in shapes:
                part = self._asks[shape][slot]
                many = min(most[shape], left // part) if part else most[shape]
                placed += many
                left -= part * many
                if many < most[shape]:
                    break
            within = min(within, placed)
        return within

    def _fewest(self, amounts: dict[CapacityVector, int], total: int) -> int:
        """Return the smallest number of agents with ``amounts`` that add up to ``total``."""
        tally: Counter[int] = Counter()
        for measure, amount in amounts.items():
            tally[amount] += self._sizes[measure]
        return len(fewest_reaching(tally, total))
