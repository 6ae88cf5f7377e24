"""Replay sessions of a public trace's sizes on its nodes, and hold every placement against an exact count."""

from __future__ import annotations

import argparse
import dataclasses
import random
import time
from collections import Counter
from collections.abc import Iterable

from ansible_collections.backendai.cluster.plugins.module_utils._model.facts import AgentFacts
from ansible_collections.backendai.cluster.plugins.module_utils._model.held_session import HeldSession
from ansible_collections.backendai.cluster.plugins.plugin_utils._placement.place import NoRoom, place
from tests.bench.nodes import agent, alike, nodes, request, session

SIZES = {1: 10480, 2: 463, 4: 2044, 8: 1916, 16: 250, 32: 89}
"""How often the trace has gangs of so many containers."""

GPUS_OF_ONE = (1, 2, 4, 8)
"""The GPUs of a session of one container, as often each; a container of a larger one has one."""

LOAD = 0.95


@dataclasses.dataclass
class Counts:
    """What was counted of the decisions; ``seconds`` is the CPU time of placing alone."""

    placed: int = 0
    refused: int = 0
    on_one_agent: int = 0
    broken_rule: int = 0
    wrongly_refused: int = 0
    agents: int = 0
    fewest: int = 0
    not_fewest: int = 0
    seconds: float = 0.0


class Cluster:
    """The trace's nodes while sessions come and go."""

    def __init__(self) -> None:
        self._nodes = nodes()
        self._held: list[dict[str, HeldSession]] = [{} for _node in self._nodes]
        self._gpus: list[dict[str, int]] = [{} for _node in self._nodes]
        self.facts: list[AgentFacts] = []
        for number, node in enumerate(self._nodes):
            self.facts.append(agent(f"agent{number}", node, 0, ()))
        self._at = {facts.name: number for number, facts in enumerate(self.facts)}
        self._sessions: dict[str, list[int]] = {}
        self.gpus = sum(node[2] for node in self._nodes)
        self.taken = 0

    def rooms(self, gpus: int) -> list[int]:
        """Return how many containers of so many GPUs each node can hold: counted anew, not taken from the planner."""
        asked = request(gpus)
        rooms = []
        for (cpu, mem, count), held in zip(self._nodes, self._gpus, strict=True):
            taken = sum(held.values())
            one = request(1)
            left = (cpu - taken * one["cpu"], (mem << 30) - taken * one["mem"], count - taken)
            rooms.append(min(left[0] // asked["cpu"], left[1] // asked["mem"], left[2] // gpus))
        return rooms

    def start(self, name: str, hosts: tuple[str, ...], gpus: int, now: float) -> None:
        """Have a session on its agents."""
        counts = Counter(hosts)
        started = session(name, now, counts, gpus)
        for host, count in counts.items():
            self._held[self._at[host]][name] = started
            self._gpus[self._at[host]][name] = gpus * count
        self._sessions[name] = [self._at[host] for host in counts]
        self.taken += gpus * len(hosts)
        self._renew(self._sessions[name])

    def end_one(self, chance: random.Random) -> None:
        """End any one of the sessions."""
        name = chance.choice(list(self._sessions))
        ended = self._sessions.pop(name)
        self.taken -= sum(self._gpus[at].pop(name) for at in ended)
        for at in ended:
            del self._held[at][name]
        self._renew(ended)

    def _renew(self, changed: Iterable[int]) -> None:
        for at in changed:
            held, taken = list(self._held[at].values()), sum(self._gpus[at].values())
            self.facts[at] = agent(f"agent{at}", self._nodes[at], taken, held)


def replay(sessions: int, seed: int) -> Counts:
    """Return what came of so many sessions that arrive one after the other, others ending as they need the room."""
    chance, cluster, counts = random.Random(seed), Cluster(), Counts()
    sizes = chance.choices(list(SIZES), weights=list(SIZES.values()), k=sessions)
    for number, size in enumerate(sizes):
        gpus = chance.choice(GPUS_OF_ONE) if size == 1 else 1
        while cluster.taken + size * gpus > LOAD * cluster.gpus:
            cluster.end_one(chance)
        groups = alike(size, gpus)
        began = time.process_time()
        placed = place(cluster.facts, groups, single_node=False, selection="concentrated")
        counts.seconds += time.process_time() - began
        rooms = sorted(cluster.rooms(gpus), reverse=True)
        fewest, held = 0, 0
        while held < size and fewest < len(rooms) and rooms[fewest] > 0:
            held += rooms[fewest]
            fewest += 1
        if isinstance(placed, NoRoom):
            counts.refused += 1
            counts.wrongly_refused += held >= size
            continue
        counts.placed += 1
        counts.on_one_agent += len(placed.agents) == 1
        counts.broken_rule += rooms[0] >= size and len(placed.agents) > 1
        counts.agents += len(placed.agents)
        counts.fewest += fewest
        counts.not_fewest += len(placed.agents) != fewest
        cluster.start(f"session-{number}", placed.hosts, gpus, float(number))
    return counts


def main() -> None:
    """Print what was counted."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sessions", type=int, default=20_000, help="how many are replayed (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    counts = replay(options.sessions, options.seed)
    total = len(nodes())
    print(f"Replay of {options.sessions} sessions on {total} of the trace's 1,213 nodes, {LOAD:.0%} of GPUs taken")
    rows = (
        ("sessions placed", f"{counts.placed}", ""),
        ("  of them on one agent", f"{counts.on_one_agent}", ""),
        ("sessions without room", f"{counts.refused}", ""),
        ("  though there was room", f"{counts.wrongly_refused}", "0"),
        ("on several, though one agent had room", f"{counts.broken_rule}", "0"),
        ("on more agents than it takes", f"{counts.not_fewest}", "0"),
        ("agents used / fewest possible", f"{counts.agents / counts.fewest:.3f}", "1.000"),
        ("decisions per second, placing alone", f"{options.sessions / counts.seconds:.0f}", ">= 1000"),
    )
    print(f"{'':<40}{'':>12}{'wanted':>10}")
    for name, value, wanted in rows:
        print(f"{name:<40}{value:>12}{wanted:>10}".rstrip())


if __name__ == "__main__":
    main()
