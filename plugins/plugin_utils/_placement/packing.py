# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Exact search over containers of several shapes: which agents hold given counts of each.

A packing is how many containers of each shape an agent holds at once. An agent is fully described by its frontier:
the packings that no other one dominates (Pareto dominance), since it can hold those and everything within them. A
total is how many containers of each shape some agents hold together; the search visits the agents, keeping the set of
totals that j of them can hold, for each j (dynamic programming over multi-dimensional packings). Such a set is one
integer with a bit for each total, so that adding a container of a shape is a shift.

Every operation is charged to a budget before it begins, in proportion to the time that it takes.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Iterable, Iterator, Mapping, Sequence

Packing = tuple[int, ...]
Frontier = tuple[Packing, ...]


class BudgetExceededError(Exception):
    """The search has used up its budget."""


class Budget:
    """Remaining steps, each about a tenth of a microsecond. Counting these makes results reproducible."""

    def __init__(self, steps: int) -> None:
        self._left = steps

    def spend(self, steps: int) -> None:
        """Subtract steps; raises :class:`BudgetExceededError` if that many are not left."""
        if not self.take(steps):
            raise BudgetExceededError

    def take(self, steps: int) -> bool:
        """Subtract steps if that many are left, and return whether they were."""
        if steps > self._left:
            return False
        self._left -= steps
        return True

    def require(self, steps: int) -> None:
        """Raise :class:`BudgetExceededError` if that many steps are not left."""
        if steps > self._left:
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
        budget.spend(12 + 4 * len(most))
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


# A shift of a set: the set that it reads and the one that it writes, by how many bits, which bits remain, and whether
# what was there before is kept.
_Shift = tuple[int, int, int, int, bool]


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
        budget.spend(len(counts) + self._width // 64)
        # The steps of one operation on a set.
        self.cost = 1 + self._width // 8192
        self._masks: dict[tuple[int, int], int] = {}
        self._shifts: dict[Frontier, list[_Shift]] = {}
        self.nothing = 1
        self.everything = 1 << (self._width - 1)

    def contains(self, totals: int, total: Packing) -> bool:
        """Return whether a total is in a set; totals with a negative count are in none."""
        self.budget.spend(self.cost)
        return min(total) >= 0 and bool(totals >> self._number(total) & 1)

    def iter_totals(self, totals: int) -> Iterator[Packing]:
        """Yield every total of a set."""
        digits = f"{totals:b}"[::-1]
        self.budget.spend(len(digits) // 128 + digits.count("1") * (3 + len(self.counts)))
        number = digits.find("1")
        while number >= 0:
            yield tuple(
                number // stride % (count + 1) for count, stride in zip(self.counts, self._strides, strict=True)
            )
            number = digits.find("1", number + 1)

    def maximal(self, totals: int) -> Iterator[Packing]:
        """Yield the totals of a set that has every part of each total, but those that are a part of another one."""
        self.budget.spend(3 * self.cost * len(self.counts))
        dominated = 0
        for shape, stride in enumerate(self._strides):
            dominated |= (totals >> stride) & self._mask(shape, 1)
        return self.iter_totals(totals & ~dominated)

    def parts_after(self, totals: int, held: Packing, packings: Frontier) -> Iterator[Packing]:
        """Yield what an agent of that frontier can hold so that, added to ``held``, it is one of the totals."""
        self.budget.spend(2 * self.cost)
        matching = (totals >> self._number(held)) & self.add_agent(self.nothing, packings)
        for packing in self.iter_totals(matching):
            if all(map(int.__le__, packing, _without(self.counts, held))):
                yield packing

    def add_cost(self, packings: Frontier) -> int:
        """Return the steps that it takes to add one agent of that frontier."""
        return self.cost * len(self._shifts_of(packings))

    def add_agent(self, totals: int, packings: Frontier) -> int:
        """Return every total that is reached by adding one agent of that frontier."""
        shifts = self._shifts_of(packings)
        largest = totals.bit_length() + sum(map(operator.mul, map(max, zip(*packings, strict=True)), self._strides))
        self.budget.spend(len(shifts) * (1 + min(largest, self._width) // 8192))
        last, result = len(self.counts), 0
        sets = [0] * last + [0, totals]
        for source, target, by, mask, keep in shifts if totals else ():
            moved = (sets[source] & mask) << by
            sets[target] = moved = sets[source] | moved if keep else moved
            if target == last:
                result |= moved
        return result

    def remove_agent(self, totals: int, packings: Frontier) -> int:
        """Return every total from which one of these is reached by adding one agent of that frontier."""
        shifts = self._shifts_of(packings)
        self.budget.spend(self.cost * len(shifts))
        last, result = len(self.counts), 0
        sets = [0] * last + [0, totals]
        for source, target, by, mask, keep in shifts if totals else ():
            moved = (sets[source] >> by) & mask
            sets[target] = moved = sets[source] | moved if keep else moved
            if target == last:
                result |= moved
        return result

    def _number(self, total: Packing) -> int:
        return sum(map(operator.mul, total, self._strides))

    def _shifts_of(self, packings: Frontier) -> list[_Shift]:
        if packings not in self._shifts:
            shifts: list[_Shift] = []
            start, whole = len(self.counts) + 1, (1 << self._width) - 1
            if not self._none_empty:
                shifts.append((start, 0, 0, whole, False))
                self._add_shifts(shifts, packings, 0)
            for shape in range(len(self.counts)) if self._none_empty else ():
                rest = sorted(
                    {(*some[:shape], some[shape] - 1, *some[shape + 1 :]) for some in packings if some[shape]}
                )
                if rest:
                    shifts.append((start, 0, self._strides[shape], self._mask(shape, 1), False))
                    self._add_shifts(shifts, rest, 0)
            self.budget.spend(2 * len(shifts))
            self._shifts[packings] = shifts
        return self._shifts[packings]

    def _add_shifts(self, shifts: list[_Shift], packings: Iterable[Packing], shape: int) -> None:
        """Add the shifts for any part of sorted packings, from that shape on: what they have in common only once.

        Each shift doubles the covered counts.
        """
        covered = 0
        for most, some in itertools.groupby(packings, operator.itemgetter(shape)):
            while covered < most:
                by = min(covered + 1, most - covered)
                shifts.append((shape, shape, by * self._strides[shape], self._mask(shape, by), True))
                covered += by
            shifts.append((shape, shape + 1, 0, 0, True))
            if shape + 1 < len(self.counts):
                self._add_shifts(shifts, some, shape + 1)

    def _mask(self, shape: int, by: int) -> int:
        """Return every total to which ``by`` more containers of one shape can be added within the counts."""
        mask = self._masks.get((shape, by))
        if mask is None:
            self.budget.spend(3 * self.cost)
            stride = self._strides[shape]
            period = stride * (self.counts[shape] + 1)
            mask = (1 << (period - by * stride)) - 1
            while period < self._width:
                mask |= mask << period
                period *= 2
            mask = self._masks[shape, by] = mask & ((1 << self._width) - 1)
        return mask


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
        totals.budget.spend(totals.cost * (1 + len(kept)))
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
    """Return for each position i in ``agents`` and each j up to ``levels`` what j of the agents from i on complete.

    That is every total to which they can add the rest. The last position is that after the last agent.
    """
    costs = [totals.add_cost(packings) + totals.cost + 2 for packings in agents]
    # A search that would not end is not begun.
    totals.budget.require(sum(cost * min(levels, later) for later, cost in enumerate(reversed(costs))))
    table = [[totals.everything, *[0] * levels]]
    for packings in reversed(agents):
        totals.budget.spend(levels * totals.cost)
        later = table[-1]
        taken = (totals.remove_agent(reached, packings) if reached else 0 for reached in later)
        table.append([totals.everything, *(skipped | added for skipped, added in zip(later[1:], taken, strict=False))])
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
        if grown & table[position + 1][missing - 1]:
            reached = grown
            chosen.append(position)
    return chosen


def distribute(totals: ReachableCounts, agents: Sequence[Frontier], *, evenly: bool) -> list[Packing]:
    """Return the packing of each agent; together they must be able to hold everything, and fewer agents must not.

    The agents are filled one after the other, each with as many containers as possible, or ``evenly`` with its part of
    the rest; of packings with equally many containers, the one with the most of the first shapes is chosen.
    """
    after = [totals.everything]
    for packings in reversed(agents[1:]):
        after.append(totals.remove_agent(after[-1], packings))
    held, filled = (0,) * len(totals.counts), []
    for packings in agents:
        others, remaining = after.pop(), _without(totals.counts, held)
        if evenly:
            target = -(-sum(remaining) // (len(after) + 1))
            fitting = totals.parts_after(others, held, packings)
        else:
            # Whatever an agent holds, it can hold the more of one of these, and then the others need to hold less.
            target = sum(remaining)
            largest = {tuple(map(min, packing, remaining)) for packing in packings}
            fitting = (
                packing for packing in largest if totals.contains(others, tuple(map(operator.add, held, packing)))
            )
        filled.append(max(fitting, key=lambda packing: (-abs(sum(packing) - target), packing)))
        held = tuple(map(operator.add, held, filled[-1]))
    return filled


def _without(counts: Packing, packing: Packing) -> Packing:
    return tuple(count - taken for count, taken in zip(counts, packing, strict=True))


def largest_packing(packings: Iterable[Packing]) -> Packing:
    """Return the packing with the most containers, then with the most of the first shapes."""
    return max(packings, key=lambda packing: (sum(packing), packing))


def sum_packings(chosen: Iterable[tuple[object, Packing]], counts: Packing) -> Packing:
    """Return the sum of packings, each after its owner; ``counts`` has one element per shape."""
    return tuple(map(sum, zip([0] * len(counts), *(packing for _owner, packing in chosen), strict=True)))
