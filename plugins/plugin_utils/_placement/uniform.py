# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Placement of containers of one shape, exact in O(n log n).

An agent is then fully described by its room: how many of the containers it can hold.
"""

from __future__ import annotations

import bisect
import heapq
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from ...module_utils._model.facts import AgentFacts

# A sort key: the agent with the smallest one is used first. No two agents may have equal keys.
Order = Callable[[AgentFacts], tuple[Any, ...]]

# How many containers each agent gets, in rank order.
Assignment = list[tuple[AgentFacts, int]]


def fewest_reaching(amounts: Mapping[int, int], total: int) -> list[int]:
    """Return the fewest amounts that add up to at least ``total``, smallest first; all if they do not reach it.

    ``amounts`` maps each amount to its multiplicity. The result is the largest ones: if the k-1 largest fall short of
    the total, all other sets of k-1 do too, as they are elementwise not larger.
    """
    chosen: list[int] = []
    for amount, often in sorted(amounts.items(), reverse=True):
        if total <= 0 or amount <= 0:
            break
        many = min(often, -(-total // amount))
        chosen += [amount] * many
        total -= amount * many
    return chosen[::-1]


def concentrate(agents: Sequence[AgentFacts], rooms: Sequence[int], size: int, order: Order) -> Assignment:
    """Return the fewest agents that hold ``size`` containers, and of all such sets the first one in ``order``.

    All agents together must be able to hold that many. The agents are visited in that order, keeping the set of largest
    room that completes those already chosen. An agent of that set is chosen at no loss of room; another one replaces
    the agent of the next larger room in the set if the surplus covers the loss. A skipped agent is in no set of this
    size, so the result is the first set (exchange argument; bin covering with equal items).
    """
    roomiest = fewest_reaching(Counter(rooms), size)
    spare = sum(roomiest) - size
    # Agents with less room are never chosen, since the surplus only shrinks: they need not be sorted.
    least = max(1, roomiest[0] - spare)
    queue = [(order(agent), room, agent) for agent, room in zip(agents, rooms, strict=True) if room >= least]
    heapq.heapify(queue)
    chosen: Assignment = []
    while roomiest:
        _key, room, agent = heapq.heappop(queue)
        position = bisect.bisect_left(roomiest, room)
        loss = roomiest[position] - room
        if loss <= spare:
            spare -= loss
            del roomiest[position]
            chosen.append((agent, room))
    return _assign(chosen, size)


def _assign(chosen: Iterable[tuple[AgentFacts, int]], size: int) -> Assignment:
    """Fill the agents one after the other, the largest room first; none stays empty, or fewer would be sufficient."""
    counts: Assignment = []
    for agent, room in sorted(chosen, key=lambda choice: (-choice[1], choice[0].name)):
        counts.append((agent, min(room, size)))
        size -= counts[-1][1]
    return counts


def disperse(agents: Sequence[AgentFacts], rooms: Sequence[int], size: int, order: Order) -> Assignment:
    """Return ``size`` containers on as many agents as possible, evenly: always on the one with the fewest of them.

    All agents together must be able to hold that many. ``order`` breaks ties.
    """
    usable = ((order(agent), room, agent) for agent, room in zip(agents, rooms, strict=True) if room)
    chosen = heapq.nsmallest(size, usable)
    counts = [0] * len(chosen)
    # A sorted list is a heap.
    emptiest = [(0, position) for position in range(len(chosen))]
    for _container in range(size):
        count, position = emptiest[0]
        counts[position] = count + 1
        if count + 1 < chosen[position][1]:
            heapq.heapreplace(emptiest, (count + 1, position))
        else:
            heapq.heappop(emptiest)
    return [(agent, count) for (_key, _room, agent), count in zip(chosen, counts, strict=True)]
