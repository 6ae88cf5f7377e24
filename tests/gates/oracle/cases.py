"""Seeded cases of which two commits decide: placements on agents, and requests whose whole plan is made.

A seed and a number make a case, the same ones in every commit that has the builders of the unit tests.
"""

from __future__ import annotations

import dataclasses
import functools
import random
from collections.abc import Sequence
from typing import Any

from ansible_collections.backendai.cluster.plugins.module_utils._model.facts import AgentFacts
from ansible_collections.backendai.cluster.plugins.plugin_utils._placement.place import Group, Topology
from tests.unit.builders import GIB, IMAGE, agent_facts, bare_plan, bare_session

GPU = "cuda.device"
SELECTIONS = ("concentrated", "concentrated", "concentrated", "roundrobin", "dispersed")
# Cores, GiB of memory and GPUs of nodes, as often as in a public trace of accelerators.
SHAPES = {
    (96, 384, 8): 549, (104, 512, 2): 387, (16, 120, 2): 107, (128, 768, 8): 39, (32, 128, 4): 28, (64, 256, 2): 22,
    (96, 768, 8): 21, (8, 32, 1): 19, (96, 384, 4): 17, (48, 368, 4): 9, (64, 256, 8): 7,
}  # fmt: skip
CORES = tuple(range(128))
# How many cases of one shape are about the same agents.
PER_CLUSTER = 200


@dataclasses.dataclass(frozen=True)
class Case:
    """One decision: these groups on these agents."""

    agents: Sequence[AgentFacts]
    groups: Sequence[Group]
    selection: str
    single_node: bool = False
    topology: Topology | None = None


@functools.lru_cache(maxsize=1)
def _template() -> AgentFacts:
    return agent_facts("agent0", images={}, underlay=None, addresses=())


def _agent(at: int, capacity: dict[str, int], allocated: dict[str, int], **changes: Any) -> AgentFacts:
    known: dict[str, Any] = {"online_cpus": CORES[: max(1, min(128, capacity["cpu"]))], **changes}
    return dataclasses.replace(_template(), name=f"agent{at}", capacity=capacity, allocated=allocated, **known)


def _nodes(rng: random.Random, size: int, load: float) -> list[AgentFacts]:
    """Return agents of the trace's shapes with that share of GPUs taken, each with the cores and memory beside it."""
    agents = []
    for at, (cpu, mem, gpus) in enumerate(rng.choices(list(SHAPES), list(SHAPES.values()), k=size)):
        taken = sum(rng.random() < load for _gpu in range(gpus))
        used = {"cpu": 8 * taken, "mem": 32 * GIB * taken, GPU: taken}
        path = (f"fabric{at // 64}", f"leaf{at // 16}", f"rack{at // 4}")
        agents.append(_agent(at, {"cpu": cpu, "mem": mem * GIB, GPU: gpus}, used, containers=taken, topology=path))
    return agents


def _request(rng: random.Random) -> dict[str, int]:
    gpus = rng.choice((0, 0, 1, 1, 2, 4))
    cpu = rng.choice((1, 2, 4, 8, 16, 8 * gpus or 1, rng.randint(1, 48)))
    mem = rng.choice((cpu * 4, gpus * 32 or 4, rng.randint(1, 128)))
    return {"cpu": cpu, "mem": mem * GIB, **({GPU: gpus} if gpus else {})}


@functools.lru_cache(maxsize=1)
def _small_cluster(seed: str) -> list[AgentFacts]:
    """Return up to 24 agents of any size, some of them overcommitted, at their limit of containers, or used lately."""
    rng = random.Random(seed)
    agents = []
    for at in range(rng.choice((1, 2, 3, 6, 12, 24))):
        capacity = {"cpu": rng.randint(0, 16), "mem": rng.randint(0, 16) * GIB, GPU: rng.choice((0, 0, 1, 4, 8))}
        allocated = {
            slot: rng.choice((0, amount // 4, amount // 2, amount * 9 // 8)) for slot, amount in capacity.items()
        }
        session = bare_session(bare_plan("old", float(rng.randint(0, 3)), {"elsewhere": [{}]}))
        limit = rng.choice((0, 0, 0, rng.randint(1, 12)))
        online = CORES[: rng.choice((1, 4, 16, 16))]
        agents.append(
            _agent(at, capacity, allocated, containers=rng.randint(0, 6), max_containers=limit, sessions=(session,),
                   online_cpus=online)
        )  # fmt: skip
    return agents


def one_shape(seed: str, number: int) -> Case:
    """Return a decision about containers that are alike."""
    rng = random.Random(f"{seed}-one-{number}")
    request = {"cpu": rng.choice((0, 1, 1, 2, 3, 8)), "mem": rng.choice((0, 1, 1, 2, 5)) * GIB}
    request |= {GPU: rng.choice((1, 1, 2))} if rng.random() < 0.3 else {}
    size = rng.choice((1, 2, 4, 8, rng.randint(1, 32), rng.randint(1, 128)))
    groups = [Group("main", request, 1), Group("sub", {**request, "shmem": GIB}, size - 1)][: 2 if size > 1 else 1]
    agents = _small_cluster(f"{seed}-{number // PER_CLUSTER}")
    return Case(agents, groups, rng.choice(SELECTIONS), rng.random() < 0.2)


def unlike(seed: str, number: int) -> Case:
    """Return a decision about 3 to 8 roles on 40 to 200 agents."""
    rng = random.Random(f"{seed}-unlike-{number}")
    agents = _nodes(rng, rng.randint(40, 200), rng.choice((0.2, 0.5, 0.8, 0.95)))
    groups = [Group("main", _request(rng), 1)]
    groups += [Group(f"role{at}", _request(rng), rng.choice((1, 2, 4, 8, 16))) for at in range(1, rng.randint(3, 8))]
    return Case(agents, groups, rng.choice(SELECTIONS), rng.random() < 0.1)


def planted(seed: str, number: int) -> Case:
    """Return a decision with room by construction: some of the containers fill seven eighths of an agent at most."""
    rng = random.Random(f"{seed}-planted-{number}")
    requests = [_request(rng) for _role in range(rng.randint(2, 6))]
    size = rng.choice((8, 32, 128, 512, 1024))
    counts = [0] * len(requests)
    agents: list[AgentFacts] = []
    while sum(counts) < size:
        node = _nodes(rng, 1, rng.choice((0.0, 0.5)))[0]
        left = {slot: amount * 7 // 8 for slot, amount in node.free.items()}
        for shape in rng.choices(range(len(requests)), k=min(40, size - sum(counts))):
            if all(left[slot] >= amount for slot, amount in requests[shape].items()):
                left = {slot: amount - requests[shape].get(slot, 0) for slot, amount in left.items()}
                counts[shape] += 1
        agents.append(dataclasses.replace(node, name=f"agent{len(agents)}"))
    groups = [Group(f"role{at}", *some) for at, some in enumerate(zip(requests, counts, strict=True)) if some[1]]
    return Case(agents, groups, rng.choice(("concentrated", "roundrobin", "dispersed")))


def by_topology(seed: str, number: int) -> Case:
    """Return a decision by topology about equal containers, or every second time about unlike ones."""
    rng = random.Random(f"{seed}-topology-{number}")
    agents = _nodes(rng, rng.choice((24, 40, 80, 200)), rng.choice((0.2, 0.5, 0.8)))
    topology = rng.choice((Topology(3), Topology(3, spread=True), Topology(rng.randint(1, 3), within=True)))
    counts = [1, *(rng.choice((1, 2, 4)) for _role in range(rng.randint(2, 4)))]
    groups = [Group(f"role{at}", _request(rng), count) for at, count in enumerate(counts)]
    if number % 2:
        groups = [Group("role0", _request(rng), rng.choice((8, 16, 24, 32)))]
    return Case(agents, groups, rng.choice(SELECTIONS), topology=topology)


def racks(seed: str, number: int) -> Case:
    """Return a decision by topology about containers that are alike, on 20 to 50 racks."""
    rng = random.Random(f"{seed}-racks-{number}")
    agents = _nodes(rng, rng.choice((80, 120, 200)), rng.choice((0.2, 0.5, 0.8)))
    topology = rng.choice(
        (Topology(3), Topology(3), Topology(3, spread=True), Topology(rng.randint(1, 3), within=True))
    )
    groups = [Group("role0", _request(rng), rng.choice((8, 16, 24, 32, 64, 128)))]
    return Case(agents, groups, rng.choice(SELECTIONS), topology=topology)


def requests(seed: str, many: int) -> list[dict[str, Any]]:
    """Return the options of requests, with the labels, topologies and strategies that there are."""
    return [_options(random.Random(f"{seed}-request-{number}"), number) for number in range(many)]


def _options(rng: random.Random, number: int) -> dict[str, Any]:
    chosen: dict[str, Any] = {"name": f"job{number}", "agent_selection": rng.choice(SELECTIONS)}
    chosen["cluster_mode"] = rng.choice(("single-node", "multi-node", "multi-node"))
    chosen["topology"] = rng.choice(("", "", "", "pack", "spread", "within leaf"))
    chosen["agent_labels"] = rng.choice(([], [], [], ["fast"]))
    if rng.random() < 0.2:
        chosen["designated_agents"] = (
            [f"agent{at}" for at in rng.sample(range(6), 2)] if rng.random() < 0.5 else ["agent0"]
        )
        chosen["designated_agents_mode"] = rng.choice(("strict", "preferred"))
    if rng.random() < 0.4:
        roles = [("main", 1), *((f"role{at}", rng.choice((1, 2, 4))) for at in "abcd"[: rng.randint(1, 4)])]
        chosen["roles"] = {name: {"replicas": many, "resources": _texts(rng)} for name, many in roles}
    else:
        chosen |= {"cluster_size": rng.choice((1, 2, 4, 8, 16, 40)), "resources": _texts(rng)}
    return chosen


def _texts(rng: random.Random) -> dict[str, Any]:
    return {slot: amount if slot != "mem" else f"{amount // GIB}g" for slot, amount in _request(rng).items()}


def cluster(seed: str, number: int) -> dict[str, AgentFacts]:
    """Return the agents of a cluster in racks, as they are known to the control node."""
    rng = random.Random(f"{seed}-cluster-{number}")
    agents = {}
    for at, node in enumerate(_nodes(rng, rng.choice((1, 3, 6, 12, 30)), rng.choice((0.0, 0.2, 0.5, 0.8)))):
        changes: dict[str, Any] = {name: getattr(node, name) for name in ("capacity", "allocated", "online_cpus")}
        changes["topology"], changes["topology_levels"] = node.topology, ("fabric", "leaf", "rack")
        changes["labels"] = ("fast",) if rng.random() < 0.5 else ()
        changes["images"] = {IMAGE: None}
        agents[f"agent{at}"] = agent_facts(f"agent{at}", containers=node.containers, **changes)
    return agents
