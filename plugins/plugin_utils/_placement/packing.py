# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Exact search over containers of several shapes: which agents hold given counts of each.

A packing is how many containers of each shape an agent holds at once. An agent is fully described by its frontier:
the packings that no other one dominates (Pareto dominance), since it can hold those and everything within them. A
total is how many containers of each shape some agents hold together; the search visits the agents, keeping the set of
totals that j of them can hold, for each j (dynamic programming over multi-dimensional packings). Such a set is one
integer with a bit for each total, so that adding a container of a shape is a shift.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence

Packing = tuple[int, ...]
Frontier = tuple[Packing, ...]


class BudgetExceededError(Exception):
    """The search has used up its budget."""


class Budget:
    """Remaining steps, each about half a microsecond. Counting steps instead of time makes results reproducible."""

    def __init__(self, steps: int) -> None:
        self._left = steps

    def spend(self, steps: int) -> None:
        """Subtract steps; raises :class:`BudgetExceededError` when they are used up."""
        self._left -= steps
        if self._left < 0:
            raise BudgetExceededError


def frontier(free: Sequence[int], asks: Sequence[Sequence[int]], most: Packing, budget: Budget) -> Frontier:
    """Return the maximal packings of an agent: tries all counts of all shapes but one, which is then maximal.

    ``free`` is the free amount of each slot, ``asks`` the request of one container of each shape, and ``most`` the
    largest useful count of each shape.
    """
    order = sorted(range(len(most)), key=most.__getitem__)
    beside: dict[Packing, int] = {}
    pending: list[tuple[Packing, Sequence[int]]] = [((), free)]
    while pending:
        budget.spend(4 + len(most))
        counts, remaining = pending.pop()
        shape = order[len(counts)]
        many = max_count(remaining, asks[shape], most[shape])
        if shape == order[-1]:
            beside[counts] = many
        else:
            pending += (((*counts, count), subtract(remaining, asks[shape], count)) for count in range(many + 1))
    maximal = ((*counts, many) for counts, many in beside.items() if not _within_another(counts, many, beside))
    place = [order.index(shape) for shape in range(len(most))]
    return tuple(sorted(tuple(packing[position] for position in place) for packing in maximal))


def max_count(free: Sequence[int], ask: Sequence[int], most: int) -> int:
    """Return how many containers of one shape fit, at most ``most``."""
    return min([most, *(amount // part for amount, part in zip(free, ask, strict=False) if part)])


def subtract(free: Sequence[int], ask: Sequence[int], count: int) -> list[int]:
    """Return the free amounts after placing ``count`` containers of one shape."""
    return [amount - count * part for amount, part in zip(free, ask, strict=False)]


def _within_another(counts: Packing, many: int, beside: dict[Packing, int]) -> bool:
    """Return whether one more container costs the last shape nothing: that is so for every dominated packing."""
    return any(
        beside.get((*counts[:shape], counts[shape] + 1, *counts[shape + 1 :])) == many for shape in range(len(counts))
    )


class ReachableCounts:
    """Sets of totals within the requested counts: a set is an integer, a total one of its bits.

    A total's bit is its number in the mixed radix of the counts, so that bit numbers of totals can be added. With
    ``none_empty``, every agent that takes part holds something; without, which is faster, it need not.
    """

    def __init__(self, counts: Packing, budget: Budget, *, none_empty: bool) -> None:
        self.counts = counts
        self.budget = budget
        self._none_empty = none_empty
        sizes = [count + 1 for count in counts]
        *self._strides, self._width = itertools.accumulate([1, *sizes], lambda stride, size: stride * size)
        self._cost = 1 + self._width // 16384
        budget.spend(self._width // 64)
        self._masks: dict[tuple[int, int], int] = {}
        self.nothing = 1
        self.everything = 1 << (self._width - 1)

    def contains(self, totals: int, total: Packing) -> bool:
        """Return whether a total is in a set; totals with a negative count are in none."""
        return min(total) >= 0 and bool(totals >> sum(map(int.__mul__, total, self._strides)) & 1)

    def iter_totals(self, totals: int) -> Iterator[Packing]:
        """Yield every total of a set."""
        self.budget.spend(totals.bit_length() // 64 + bin(totals).count("1"))
        digits = f"{totals:b}"[::-1]
        number = digits.find("1")
        while number >= 0:
            yield tuple(
                number // stride % (count + 1) for count, stride in zip(self.counts, self._strides, strict=True)
            )
            number = digits.find("1", number + 1)

    def charge_memory(self, sets: int) -> None:
        """Charge the budget for the memory of so many sets."""
        self.budget.spend(sets * (1 + self._width // 1024))

    def complements(self, totals: int, others: int) -> bool:
        """Return whether a total of one set and a total of the other add up to everything."""
        self.budget.spend(self._cost)
        # The complement of a total has the number at the same distance from the other end.
        return bool(totals & int(f"{others:0{self._width}b}"[::-1], 2))

    def add_agent(self, totals: int, packings: Frontier) -> int:
        """Return every total that is reached by adding one agent of that frontier."""
        result = 0
        for packing in packings if totals else ():
            if self._none_empty:
                for shape, most in enumerate(packing):
                    if most:
                        rest = (*packing[:shape], most - 1, *packing[shape + 1 :])
                        result |= self._with_parts(self._with_more(totals, shape, 1), rest)
            else:
                result |= self._with_parts(totals, packing)
        return result

    def _with_parts(self, totals: int, packing: Packing) -> int:
        """Return these totals with any part of the packing added; each shift doubles the covered counts."""
        for shape, most in enumerate(packing):
            covered = 0
            while covered < most:
                by = min(covered + 1, most - covered)
                totals |= self._with_more(totals, shape, by)
                covered += by
        return totals

    def _with_more(self, totals: int, shape: int, by: int) -> int:
        """Return these totals with ``by`` more containers of one shape, without those that exceed the counts."""
        self.budget.spend(self._cost)
        stride = self._strides[shape]
        mask = self._masks.get((shape, by))
        if mask is None:
            period = stride * (self.counts[shape] + 1)
            everywhere = ((1 << self._width) - 1) // ((1 << period) - 1)
            mask = self._masks[shape, by] = ((1 << (period - by * stride)) - 1) * everywhere
        return (totals & mask) << (by * stride)


def prune_dominated(totals: ReachableCounts, agents: Mapping[Frontier, int], limit: int) -> list[tuple[Frontier, int]]:
    """Return the frontiers that matter to sets of at most ``limit`` agents, and how many agents of each.

    The other agents are dominated: each can be exchanged for one of these that is not in the set (Pareto dominance,
    exchange argument).
    """
    # A subset of another set is a smaller number, so that dominated frontiers come after those that dominate them.
    parts = sorted(((totals.add_agent(totals.nothing, packings), packings) for packings in agents), reverse=True)
    kept: list[tuple[int, int]] = []
    result = []
    for part, packings in parts:
        totals.budget.spend(1 + len(kept))
        remaining = limit - sum(often for whole, often in kept if not part & ~whole)
        if remaining > 0:
            kept.append((part, min(agents[packings], remaining)))
            result.append((packings, kept[-1][1]))
    return result


def reachable_totals(totals: ReachableCounts, agents: Iterable[tuple[Frontier, int]]) -> int:
    """Return the set of all totals that agents can hold, given as (frontier, how many agents have it)."""
    reached = totals.nothing
    for packings, often in agents:
        for _agent in range(min(often, sum(totals.counts))):
            before = reached
            reached |= totals.add_agent(before, packings)
            if reached == before or reached & totals.everything:
                break
    return reached


def reachability_table(totals: ReachableCounts, agents: Sequence[Frontier], levels: int) -> list[list[int]]:
    """Return for each position i in ``agents`` and each j up to ``levels`` what j of the agents from i on can hold.

    The last position is that after the last agent.
    """
    table = [[totals.nothing, *[0] * levels]]
    for packings in reversed(agents):
        totals.charge_memory(levels)
        later = table[-1]
        taken = (totals.add_agent(reached, packings) for reached in later)
        table.append([totals.nothing, *(skipped | added for skipped, added in zip(later[1:], taken, strict=False))])
    return table[::-1]


def lexicographically_first(
    totals: ReachableCounts, agents: Sequence[Frontier], table: list[list[int]], size: int
) -> list[int]:
    """Return the positions of ``size`` agents that hold everything, of all such sets the first one.

    There must be such a set; ``table`` is the :func:`reachability_table` of the agents. The agents are visited in
    order, and one is chosen whenever the chosen agents, together with some later ones, can hold everything; an agent
    that is skipped is in no such set that contains those already chosen, so the result is the first set.
    """
    reached = totals.nothing
    chosen: list[int] = []
    for position, packings in enumerate(agents):
        missing = size - len(chosen)
        if not missing:
            break
        grown = totals.add_agent(reached, packings)
        if totals.complements(grown, table[position + 1][missing - 1]):
            reached = grown
            chosen.append(position)
    return chosen


def distribute(totals: ReachableCounts, agents: Sequence[Frontier], *, evenly: bool) -> list[Packing]:
    """Return the packing of each agent; together they must be able to hold everything, and fewer agents must not.

    The agents are filled one after the other, each with as many containers as possible, or ``evenly`` with its part of
    the rest; of packings with equally many containers, the one with the most of the first shapes is chosen.
    """
    after = [totals.nothing]
    for packings in reversed(agents[1:]):
        after.append(totals.add_agent(after[-1], packings))
    remaining, filled = totals.counts, []
    for packings in agents:
        others = after.pop()
        target = -(-sum(remaining) // (len(after) + 1)) if evenly else sum(remaining)
        possible = totals.iter_totals(totals.add_agent(totals.nothing, packings))
        fitting = (packing for packing in possible if totals.contains(others, _without(remaining, packing)))
        filled.append(max(fitting, key=lambda packing: (-abs(sum(packing) - target), packing)))
        remaining = _without(remaining, filled[-1])
    return filled


def _without(counts: Packing, packing: Packing) -> Packing:
    return tuple(count - taken for count, taken in zip(counts, packing, strict=True))


def largest_packing(packings: Iterable[Packing]) -> Packing:
    """Return the packing with the most containers, then with the most of the first shapes."""
    return max(packings, key=lambda packing: (sum(packing), packing))


def sum_packings(chosen: Iterable[tuple[object, Packing]], counts: Packing) -> Packing:
    """Return the sum of packings, each after its owner; ``counts`` has one element per shape."""
    return tuple(map(sum, zip([0] * len(counts), *(packing for _owner, packing in chosen), strict=True)))
