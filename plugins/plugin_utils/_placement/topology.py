# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Chooses agents by topology: in few domains, in many, or in one of a level.

Agents are in domains of several levels, from the outside in, such as a fabric, a leaf of it and a rack of that. Domains
are looked at in the order of their first agents; whether some of them hold a session, its placement there says.
"""

from __future__ import annotations

import bisect
import dataclasses
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from ...module_utils._model.facts import AgentFacts
from .demand import Demand, Placement
from .uniform import Order

# In how many domains of a level, those with most room, a session is tried.
MAX_DOMAINS = 16

Path = tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class Topology:
    """What a session asks of the domains of its agents, of the first ``levels``.

    They are as few as possible, or as many to ``spread``. With ``within``, one domain of the last of these levels holds
    the session, or it waits.
    """

    levels: int
    spread: bool = False
    within: bool = False

    def path(self, agent: AgentFacts) -> Path:
        """Return the domains of an agent."""
        return agent.topology[: self.levels]


def _shared(one: Path, other: Path) -> int:
    """Return how many levels two paths have in common."""
    return sum(1 for _pair in itertools.takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))


# Places a session on some agents, if they hold it.
Hold = Callable[[Sequence[AgentFacts]], Placement | None]


class Domains:
    """The domains of agents, with what each has room for."""

    def __init__(self, agents: Sequence[AgentFacts], demand: Demand, order: Order, topology: Topology) -> None:
        self._topology, self._size = topology, demand.size
        if len(demand.counts) == 1:
            self._needed = [demand.size]
            rooms = [[room] for room in demand.per_shape[0].capacities(agents)]
        else:
            amounts = demand.total.amounts
            self._needed = [whole for _slot, whole in amounts]
            rooms = [[min(agent.free.get(slot, 0), whole) for slot, whole in amounts] for agent in agents]
        self._rooms = dict(zip((agent.name for agent in agents), rooms, strict=True))
        self._shapes = demand.per_shape
        self._visited = self._domain_by_domain(sorted(agents, key=order))

    def _domain_by_domain(self, ordered: Sequence[AgentFacts]) -> list[AgentFacts]:
        """Return agents domain by domain: domains as their first agents are in the order, and so the agents of each."""
        first: dict[Path, int] = {}
        keys = {}
        for position, agent in enumerate(ordered):
            path = self._topology.path(agent)
            prefixes = [path[:level] for level in range(1, len(path) + 1)]
            keys[agent.name] = [*(first.setdefault(prefix, position) for prefix in prefixes), position]
        return sorted(ordered, key=lambda agent: keys[agent.name])

    def few(self, hold: Hold, *, as_many: bool) -> Placement | None:
        """Return the placement in few domains, as far as ``hold`` finds one on some agents.

        That is in one domain, of the innermost level where one holds everything, and there in as few of the levels
        inside of it as hold it, those with most room. Of several the one with the fewest domains, then agents.
        """
        topology = self._topology
        for level in range(topology.levels, topology.levels - 1 if topology.within else 0, -1):
            able = [domain for domain in self._split(self._visited, level) if self._room(domain) >= 1]
            able = sorted(able, key=lambda domain: -self._room(domain))[:MAX_DOMAINS]
            found = [placed for placed in (self._narrow(domain, level + 1, hold) for domain in able) if placed]
            if found:
                return min(found, key=lambda placed: self._cost(placed, as_many=as_many))
        return None if topology.within else self._narrow(self._visited, 1, hold)

    def _narrow(self, agents: list[AgentFacts], level: int, hold: Hold) -> Placement | None:
        """Return the placement in the domains with most room, of that level and those inside, as few as hold it."""
        placed = hold(agents)
        for inside in range(level, self._topology.levels + 1) if placed else ():
            domains = sorted(self._split(agents, inside), key=lambda domain: -self._room(domain))
            for many in range(1, len(domains)):
                some = [agent for domain in domains[:many] for agent in domain]
                fewer = hold(some) if self._room(some) >= 1 else None
                if fewer:
                    agents, placed = some, fewer
                    break
        return placed

    def _cost(self, placed: Placement, *, as_many: bool) -> tuple[Any, ...]:
        chosen = {*placed.agents}
        positions = [at for at, agent in enumerate(self._visited) if agent.name in chosen]
        paths = [self._topology.path(self._visited[at]) for at in positions]
        domains = [len({path[:level] for path in paths}) for level in range(1, self._topology.levels + 1)]
        return *domains, -len(paths) if as_many else len(paths), positions[0]

    def roomiest(self) -> list[AgentFacts]:
        """Return the domain of the last level with most room."""
        return max(self._split(self._visited, self._topology.levels), key=self._room)

    def many(self, *, as_many: bool) -> Iterator[list[AgentFacts]]:
        """Yield agents in as many domains of each level as possible, few agents first, or ``as_many`` as there are.

        The agents are listed domain by domain. First there is one of each domain, then others as they have room.
        """
        levels = self._topology.levels
        able = [agent for agent in self._visited if any(shape.capacity(agent) for shape in self._shapes)]
        roomiest = sorted(able, key=lambda agent: -self._room([agent]))
        visited = self._domain_by_domain(roomiest)
        paths = [self._topology.path(agent) for agent in visited]
        shared = dict(zip((agent.name for agent in visited), map(_shared, [(), *paths], paths), strict=False))
        ordered = sorted(roomiest, key=lambda agent: shared[agent.name])
        apart = sum(1 for level in shared.values() if level < levels)
        fewest = min(self._size, len(ordered) if as_many else apart)
        sizes = range(max(1, fewest), len(ordered) + 1)
        first = bisect.bisect_left(sizes, True, key=lambda size: self._room(ordered[:size]) >= 1)
        while first < len(sizes):
            chosen = {agent.name for agent in ordered[: sizes[first]]}
            yield [agent for agent in self._visited if agent.name in chosen]
            first += 1 + sizes[first] // 8

    def _split(self, agents: Iterable[AgentFacts], level: int) -> list[list[AgentFacts]]:
        """Return the domains of a level, of agents that are listed domain by domain."""
        grouped = itertools.groupby(agents, lambda agent: self._topology.path(agent)[:level])
        return [list(domain) for _path, domain in grouped]

    def _room(self, agents: Iterable[AgentFacts]) -> float:
        """Return how often all containers would fit as far as sums say; below 1 they do not."""
        sums = map(sum, zip(*(self._rooms[agent.name] for agent in agents), strict=True))
        return min((room / needed for room, needed in zip(sums, self._needed, strict=False)), default=0.0)
