"""Sessions and agents for the page, as many as asked for: each number gives the same."""

from __future__ import annotations

import random
import uuid
from typing import Any

from ansible_collections.backendai.cluster.plugins.module_utils._model.facts import AgentFacts
from tests.unit.builders import GIB, agent_facts

STATUSES = (*["RUNNING"] * 12, *["PENDING"] * 4, *["TERMINATED"] * 2, "CREATING", "DEGRADED", "ERROR", "CANCELLED")
PURPOSES = ("train-llama", "finetune-whisper", "notebook", "eval-mmlu", "preprocess-laion", "rl-sim")
USERS = ("alice", "bob", "carol", "dave")


def make_agents(number: int) -> dict[str, AgentFacts]:
    """Return agents with GPUs that are taken to different degrees."""
    chance = random.Random(number)
    agents = {}
    for index in range(number):
        capacity = {"cpu": 64, "mem": 512 * GIB, "cuda.device": 8}
        part = chance.choice([0, 0.25, 0.5, 0.75, 1])
        allocated = {slot: int(amount * part) for slot, amount in capacity.items()}
        facts = agent_facts("agent1", capacity=capacity, allocated=allocated, containers=int(8 * part))
        name = f"gpu-node-{index + 1:03}.example.com"
        agents[name] = AgentFacts.from_dict(name, facts.to_dict())
    return agents


def make_records(number: int, agents: list[str], now: float) -> list[dict[str, Any]]:
    """Return records of sessions with 1 to 16 containers, in every status."""
    chance = random.Random(number)
    return [_record(index, chance, agents, now) for index in range(number)]


def _record(index: int, chance: random.Random, agents: list[str], now: float) -> dict[str, Any]:
    status, size = STATUSES[index % len(STATUSES)], chance.choice([1, 1, 2, 4, 4, 8, 16])
    hosts = chance.sample(agents, min(len(agents), max(1, size // 4)))
    age = chance.randrange(60, 900_000)
    live, ended = status in ("RUNNING", "DEGRADED"), status in ("TERMINATED", "CANCELLED", "ERROR")
    name = f"{chance.choice(PURPOSES)}-{index + 1:03}"
    each = {"cpu": 8, "mem": 64 * GIB, "cuda.device": 1}
    states = {0: "exited"} if status == "DEGRADED" else {}
    reason = "the command ended with exit code 0" if status == "TERMINATED" else None
    return {
        "id": str(uuid.UUID(int=chance.getrandbits(128), version=4)),
        "name": name,
        "status": status,
        "cluster_mode": "multi-node" if len(hosts) > 1 else "single-node",
        "cluster_size": size,
        "requested_cluster_mode": "multi-node",
        "resource_group": "default",
        "network": {"driver": "vxlan", "name": name, "subnet": f"10.128.{index}.0/26", "mtu": 1450, "vni": index + 1},
        "kernels": [
            {
                "hostname": "main1" if rank == 0 else f"sub{rank}",
                "agent": hosts[rank % len(hosts)],
                "address": f"10.128.{index}.{rank + 2}",
                "status": states.get(rank, "running"),
            }
            for rank in range(size if live or status == "CREATING" else 0)
        ],
        "apps": [{"name": "jupyter", "port": 8888, "protocol": "http"}] if index % 3 == 0 else [],
        "pending": {
            "reason": f"no room for {size} of {size} containers: cuda.device {size} requested, 3 free on 9 agents",
            "shortfall": {},
        }
        if status == "PENDING"
        else None,
        "error": "agent3: the image registry.example.com/pytorch:2.3 cannot be pulled: not found"
        if status == "ERROR"
        else None,
        "user": chance.choice(USERS),
        "image": "registry.example.com/pytorch-cuda:2.3",
        "resources": {"container": each, "total": {slot: amount * size for slot, amount in each.items()}},
        "created_at": now - age,
        "started_at": now - age + 20 if live else None,
        "ended_at": now - age / 2 if ended else None,
        "ends_at": now + 40_000 if live and index % 4 == 0 else None,
        "reason": reason,
        "exit_code": 0 if status == "TERMINATED" else None,
        "queue_position": index % 7 + 1 if status == "PENDING" else None,
    }
