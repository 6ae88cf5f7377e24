"""Clusters with the node shapes of a public accelerator trace."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Iterable, Mapping, Sequence

from ansible_collections.backendai.cluster.plugins.module_utils._model.facts import AgentFacts
from ansible_collections.backendai.cluster.plugins.module_utils._model.plan import SessionPlan
from ansible_collections.backendai.cluster.plugins.plugin_utils._placement.place import Group
from tests.unit.builders import agent_facts, bare_plan, bare_session

GIB = 1 << 30
GPU = "cuda.device"

# Number of nodes by cores, GiB of memory and GPUs; 8 of the trace's 1,213 nodes have other shapes.
SHAPES = (
    (549, 96, 384, 8),
    (387, 104, 512, 2),
    (107, 16, 120, 2),
    (39, 128, 768, 8),
    (28, 32, 128, 4),
    (22, 64, 256, 2),
    (21, 96, 768, 8),
    (19, 8, 32, 1),
    (17, 96, 384, 4),
    (9, 48, 368, 4),
    (7, 64, 256, 8),
)

ORDINARY = agent_facts("agent0", images={}, underlay=None, addresses=())
CORES = tuple(range(max(cores for _count, cores, _mem, _gpus in SHAPES)))

# As many as a cluster has at most.
AGENTS = 1000

# CPU and memory per GPU: the proportion of the smallest nodes, so that GPUs are scarcest.
CPU_OF_ONE, MEM_OF_ONE = 8, 32 * GIB


def request(gpus: int) -> dict[str, int]:
    """Return the resource request of a container with that many GPUs."""
    return {"cpu": gpus * CPU_OF_ONE, "mem": gpus * MEM_OF_ONE, GPU: gpus}


def equal_containers(size: int, gpus: int = 1) -> list[Group]:
    """Return the groups of a session of equal containers."""
    groups = [Group("main", request(gpus), 1), Group("sub", request(gpus), size - 1)]
    return [group for group in groups if group.count]


def session(name: str, created_at: float, containers: Mapping[str, int]) -> SessionPlan:
    """Return the plan of a session with that many containers of one GPU on each agent."""
    demand = request(1)
    return bare_plan(name, created_at, {agent: [demand] * count for agent, count in containers.items()})


def agent(name: str, node: Sequence[int], gpus_taken: int, sessions: Iterable[SessionPlan]) -> AgentFacts:
    """Return the facts of an agent on such a node, with that many GPUs allocated with their CPU and memory."""
    cpu, mem, gpus = node
    return dataclasses.replace(
        ORDINARY,
        name=name,
        capacity={"cpu": cpu, "mem": mem * GIB, GPU: gpus},
        allocated=request(gpus_taken),
        online_cpus=CORES[:cpu],
        containers=gpus_taken,
        sessions=tuple(map(bare_session, sessions)),
    )


def cluster(size: int, load: float, rng: random.Random) -> list[AgentFacts]:
    """Return that many agents with that share of GPUs allocated to half as many sessions, most on several agents."""
    return cluster_with_plans(size, load, rng)[0]


def cluster_with_plans(size: int, load: float, rng: random.Random) -> tuple[list[AgentFacts], dict[str, SessionPlan]]:
    """Return such agents, and the plans of their sessions by id."""
    drawn = [node for _count, *node in rng.choices(SHAPES, weights=[count for count, *_node in SHAPES], k=size)]
    parts: list[list[tuple[int, int]]] = []
    hosts: dict[int, dict[str, int]] = {}
    for number, node in enumerate(drawn):
        used = sum(rng.random() < load for _gpu in range(node[2]))
        halves = [part for part in (used // 2, used - used // 2) if part]
        owners = rng.sample(range(max(2, size // 2)), len(halves))
        parts.append(list(zip(owners, halves, strict=True)))
        for owner, gpus in parts[-1]:
            hosts.setdefault(owner, {})[f"agent{number}"] = gpus
    sessions = {owner: session(f"held-{owner}", float(owner), counts) for owner, counts in hosts.items()}
    agents = [
        agent(
            f"agent{number}",
            node,
            sum(gpus for _owner, gpus in parts_of_agent),
            [sessions[owner] for owner, _gpus in parts_of_agent],
        )
        for number, (node, parts_of_agent) in enumerate(zip(drawn, parts, strict=True))
    ]
    return agents, {plan.id: plan for plan in sessions.values()}
