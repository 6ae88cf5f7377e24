"""Measure the memory of the facts of many agents, in this process."""

from __future__ import annotations

import dataclasses
import json
import resource

from ansible_collections.backendai.cluster.plugins.module_utils._model.facts import AgentFacts
from tests.bench.nodes import agent, nodes, session

AGENTS = 100_000
# Sessions per agent, each of eight containers on two agents.
SESSIONS = 2
NODES = nodes()


def read_facts(number: int) -> AgentFacts:
    """Return the facts of one agent, parsed from JSON."""
    name, other = (f"agent{index}.cluster.example.org" for index in (number, number ^ 1))
    sessions = [
        session(f"session-{number | 1}-{index}", 1.8e9 + (number | 1), dict.fromkeys(sorted((name, other)), 4))
        for index in range(SESSIONS)
    ]
    facts = agent(name, NODES[number % len(NODES)], SESSIONS * 4, sessions)
    networks = ["172.17.0.0/16", "10.0.0.0/9", *(f"10.128.{number & 255}.{16 * index}/28" for index in range(SESSIONS))]
    vnis = [number * SESSIONS + index for index in range(SESSIONS)]
    text = json.dumps(dataclasses.replace(facts, networks=tuple(networks), vnis=tuple(vnis)).to_dict())
    return AgentFacts.from_dict(name, json.loads(text))


def main() -> None:
    """Print the peak memory of this process, in GiB, as JSON."""
    _facts = [read_facts(number) for number in range(AGENTS)]
    # Kilobytes on Linux.
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1 << 20)
    print(json.dumps({"facts_memory": [peak]}))


if __name__ == "__main__":
    main()
