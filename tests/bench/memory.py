"""Tell how much memory the facts of many agents take, in this process."""

from __future__ import annotations

import dataclasses
import json
import resource
import sys

from ansible_collections.backendai.cluster.plugins.module_utils._model.facts import AgentFacts
from tests.bench.nodes import agent, nodes, session

AGENTS = 10_000
SESSIONS = 2
"""How many sessions each agent has a part of, each of eight containers on two agents."""


def text_of(number: int) -> str:
    """Return what an agent says of itself, as the JSON that comes over the wire."""
    name, shapes = f"agent{number}.cluster.example.org", nodes()
    other = f"agent{number ^ 1}.cluster.example.org"
    sessions = [session(f"session-{number | 1}-{one}", 1.8e9 + number, {name: 4, other: 4}) for one in range(SESSIONS)]
    there = agent(name, shapes[number % len(shapes)], SESSIONS * 4, sessions)
    networks = ["172.17.0.0/16", "10.0.0.0/9", *(f"10.128.{number & 255}.{16 * one}/28" for one in range(SESSIONS))]
    vnis = [number * SESSIONS + one for one in range(SESSIONS)]
    return json.dumps(dataclasses.replace(there, networks=tuple(networks), vnis=tuple(vnis)).to_dict())


def main() -> None:
    """Print how much this process has taken at most."""
    facts = [AgentFacts.from_dict(f"agent{number}", json.loads(text_of(number))) for number in range(AGENTS)]
    # Kilobytes on Linux, bytes on a Mac.
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1 << 20 if sys.platform == "linux" else 1 << 30)
    print(
        f"Facts of {len(facts):,} agents, each with a part of {SESSIONS} sessions: {most:.2f} GiB at most, wanted < 1"
    )


if __name__ == "__main__":
    main()
