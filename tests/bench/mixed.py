"""Seeded decisions about containers of several shapes, from ordinary ones to such as are hard to decide.

A name makes a case, and the same name the same case: ``ordinary-3`` or ``odd-3``.
"""

from __future__ import annotations

import dataclasses
import random
import time
from collections.abc import Sequence

from ansible_collections.backendai.cluster.plugins.module_utils._model.facts import AgentFacts
from ansible_collections.backendai.cluster.plugins.plugin_utils._placement.place import (
    Group,
    Placement,
    Unschedulable,
    place,
)
from tests.bench.nodes import CPU_OF_ONE, GIB, GPU, MEM_OF_ONE, cluster

AGENTS = (40, 200)
LOADS = (0.2, 0.5, 0.8, 0.95)
SELECTIONS = ("concentrated", "concentrated", "concentrated", "roundrobin", "dispersed")


@dataclasses.dataclass(frozen=True)
class Case:
    """One decision: these groups on these agents."""

    agents: Sequence[AgentFacts]
    groups: Sequence[Group]
    selection: str
    single_node: bool


def make(name: str) -> Case:
    """Return the case of that name."""
    return (_ordinary if name.startswith("ordinary-") else _odd)(random.Random(name))


def decide(case: Case) -> Placement | Unschedulable:
    """Return the decision."""
    return place(case.agents, case.groups, single_node=case.single_node, selection=case.selection)


def milliseconds(case: Case) -> float:
    """Return the CPU time of the decision."""
    started_at = time.process_time()
    decide(case)
    return (time.process_time() - started_at) * 1000


def _ordinary(rng: random.Random) -> Case:
    """Return a decision about 3 to 8 roles on 40 to 200 agents."""
    agents = cluster(rng.randint(*AGENTS), rng.choice(LOADS), rng)
    roles = rng.randint(3, 8)
    groups = [Group("main", _request(rng), 1)]
    groups += [Group(f"role{number}", _request(rng), rng.choice((1, 2, 4, 8, 16))) for number in range(1, roles)]
    return Case(agents, groups, rng.choice(SELECTIONS), rng.random() < 0.1)


def _odd(rng: random.Random) -> Case:
    """Return a decision about any number of roles and containers, also where few agents are free."""
    agents = cluster(min(rng.randint(*AGENTS), rng.choice((3, 10, 40, 200, 200, 200))), rng.choice((*LOADS, 0.0)), rng)
    roles = rng.choice((2, 3, 5, 8, 16, 64, 256, 1024))
    most = max(1, min(1024 // roles, rng.choice((1, 3, 9, 30, 900))))
    groups = [Group(f"role{number}", _request(rng), rng.randint(1, most)) for number in range(roles)]
    return Case(agents, groups, rng.choice(SELECTIONS), rng.random() < 0.1)


def _request(rng: random.Random) -> dict[str, int]:
    gpus = rng.choice((0, 0, 1, 1, 2, 4))
    cpu = rng.choice((1, 2, 4, 8, 16, CPU_OF_ONE * gpus or 1, rng.randint(1, 48)))
    mem = rng.choice((cpu * 4, gpus * MEM_OF_ONE // GIB or 4, rng.randint(1, 128)))
    return {"cpu": cpu, "mem": mem * GIB, **({GPU: gpus} if gpus else {})}
