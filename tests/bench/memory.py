"""Measure how much memory the facts of many agents take, in this process."""

from __future__ import annotations

import json
import resource
from typing import Any

from ansible_collections.backendai.cluster.plugins.module_utils._model.facts import AgentFacts
from tests.bench.nodes import GIB, GPU, nodes, request

AGENTS = 100_000
# How many sessions each agent has a part of, each of eight containers on two agents.
SESSIONS = 2
NODES = nodes()


def read_facts(number: int) -> AgentFacts:
    """Return the facts of one agent as they come over the wire."""
    name = f"agent{number}.cluster.example.org"
    return AgentFacts.from_dict(name, json.loads(_agent_data(name, number)))


def _agent_data(name: str, number: int) -> str:
    cpu, mem, gpus = NODES[number % len(NODES)]
    digest = f"sha256:{number:064x}"
    data: dict[str, Any] = {
        "resource_group": "default",
        "schedulable": True,
        "architecture": "x86_64",
        "engine": "26.1.5",
        "kit": "0123456789ab",
        "program": digest.removeprefix("sha256:"),
        "online_cpus": list(range(cpu)),
        "capacity": {"cpu": cpu, "mem": mem * GIB, GPU: gpus},
        "taken": request(SESSIONS * 4),
        "devices": [],
        "warnings": [],
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
            *(f"10.128.{number & 255}.{16 * part}/28" for part in range(SESSIONS)),
        ],
        "addresses": [f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}"],
        "udp_ports": {4789: "vxlan"},
        "tcp_ports": [22, *range(30000, 30000 + SESSIONS * 4)],
        "allow_host_network": False,
        "infiniband": False,
        "swarm": None,
        "vnis": [number * SESSIONS + part for part in range(SESSIONS)],
        "images": {"registry.example.org/pytorch:2.3": {"id": digest, "digest": digest, "reference": ""}},
        "missing_paths": [],
        "sessions": [_session(name, number * SESSIONS + part) for part in range(SESSIONS)],
    }
    return json.dumps(data)


def _session(agent: str, number: int) -> dict[str, Any]:
    names = [agent] * 4 + ["another"] * 4
    kernels = [{"rank": rank, "agent": name, "resources": request(1)} for rank, name in enumerate(names)]
    plan = {
        "id": f"{number:032x}",
        "name": f"session-{number}",
        "created_at": 1.8e9 + number,
        "kernels": kernels,
        "network": {"port": 4789},
    }
    return {"plan": plan, "expired": False}


def main() -> None:
    """Print the most memory that this process has taken, in GiB, as JSON."""
    _facts = [read_facts(number) for number in range(AGENTS)]
    # Kilobytes on Linux.
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1 << 20)
    print(json.dumps({"facts_memory": [peak]}))


if __name__ == "__main__":
    main()
