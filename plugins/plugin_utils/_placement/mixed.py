# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Placement of containers of several shapes: best fit decreasing in several orders, with local repair.

This is vector bin packing, for which no quick exact method is known, so nothing is proven to be the best. The agent
that can take the largest share of what is missing is filled first, with the largest containers before smaller ones. How
large a container is can be said in several ways, each of which gives an order; the best result is repaired and used.
Every loop is bounded by the request and the agents, and nothing is random: equal input gives an equal result.
"""

from __future__ import annotations

import functools
import heapq
import math
import operator
from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from ...module_utils._model.facts import AgentFacts
from .demand import Demand
from .uniform import Order

# How many containers of each shape an agent holds.
Packing = tuple[int, ...]

# How many containers of each shape each agent gets, in rank order.
Assignment = list[tuple[AgentFacts, Packing]]

# What an agent has free: containers, then each requested slot, and last the most cores of one container.
Free = tuple[int, ...]

# How many orders are tried, how often a result is repaired, and how many agents are emptied at once for that.
MAX_ORDERS, ROUNDS, MAX_EMPTIED = 8, 2, 8

# How many times all repairs look at an agent for others that could make room there.
MAX_LOOKS = 100_000

# How many fillings of one agent are compared: with more shapes, fewer are tried first.
MAX_FILLINGS = 64

# With at most how many shapes single containers are exchanged for others when an agent is filled.
MAX_SHAPES = 16

# A packing replaces one that begins with larger containers only if its share is larger by this factor: smaller ones
# find their place more easily later on.
GAIN = 1.02

# What makes the share of a container: the fractions that it takes of all that agents have free, of each slot.
Weigh = Callable[[Sequence[float]], float]


class Field:
    """The shapes of a demand, and agents by what they have free for it."""

    def __init__(self, agents: Iterable[AgentFacts], demand: Demand) -> None:
        self.counts = demand.counts
        self._limits = demand.total.amounts
        self.widths = [request.get("cpu", 0) for request in demand.requests]
        self._size, self._widest = demand.size, max(self.widths)
        asks = [(1, *(request.get(slot, 0) for slot, _whole in self._limits)) for request in demand.requests]
        # The slots that a shape requests; the first one is the container itself.
        self.parts = [[(slot, part) for slot, part in enumerate(ask) if part] for ask in asks]
        self.least = [min(parts) for parts in zip(*asks, strict=True)]
        self.agents: dict[Free, list[AgentFacts]] = {}
        for agent in agents:
            kind = self._measure(agent)
            # What has less free than the smallest request of any slot holds nothing.
            if not any(map(int.__lt__, kind, self.least)):
                self.agents.setdefault(kind, []).append(agent)
        kinds = self.agents.items()
        self.total = [sum(kind[slot] * len(some) for kind, some in kinds) or 1 for slot in range(len(self.least))]
        self.fractions = [[part / whole for part, whole in zip(ask, self.total, strict=True)] for ask in asks]

    def _measure(self, agent: AgentFacts) -> Free:
        """Return what an agent has free. More than all containers need is not counted, so that more are alike."""
        limit, free = agent.max_containers, agent.free
        most = min(self._size, limit - agent.containers) if limit else self._size
        amounts = [min(free.get(slot, 0), whole) for slot, whole in self._limits]
        return (most, *amounts, min(agent.online_cpu_count, self._widest))

    def most(self, left: Sequence[int], shape: int, limit: int) -> int:
        """Return how many containers of a shape fit into these free amounts, at most ``limit``."""
        if self.widths[shape] > left[-1]:
            return 0
        for slot, part in self.parts[shape]:
            if left[slot] < part * limit:
                limit = max(0, left[slot] // part)
        return limit

    def filled(self, kind: Free, shapes: Sequence[int], wanted: Sequence[int], begun: Packing = ()) -> Packing:
        """Return a packing with as many containers as fit, and are wanted, of one of these shapes after the other.

        It has those of the packing that is ``begun`` in any case.
        """
        packing, left = [*begun] or [0] * len(wanted), list(kind)
        for shape, many in enumerate(begun):
            if many:
                for slot, part in self.parts[shape]:
                    left[slot] -= part * many
        for shape in shapes:
            many = wanted[shape] - packing[shape]
            for slot, part in self.parts[shape]:
                if left[slot] < part:
                    break
                many = min(many, left[slot] // part)
            else:
                packing[shape] += many
                for slot, part in self.parts[shape]:
                    left[slot] -= part * many
                if any(map(int.__lt__, left, self.least)):
                    break
        return tuple(packing)

    def unplaced(self) -> int:
        """Return how many containers have no room at least: of a shape alone, or one if a slot does not do for all."""
        beyond = (
            count - sum(self.most(kind, shape, count) * len(some) for kind, some in self.agents.items())
            for shape, count in enumerate(self.counts)
        )
        needed = (self._size, *(whole for _slot, whole in self._limits))
        return max(sum(max(0, more) for more in beyond), int(any(map(int.__lt__, self.total, needed))))

    def ways_to_weigh(self) -> list[Weigh]:
        """Return what makes a container large: its largest fraction, the sum of all, or that of one slot."""
        slots = range(1, len(self.least))
        ways: list[Weigh] = [max, math.fsum, *(functools.partial(_mostly, slot) for slot in slots)]
        return ways[:MAX_ORDERS]


def _mostly(slot: int, parts: Sequence[float]) -> float:
    return parts[slot] + max(parts) / 1000


class Bin:
    """An agent while containers are placed: ``kind`` is what was free, ``left`` what still is, ``held`` by shape."""

    __slots__ = ("held", "kind", "left")

    def __init__(self, kind: Free, left: list[int], held: dict[int, int]) -> None:
        self.kind, self.left, self.held = kind, left, held

    def copy(self) -> Bin:
        """Return another one that holds the same."""
        return Bin(self.kind, self.left[:], dict(self.held))

    def packing(self, shapes: int) -> Packing:
        """Return how many containers of each shape it holds."""
        return tuple(self.held.get(shape, 0) for shape in range(shapes))


class Filling:
    """An attempt to place everything on few agents: ``missing`` are the containers of each shape without a place."""

    def __init__(self, field: Field, weigh: Weigh) -> None:
        self._field = field
        self._shares = [weigh(parts) for parts in field.fractions]
        self._order = sorted(range(len(self._shares)), key=lambda shape: -self._shares[shape])
        self._looks = 0
        self.missing = list(field.counts)
        self.bins: list[Bin] = []

    @property
    def quality(self) -> tuple[int, int]:
        """How many containers have no place, and how many agents are used: the less, the better."""
        return sum(self.missing), len(self.bins)

    def fill(self) -> None:
        """Fill one agent after the other, each time the one that can take the largest share of what is missing.

        The share of an agent is computed again only when it comes first, as it can only have shrunk.
        """
        unused = self._unused()
        queue = [(-self._most_share(kind), kind) for kind in unused]
        heapq.heapify(queue)
        while queue and any(self.missing):
            before, kind = queue[0]
            packing = self._packing(kind)
            cost = -self._share(packing)
            if not cost or not unused[kind]:
                heapq.heappop(queue)
            elif cost > before:
                heapq.heapreplace(queue, (cost, kind))
            else:
                unused[kind] -= 1
                self.bins.append(Bin(kind, list(kind), {}))
                for shape, many in enumerate(packing):
                    if many:
                        self._put(self.bins[-1], shape, many)
                        self.missing[shape] -= many

    def _unused(self) -> dict[Free, int]:
        used = Counter(one.kind for one in self.bins)
        return {kind: len(some) - used[kind] for kind, some in self._field.agents.items()}

    def _put(self, one: Bin, shape: int, many: int) -> None:
        """Add (or, if negative, remove) containers of a shape."""
        one.held[shape] = one.held.get(shape, 0) + many
        if not one.held[shape]:
            del one.held[shape]
        for slot, part in self._field.parts[shape]:
            one.left[slot] -= part * many

    def _packing(self, kind: Free) -> Packing:
        """Return a packing of an agent with a large share: the largest containers first, unless others gain more."""
        shapes = [shape for shape in self._order if self.missing[shape] and self._field.widths[shape] <= kind[-1]]
        best = self._field.filled(kind, shapes, self.missing)
        share = self._share(best)
        for lead in shapes[1 : MAX_FILLINGS // (len(shapes) or 1)]:
            packing = self._field.filled(kind, [lead, *shapes], self.missing)
            if self._share(packing) > share * GAIN:
                best, share = packing, self._share(packing)
        at = 0
        while at < len(shapes) <= MAX_SHAPES:
            shape, at = shapes[at], at + 1
            if best[shape]:
                others = [other for other in shapes if other != shape]
                fewer = (*best[:shape], best[shape] - 1, *best[shape + 1 :])
                packing = self._field.filled(kind, others, self.missing, fewer)
                if self._share(packing) > share * GAIN:
                    best, share, at = packing, self._share(packing), 0
        return best

    def _share(self, packing: Packing) -> float:
        return math.fsum(map(operator.mul, self._shares, packing))

    def _share_of(self, one: Bin) -> float:
        return math.fsum(self._shares[shape] * many for shape, many in one.held.items())

    def _most_share(self, kind: Free) -> float:
        """Return what the share of no packing exceeds, whatever the way to weigh; rounded up."""
        return 1.01 * math.fsum(part / whole for part, whole in zip(kind, self._field.total, strict=False))

    def repair(self, looks: int) -> int:
        """Make room for what is missing, or else place again what the agents hold of which least is used.

        Not more than so many looks at an agent are taken; returns how many are left.
        """
        self._looks = looks
        for round_ in range(ROUNDS):
            if self._looks <= 0:
                break
            if any(self.missing):
                empty = [Bin(kind, list(kind), {}) for kind, many in self._unused().items() for _agent in range(many)]
                self.missing = self._insert([*self.bins, *empty], self.missing)
                # What has moved may have left room elsewhere.
                for shape in self._order:
                    self.missing[shape] -= self._spread([*self.bins, *empty], shape, self.missing[shape])
                self.bins = [one for one in [*self.bins, *empty] if one.held]
            else:
                self._use_fewer(of_each=round_ > 0)
        return self._looks

    def _use_fewer(self, *, of_each: bool) -> None:
        """Place again what those agents hold of which least is used, or least ``of_each``, while that takes fewer."""
        many = 1
        while many <= min(MAX_EMPTIED, len(self.bins) - 1):
            used = {id(one): self._share_of(one) / (self._most_share(one.kind) if of_each else 1) for one in self.bins}
            ordered = sorted(self.bins, key=lambda one: used[id(one)])
            before = self.bins
            self.bins = [one.copy() for one in ordered[many:]]
            again = [sum(one.held.get(shape, 0) for one in ordered[:many]) for shape in range(len(self.missing))]
            self.missing = self._insert(self.bins, again)
            self.fill()
            if not any(self.missing) and len(self.bins) < len(before):
                many = 1
            else:
                self.bins, self.missing, many = before, [0] * len(self.missing), many + 1

    def _insert(self, bins: Sequence[Bin], wanted: Sequence[int]) -> list[int]:
        """Place more containers where they fit, or where others make room; return those without a place."""
        missing = list(wanted)
        for shape in self._order:
            if missing[shape]:
                missing[shape] -= self._spread(bins, shape, missing[shape])
                while missing[shape] and self._looks > 0 and self._swap(bins, shape):
                    missing[shape] -= 1
        return missing

    def _spread(self, bins: Iterable[Bin], shape: int, many: int) -> int:
        """Place up to so many containers of a shape where they fit, and return how many."""
        placed = 0
        for one in bins:
            fitting = self._field.most(one.left, shape, many - placed)
            if fitting > 0:
                self._put(one, shape, fitting)
                placed += fitting
                if placed == many:
                    break
        return placed

    def _swap(self, bins: Sequence[Bin], shape: int) -> bool:
        """Place a container where others of one shape make room for it, as these fit elsewhere."""
        room: dict[int, list[tuple[Bin, int]]] = {}
        self._looks -= len(bins)
        for one in bins:
            if not self._field.most(one.kind, shape, 1):
                continue
            lack = [(slot, part - one.left[slot]) for slot, part in self._field.parts[shape] if part > one.left[slot]]
            if not lack:
                # An earlier exchange has left room.
                self._put(one, shape, 1)
                return True
            for other in sorted(one.held, key=self._order.index):
                self._looks -= 1
                asks = dict(self._field.parts[other])
                if other == shape or not all(slot in asks for slot, _amount in lack):
                    continue
                many = max(-(-amount // asks[slot]) for slot, amount in lack)
                if many > one.held[other]:
                    continue
                if other not in room:
                    self._looks -= len(bins)
                    fitting = ((two, self._field.most(two.left, other, self._field.counts[other])) for two in bins)
                    room[other] = [(two, fits) for two, fits in fitting if fits]
                elsewhere = [(two, fits) for two, fits in room[other] if two is not one]
                if sum(fits for _two, fits in elsewhere) >= many:
                    self._put(one, other, -many)
                    self._put(one, shape, 1)
                    self._spread((two for two, _fits in elsewhere), other, many)
                    return True
        return False


def concentrate(agents: Iterable[AgentFacts], demand: Demand, order: Order) -> tuple[Assignment, int]:
    """Return the containers on few agents, in rank order, with a lower bound of those that have no place."""
    field = Field(agents, demand)
    unplaced = field.unplaced()
    fillings = []
    for weigh in field.ways_to_weigh():
        fillings.append(Filling(field, weigh))
        fillings[-1].fill()
    fillings.sort(key=lambda filling: filling.quality)
    best = fillings[0]
    if not unplaced:
        looks = MAX_LOOKS
        for filling in fillings:
            looks = filling.repair(looks)
            best = min(best, filling, key=lambda one: one.quality)
            if not any(best.missing):
                break
    return _bind(field, best.bins, order), unplaced


def _bind(field: Field, bins: Sequence[Bin], order: Order) -> Assignment:
    """Return the agents of bins: for each the first in the order that holds the same, of those that are left."""
    free = {kind: sorted(some, key=order, reverse=True) for kind, some in field.agents.items()}
    chosen = [(one, free[one.kind].pop()) for one in bins]
    result: Assignment = []
    for one, agent in sorted(chosen, key=lambda choice: (-sum(choice[0].held.values()), choice[1].name)):
        used = list(map(operator.sub, one.kind, one.left))
        free[one.kind].append(agent)
        widest = max(field.widths[shape] for shape in one.held)
        able = [
            some for kind, some in free.items() if some and widest <= kind[-1] and all(map(operator.ge, kind, used))
        ]
        first = min(able, key=lambda some: order(some[-1]))
        result.append((first.pop(), one.packing(len(field.counts))))
    return result


def disperse(agents: Iterable[AgentFacts], demand: Demand, order: Order) -> Assignment:
    """Return the containers on many agents: always on the one with the fewest, and of these the first in the order.

    Shapes that fit on the fewest agents come first.
    """
    field = Field(agents, demand)
    ordered = sorted((order(agent), kind, agent) for kind, some in field.agents.items() for agent in some)
    left = [list(kind) for _key, kind, _agent in ordered]
    held = [Counter[int]() for _agent in ordered]
    sizes = [0] * len(ordered)
    able = [[at for at, some in enumerate(left) if field.most(some, shape, 1)] for shape in range(len(field.counts))]
    for shape in sorted(range(len(able)), key=lambda shape: len(able[shape])):
        emptiest = [(sizes[at], at) for at in able[shape] if field.most(left[at], shape, 1)]
        heapq.heapify(emptiest)
        for _container in range(field.counts[shape]):
            if not emptiest:
                break
            at = emptiest[0][1]
            held[at][shape] += 1
            sizes[at] += 1
            for slot, part in field.parts[shape]:
                left[at][slot] -= part
            if field.most(left[at], shape, 1):
                heapq.heapreplace(emptiest, (sizes[at], at))
            else:
                heapq.heappop(emptiest)
    shapes = range(len(field.counts))
    return [
        (agent, tuple(some[shape] for shape in shapes))
        for (_key, _kind, agent), some in zip(ordered, held, strict=True)
        if some
    ]


def most_on_one_agent(agents: Iterable[AgentFacts], demand: Demand) -> tuple[Packing, list[AgentFacts]]:
    """Return a packing of one agent with many containers, and the agents for which it was found.

    Agents are filled with the largest containers first, and with the smallest of each slot.
    """
    field = Field(agents, demand)
    shapes = range(len(field.counts))
    orders = [sorted(shapes, key=lambda shape: -max(field.fractions[shape]))]
    orders += [sorted(shapes, key=lambda shape: field.fractions[shape][slot]) for slot in range(1, len(field.least))]
    found: dict[Packing, list[AgentFacts]] = {}
    for kind, some in field.agents.items():
        fitting = [[shape for shape in order if field.widths[shape] <= kind[-1]] for order in orders]
        packings = (field.filled(kind, order, field.counts) for order in fitting)
        found.setdefault(max(packings, key=_size), []).extend(some)
    best = max(found, key=_size, default=(0,) * len(field.counts))
    return best, found.get(best, [*agents])


def _size(packing: Packing) -> tuple[int, Packing]:
    """Return a sort key: more containers come before more of the first shapes."""
    return sum(packing), packing
