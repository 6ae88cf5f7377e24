"""Tell how much memory the facts of many agents take, in this process."""

from __future__ import annotations

import json
import resource
import sys
from typing import Any

from ansible_collections.backendai.cluster.plugins.module_utils._model.facts import AgentFacts
from tests.bench.nodes import GIB, GPU, nodes, request

AGENTS = 100_000
SESSIONS = 2
"""How many sessions each agent has a part of, each of eight containers on two agents."""


def told(number: int) -> str:
    """Return what an agent says of itself, as the JSON that comes over the wire."""
    shapes = nodes()
    cpu, mem, gpus = shapes[number % len(shapes)]
    name, digest = f"agent{number}.cluster.example.org", f"sha256:{number:064x}"
    data: dict[str, Any] = {
        "resource_group": "default",
        "schedulable": True,
        "architecture": "x86_64",
        "online_cpus": list(range(cpu)),
        "capacity": {"cpu": cpu, "mem": mem * GIB, GPU: gpus},
        "taken": request(SESSIONS * 4),
        "containers": SESSIONS * 4,
        "max_containers": 0,
        "underlay": {
            "address": f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}",
            "interface": "eth0",
            "mtu": 1500,
        },
        "networks": [
            "172.17.0.0/16",
            "10.0.0.0/9",
            *(f"10.128.{number & 255}.{16 * one}/28" for one in range(SESSIONS)),
        ],
        "vnis": [number * SESSIONS + one for one in range(SESSIONS)],
        "images": {"registry.example.org/pytorch:2.3": {"id": digest, "digest": digest}},
        "missing_paths": [],
        "sessions": [_session(name, number * SESSIONS + one) for one in range(SESSIONS)],
    }
    return json.dumps(data)


def _session(agent: str, number: int) -> dict[str, Any]:
    names = [agent] * 4 + ["another"] * 4
    kernels = [{"rank": rank, "agent": name, "resources": request(1)} for rank, name in enumerate(names)]
    plan = {"id": f"{number:032x}", "name": f"session-{number}", "created_at": 1.8e9 + number, "kernels": kernels}
    return {"plan": plan, "expired": False}


def main() -> None:
    """Print how much this process has taken at most."""
    facts = [AgentFacts.from_dict(f"agent{number}", json.loads(told(number))) for number in range(AGENTS)]
    # Kilobytes on Linux, bytes on a Mac.
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1 << 20 if sys.platform == "linux" else 1 << 30)
    print(
        f"Facts of {len(facts):,} agents, each with a part of {SESSIONS} sessions: {most:.2f} GiB at most, wanted < 1"
    )


if __name__ == "__main__":
    main()
