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
from .fewest_domains import Path, fewest_domains, shared
from .mixed import Field
from .uniform import Order

# In how many domains of a level unlike containers are tried, of those that no sum rules out the ones with most room.
MAX_DOMAINS = 16


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


# Places a session on some agents, if they hold it.
Hold = Callable[[Sequence[AgentFacts]], Placement | None]


class Domains:
    """The domains of agents, with what each has room for."""

    def __init__(self, agents: Sequence[AgentFacts], demand: Demand, order: Order, topology: Topology) -> None:
        self._topology, self._demand, self._alike = topology, demand, len(demand.counts) == 1
        names = [agent.name for agent in agents]
        capacities = [bundle.capacities(agents) for bundle in demand.per_shape]
        self._able = {name for name, fitting in zip(names, zip(*capacities, strict=True), strict=True) if any(fitting)}
        if self._alike:
            self._needed = [demand.size]
            rooms = [[room] for room in capacities[0]]
        else:
            amounts = demand.total.amounts
            self._needed = [whole for _slot, whole in amounts]
            rooms = [[min(agent.free.get(slot, 0), whole) for slot, whole in amounts] for agent in agents]
        self._rooms = dict(zip(names, rooms, strict=True))
        # Agents that hold nothing come last, so that they move no domain forward.
        self._visited = self._domain_by_domain(
            sorted(agents, key=lambda agent: (agent.name not in self._able, *order(agent)))
        )

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
        inside of it as hold it. Of several the one with the fewest domains, then agents, or the most if ``as_many``,
        then the first.
        """
        for level in range(self._topology.levels, 0, -1):
            able = [domain for unplaced, domain in self.ranked(level) if not unplaced]
            narrowed = (self._narrow(domain, level + 1, hold, as_many=as_many) for domain in able)
            found = [placed for placed in narrowed if placed]
            if found:
                return min(found, key=lambda placed: self.cost(placed, as_many=as_many))
        return None if self._unplaced(self._visited) else self._narrow(self._visited, 1, hold, as_many=as_many)

    def ranked(self, level: int) -> list[tuple[int, list[AgentFacts]]]:
        """Return the domains of a level after how many containers have no place in each at least, the fewest first.

        Of equal ones those with most room come first, and for unlike containers not more than are tried.
        """
        bounded = [(self._unplaced(domain), domain) for domain in self._split(self._visited, level)]
        ranked = sorted(bounded, key=lambda bound: (bound[0], -self._room(bound[1])))
        return ranked if self._alike else ranked[:MAX_DOMAINS]

    def _unplaced(self, agents: Sequence[AgentFacts]) -> int:
        """Return how many containers have no place on some agents at least: exactly so if they are alike."""
        if self._alike:
            return max(0, self._demand.size - sum(self._rooms[agent.name][0] for agent in agents))
        return Field(agents, self._demand).unplaced()

    def _narrow(self, agents: list[AgentFacts], level: int, hold: Hold, *, as_many: bool) -> Placement | None:
        """Return the placement in few domains of that level and those inside, of agents that no sum rules out.

        For containers that are alike they are the fewest, else those with most room, as few as hold them.
        """
        if self._alike:
            able = [agent for agent in agents if agent.name in self._able]
            inner = self._split(able, self._topology.levels)
            paths = [self._topology.path(domain[0]) for domain in inner]
            rooms = [[self._rooms[agent.name][0] for agent in domain] for domain in inner]
            chosen = fewest_domains(paths, rooms, self._demand.size, as_many=as_many)
            return hold([agent for at in chosen for agent in inner[at]])
        placed = hold(agents)
        for inside in range(level, self._topology.levels + 1) if placed else ():
            domains = sorted(self._split(agents, inside), key=lambda domain: -self._room(domain))
            for many in range(1, len(domains)):
                some = [agent for domain in domains[:many] for agent in domain]
                fewer = hold(some) if self._room(some) >= 1 and not self._unplaced(some) else None
                if fewer:
                    agents, placed = some, fewer
                    break
        return placed

    def cost(self, placed: Placement, *, as_many: bool) -> tuple[Any, ...]:
        """Return a sort key: the fewest domains of each level, the fewest agents or ``as_many``, then the order."""
        chosen = {*placed.agents}
        positions = [at for at, agent in enumerate(self._visited) if agent.name in chosen]
        paths = [self._topology.path(self._visited[at]) for at in positions]
        domains = [len({path[:level] for path in paths}) for level in range(1, self._topology.levels + 1)]
        return *domains, -len(paths) if as_many else len(paths), positions[0]

    def many(self, *, as_many: bool) -> Iterator[list[AgentFacts]]:
        """Yield agents in as many domains of each level as possible, few agents first, or ``as_many`` as there are.

        The agents are listed domain by domain. First there is one of each domain, then others as they have room.
        """
        levels = self._topology.levels
        able = [agent for agent in self._visited if agent.name in self._able]
        roomiest = sorted(able, key=lambda agent: -self._room([agent]))
        visited = self._domain_by_domain(roomiest)
        paths = [self._topology.path(agent) for agent in visited]
        common = dict(zip((agent.name for agent in visited), map(shared, [(), *paths], paths), strict=False))
        ordered = sorted(roomiest, key=lambda agent: common[agent.name])
        apart = sum(1 for level in common.values() if level < levels)
        fewest = min(self._demand.size, len(ordered) if as_many else apart)
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
