# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Chooses agents by topology: in as few domains as possible, in as many, or in one of a level.

Agents are in domains of several levels, from the outside in, such as a fabric, a leaf of it and a rack of that. The
cost of a set of agents is how many domains of the first level it has, then of the second and so on, then how many
agents, as one number that is compared in this order. What shall be many is counted negatively.

The agents are visited domain by domain, so that what one adds to the cost follows from how many levels of its path are
``open`` already: those that it shares with a chosen agent before it. The search goes backwards through them (dynamic
programming). For each agent and each number of open levels it has the totals that this and later agents can complete,
by their cost. A total is kept for its lowest cost only: whatever is added later, the order of two costs stays.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable, Sequence

from ...module_utils._model.facts import AgentFacts
from .agent_classes import AgentClasses
from .bounds import Bounds
from .demand import Demand
from .packing import Budget, Frontier, Packing, ReachableCounts, distribute, prune_dominated
from .uniform import Order

# How many elementary steps a search may take, about a fifth of a second.
STEPS = 2_000_000

# The bits of each number in a cost: no session has as many containers.
_BITS = 20

Path = tuple[str, ...]

# An agent with its packings.
_Choice = tuple[AgentFacts, Frontier]


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

    def step(self, opened: int, *, as_many: bool) -> int:
        """Return what an agent adds to the cost if so many levels of its path are open already."""
        domains = sum(1 << _BITS * (self.levels - level) for level in range(opened, self.levels))
        return (-domains if self.spread else domains) + (-1 if as_many else 1)

    def cost(self, agents: Iterable[AgentFacts], *, as_many: bool) -> int:
        """Return the cost of a set of agents."""
        paths = sorted(map(self.path, agents))
        shared = map(_shared, [(), *paths], paths)
        return sum(self.step(opened, as_many=as_many) for opened in shared)


def _shared(one: Path, other: Path) -> int:
    """Return how many levels two paths have in common."""
    return sum(1 for _pair in itertools.takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))


def visiting_order(agents: Iterable[AgentFacts], order: Order, topology: Topology) -> list[AgentFacts]:
    """Return agents domain by domain: domains as their first agents are in the order, and so the agents of each."""
    ordered = sorted(agents, key=order)
    first: dict[Path, int] = {}
    keys = {}
    for position, agent in enumerate(ordered):
        path = topology.path(agent)
        prefixes = [path[:level] for level in range(1, len(path) + 1)]
        keys[agent.name] = (*(first.setdefault(prefix, position) for prefix in prefixes), position)
    return sorted(ordered, key=lambda agent: keys[agent.name])


def domains_first(agents: Sequence[AgentFacts], order: Order, topology: Topology) -> Order:
    """Return an order in which the first agents, however many, are in as many domains of each level as can be."""
    visited = visiting_order(agents, order, topology)
    paths = [topology.path(agent) for agent in visited]
    shared = dict(zip((agent.name for agent in visited), map(_shared, [(), *paths], paths), strict=False))
    return lambda agent: (shared[agent.name], *order(agent))


def narrow(agents: Sequence[AgentFacts], demand: Demand, order: Order, topology: Topology) -> list[list[AgentFacts]]:
    """Return pools of agents that may hold everything, the most promising first.

    From the outside in, it is each time the domain that may need the fewest agents, until none may hold everything.
    With ``within``, these are domains of that level only.
    """
    if topology.within:
        return _promising(agents, demand, order, topology, topology.levels)
    pools = [list(agents)]
    for level in range(1, topology.levels + 1):
        promising = _promising(pools[-1], demand, order, topology, level)
        if not promising:
            break
        pools.append(promising[0])
    return pools[::-1]


def _promising(
    agents: Sequence[AgentFacts], demand: Demand, order: Order, topology: Topology, level: int
) -> list[list[AgentFacts]]:
    """Return the domains of a level that may hold everything, those that may need the fewest agents first."""
    found = []
    for domain in _domains(visiting_order(agents, order, topology), topology, level):
        bounds = Bounds(AgentClasses(domain, demand), demand.counts)
        if not bounds.unplaced():
            found.append((bounds.fewest_agents(), domain))
    return [domain for _fewest, domain in sorted(found, key=lambda one: one[0])]


def _domains(visited: Iterable[AgentFacts], topology: Topology, level: int) -> list[list[AgentFacts]]:
    return [list(domain) for _path, domain in itertools.groupby(visited, lambda agent: topology.path(agent)[:level])]


def roomiest_domain(agents: Sequence[AgentFacts], demand: Demand, order: Order, topology: Topology) -> list[AgentFacts]:
    """Return the domain of the last level that leaves the fewest containers, as far as bounds say."""

    def unplaced(domain: list[AgentFacts]) -> int:
        return Bounds(AgentClasses(domain, demand), demand.counts).unplaced()

    return min(_domains(visiting_order(agents, order, topology), topology, topology.levels), key=unplaced)


def cheapest_agents(
    classes: AgentClasses, counts: Packing, order: Order, topology: Topology, *, as_many: bool, most: int | None
) -> list[tuple[AgentFacts, Packing]]:
    """Return the agents of the lowest cost that hold everything, with what each holds; empty if none do.

    ``most`` is the cost of agents that are known to hold everything. Of agents with equal costs, it is the first ones
    that are visited. Raises :class:`BudgetExceededError`.
    """
    budget = Budget(STEPS)
    evenly = as_many or topology.spread
    totals = ReachableCounts(counts, budget, none_empty=evenly)
    width = totals.everything.bit_length()
    visited = _candidates(classes, counts, order, topology, totals)
    paths = [topology.path(agent) for agent, _packings in visited]
    # How many levels each agent shares with the one before, and the last one with none after it.
    shared = [*map(_shared, [(), *paths], paths), 0]
    # Whoever is chosen before may lower the cost by one each.
    limit = None if most is None or topology.spread else most + (sum(counts) if as_many else 0)
    table = [[{0: totals.everything}]]
    for position in reversed(range(len(visited))):
        later, after = table[-1], shared[position + 1]
        packings = visited[position][1]
        taken = {cost: totals.remove_agent(reached, packings) for cost, reached in later[after].items()}
        row = []
        for opened in range(shared[position] + 1):
            step = topology.step(opened, as_many=as_many)
            options = [*later[min(opened, after)].items(), *((cost + step, reached) for cost, reached in taken.items())]
            budget.spend(len(options) * (3 + width // 256))
            row.append(_lowest(options, limit))
        table.append(row)
    costs = [cost for cost, reached in table[-1][0].items() if reached & totals.nothing]
    if not costs:
        return []
    chosen = _trace(totals, visited, shared, table[::-1], topology, costs[0], as_many=as_many)
    packed = distribute(totals, [packings for _agent, packings in chosen], evenly=evenly)
    return [(agent, packing) for (agent, _packings), packing in zip(chosen, packed, strict=True)]


def _candidates(
    classes: AgentClasses, counts: Packing, order: Order, topology: Topology, totals: ReachableCounts
) -> list[_Choice]:
    """Return the agents that matter as they are visited: others could be exchanged for one of their own domain."""
    packings = {
        agent.name: found
        for measure, members in classes.agents.items()
        if any(map(any, found := classes.scale.frontier(measure, counts, totals.budget)))
        for agent in members
    }
    able = [agent for members in classes.agents.values() for agent in members if agent.name in packings]
    candidates: list[_Choice] = []
    for domain in _domains(visiting_order(able, order, topology), topology, topology.levels):
        alike: dict[Frontier, list[AgentFacts]] = {}
        for agent in domain:
            alike.setdefault(packings[agent.name], []).append(agent)
        sizes = {found: len(members) for found, members in alike.items()}
        kept = dict(prune_dominated(totals, sizes, sum(counts)))
        first = {agent.name for found, often in kept.items() for agent in alike[found][:often]}
        candidates += [(agent, packings[agent.name]) for agent in domain if agent.name in first]
    return candidates


def _lowest(options: list[tuple[int, int]], limit: int | None) -> dict[int, int]:
    """Return sets of totals by cost, each total only where its cost is lowest, and none beyond the limit."""
    lowest: dict[int, int] = {}
    known = 0
    for cost, reached in sorted(options):
        if limit is not None and cost > limit:
            break
        new = reached & ~known
        if new:
            lowest[cost] = lowest.get(cost, 0) | new
            known |= new
    return lowest


def _trace(
    totals: ReachableCounts,
    visited: Sequence[_Choice],
    shared: Sequence[int],
    table: Sequence[Sequence[dict[int, int]]],
    topology: Topology,
    cost: int,
    *,
    as_many: bool,
) -> list[_Choice]:
    """Return the first agents of that cost: each is chosen if it can be with those before it."""
    reached, opened, chosen = totals.nothing, 0, []
    for position, choice in enumerate(visited):
        after = shared[position + 1]
        rest = cost - topology.step(opened, as_many=as_many)
        grown = totals.add_agent(reached, choice[1])
        if grown & table[position + 1][after].get(rest, 0):
            chosen.append(choice)
            reached, cost, opened = grown, rest, after
        else:
            opened = min(opened, after)
    return chosen
