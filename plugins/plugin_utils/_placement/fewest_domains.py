# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Finds the fewest domains that hold containers of one shape, which is exact: dynamic programming.

An agent is described by its room, the number of containers that it can hold, so the best j agents of an innermost
domain are the j roomiest. A way to use some domains is compared by the number of domains of each level, from the
outside in, then by that of its agents. Adding the same domain to two ways does not change which is better, so of the
ways with the same room only the best is kept. The search goes backwards through the domains, which are listed with
those of each outer one together: what one adds follows from how many levels of its path are ``open`` already.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Iterable, Sequence

# What is compared, the less the better: domains, of all levels in one number, then agents, then minus the room. Agents
# are counted negatively where many are wanted. The last two are not counted beyond the number of containers.
_Way = tuple[int, int, int]

# The bits of the number of domains of one level.
_BITS = 20

Path = tuple[str, ...]


def shared(one: Path, other: Path) -> int:
    """Return how many levels two paths have in common."""
    return sum(1 for _pair in itertools.takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))


def fewest_domains(paths: Sequence[Path], rooms: Sequence[Sequence[int]], size: int, *, as_many: bool) -> list[int]:
    """Return the positions of the fewest innermost domains that hold ``size`` containers, which all together must hold.

    Of the fewest they are those with the fewest agents, or the most if ``as_many`` are wanted, and of these the first.
    ``rooms`` are those of the agents of each.
    """
    levels = len(paths[0])
    opening = [sum(1 << _BITS * (levels - level) for level in range(first + 1, levels + 1)) for first in range(levels)]
    ways = [_ways(each, size, as_many=as_many) for each in rooms]
    # How many levels each domain shares with the one before, and the last one with none after it.
    common = [0, *map(shared, paths, paths[1:]), 0]
    # For each position, and each number of levels that are open there: the ways to use the domains from it on.
    table: list[list[list[_Way]]] = [[[(0, 0, 0)]]]
    for at in reversed(range(len(paths))):
        later, after = table[-1], common[at + 1]
        used = _best(_add(way, rest, size) for way in ways[at] for rest in later[after])
        row = []
        for opened in range(common[at] + 1):
            added = opening[opened]
            with_it = [(added + domains, agents, room) for domains, agents, room in used]
            row.append(_best([*later[min(opened, after)], *with_it]))
        table.append(row)
    table.reverse()
    return _first(table, ways, opening, common, size)


def _first(
    table: list[list[list[_Way]]], ways: list[list[_Way]], opening: list[int], common: list[int], size: int
) -> list[int]:
    """Return the first domains of the best way that the table has: each is chosen if it can be with those before it."""
    wanted = table[0][0][-1]
    # The ways to use the chosen domains, with fewer or more agents of each.
    chosen, opened, begun = [], 0, [(0, 0, 0)]
    for at, after in enumerate(common[1:]):
        steps = [(opening[opened], agents, room) for _none, agents, room in ways[at]]
        grown = _best(_add(way, step, size) for way in begun for step in steps)
        rests = itertools.groupby(table[at + 1][after], operator.itemgetter(0))
        by_domains = {domains: list(some) for domains, some in rests}
        fitting = [
            way
            for way in grown
            if any(_add(way, rest, size) == wanted for rest in by_domains.get(wanted[0] - way[0], ()))
        ]
        if fitting:
            chosen.append(at)
            begun, opened = fitting, after
        else:
            opened = min(opened, after)
    return chosen


def _ways(rooms: Iterable[int], size: int, *, as_many: bool) -> list[_Way]:
    """Return the ways to use an innermost domain: with its 1, 2, 3 … roomiest agents, or ``as_many`` as it has."""
    totals = [min(size, total) for total in itertools.accumulate(sorted(rooms, reverse=True))]
    if as_many:
        return [(0, -min(size, len(totals)), -totals[-1])]
    return [(0, agents, -total) for agents, total in enumerate(totals[: totals.index(totals[-1]) + 1], 1)]


def _add(one: _Way, other: _Way, size: int) -> _Way:
    return one[0] + other[0], max(-size, one[1] + other[1]), max(-size, one[2] + other[2])


def _best(ways: Iterable[_Way]) -> list[_Way]:
    """Return the ways that have more room than all better ones, the best first."""
    kept: list[_Way] = []
    for way in sorted(ways):
        if not kept or way[2] < kept[-1][2]:
            kept.append(way)
    return kept
