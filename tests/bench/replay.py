"""Replay sessions of a public trace's sizes on its nodes, and compare every placement with an exact count."""

from __future__ import annotations

import dataclasses
import json
import random
import time
from collections import Counter
from collections.abc import Iterable

from ansible_collections.backendai.cluster.plugins.module_utils._model.facts import AgentFacts
from ansible_collections.backendai.cluster.plugins.module_utils._model.plan import SessionPlan
from ansible_collections.backendai.cluster.plugins.plugin_utils._placement.place import Unschedulable, place
from tests.bench.nodes import CPU_OF_ONE, GIB, MEM_OF_ONE, agent, equal_containers, nodes, request, session

# Number of gangs in the trace by number of containers.
SIZES = {1: 10480, 2: 463, 4: 2044, 8: 1916, 16: 250, 32: 89}
# GPUs of a session of one container, equally often; containers of larger sessions have one.
GPUS_OF_ONE = (1, 2, 4, 8)

# The share of allocated GPUs.
LOAD = 0.95
SESSIONS, SEED = 20_000, 1


@dataclasses.dataclass
class Counts:
    """Counted errors of decisions; ``seconds`` is the CPU time of placement alone."""

    broken_rule: int = 0
    wrongly_refused: int = 0
    not_fewest: int = 0
    seconds: float = 0.0


class Cluster:
    """The trace's nodes and the sessions on them."""

    def __init__(self) -> None:
        self._nodes = nodes()
        self._held: list[dict[str, SessionPlan]] = [{} for _node in self._nodes]
        self._gpus: list[dict[str, int]] = [{} for _node in self._nodes]
        self._free = [(cpu, mem * GIB, gpus) for cpu, mem, gpus in self._nodes]
        self.facts: list[AgentFacts] = []
        for number, node in enumerate(self._nodes):
            self.facts.append(agent(f"agent{number}", node, 0, ()))
        self._number_of = {facts.name: number for number, facts in enumerate(self.facts)}
        self._sessions: dict[str, list[int]] = {}
        self.gpus = sum(node[2] for node in self._nodes)
        self.taken = 0

    def capacities(self, gpus: int) -> list[int]:
        """Return how many containers with that many GPUs fit on each node, counted independently of the planner."""
        cpu, mem, _gpus = request(gpus).values()
        return [min(free[0] // cpu, free[1] // mem, free[2] // gpus) for free in self._free]

    def start(self, name: str, hosts: tuple[str, ...], gpus: int, now: float) -> None:
        """Add a session to its agents."""
        counts = Counter(hosts)
        held_session = session(name, now, counts, gpus)
        for host, count in counts.items():
            self._held[self._number_of[host]][name] = held_session
            self._gpus[self._number_of[host]][name] = gpus * count
        self._sessions[name] = [self._number_of[host] for host in counts]
        self.taken += gpus * len(hosts)
        self._update_facts(self._sessions[name])

    def end_one(self, rng: random.Random) -> None:
        """Remove a random session."""
        name = rng.choice(list(self._sessions))
        ended = self._sessions.pop(name)
        self.taken -= sum(self._gpus[number].pop(name) for number in ended)
        for number in ended:
            del self._held[number][name]
        self._update_facts(ended)

    def _update_facts(self, changed: Iterable[int]) -> None:
        for number in changed:
            sessions, taken = list(self._held[number].values()), sum(self._gpus[number].values())
            cpu, mem, gpus = self._nodes[number]
            self._free[number] = (cpu - taken * CPU_OF_ONE, mem * GIB - taken * MEM_OF_ONE, gpus - taken)
            self.facts[number] = agent(f"agent{number}", self._nodes[number], taken, sessions)


def replay(sessions: int, seed: int) -> Counts:
    """Place that many sessions one after the other, removing others when capacity is needed; return the counts."""
    rng, cluster, counts = random.Random(seed), Cluster(), Counts()
    sizes = rng.choices(list(SIZES), weights=list(SIZES.values()), k=sessions)
    for number, size in enumerate(sizes):
        gpus = rng.choice(GPUS_OF_ONE) if size == 1 else 1
        while cluster.taken + size * gpus > LOAD * cluster.gpus:
            cluster.end_one(rng)
        groups = equal_containers(size, gpus)
        started_at = time.process_time()
        placed = place(cluster.facts, groups, single_node=False, selection="concentrated")
        counts.seconds += time.process_time() - started_at
        capacities = sorted(cluster.capacities(gpus), reverse=True)
        fewest, capacity = 0, 0
        while capacity < size and fewest < len(capacities) and capacities[fewest] > 0:
            capacity += capacities[fewest]
            fewest += 1
        if isinstance(placed, Unschedulable):
            counts.wrongly_refused += capacity >= size
            continue
        counts.broken_rule += capacities[0] >= size and len(placed.agents) > 1
        counts.not_fewest += len(placed.agents) != fewest
        cluster.start(f"session-{number}", placed.hosts, gpus, float(number))
    return counts


def figures(counts: Counts, sessions: int) -> dict[str, list[float]]:
    """Return the figures of a replay of that many sessions."""
    return {
        "placements_not_on_one_agent": [counts.broken_rule],
        "placements_on_surplus_agents": [counts.not_fewest],
        "placements_refused_with_room": [counts.wrongly_refused],
        "decisions_per_second": [sessions / counts.seconds],
    }


def main() -> None:
    """Print the figures as JSON."""
    print(json.dumps(figures(replay(SESSIONS, SEED), SESSIONS)))


if __name__ == "__main__":
    main()
