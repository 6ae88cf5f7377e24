"""Measure the planner, without a lab: the quality of placements, the time of a decision, and a long queue.

All times are CPU time of this process, which has one thread.
"""

from __future__ import annotations

import dataclasses
import json
import random
import statistics
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ansible_collections.backendai.cluster.plugins.module_utils._model.facts import AgentFacts
from ansible_collections.backendai.cluster.plugins.module_utils._model.plan import SessionPlan
from ansible_collections.backendai.cluster.plugins.plugin_utils._placement.place import Group, Unschedulable, place
from ansible_collections.backendai.cluster.plugins.plugin_utils._queue.entry import QueueEntry
from ansible_collections.backendai.cluster.plugins.plugin_utils._queue.store import QueueStore
from ansible_collections.backendai.cluster.plugins.plugin_utils._run.new_session import plan_session
from ansible_collections.backendai.cluster.plugins.plugin_utils._run.site import Site
from ansible_collections.backendai.cluster.plugins.plugin_utils._run.waiting_sessions import plan_waiting
from tests.bench.nodes import (
    AGENTS,
    CPU_OF_ONE,
    GIB,
    GPU,
    MEM_OF_ONE,
    cluster,
    cluster_with_plans,
    equal_containers,
    request,
)
from tests.bench.timing import BenchError
from tests.unit.builders import POOLS, requested, result, spec
from tests.unit.plugins.action.stages import request_of

# Number of gangs in the trace by number of containers.
SIZES = {1: 10480, 2: 463, 4: 2044, 8: 1916, 16: 250, 32: 89}
# GPUs of a session of one container, equally often; containers of larger sessions have one.
GPUS_OF_ONE = (1, 2, 4, 8)

# Shares of allocated GPUs.
LOADS = (0.5, 0.8, 0.95)
SESSIONS, SESSIONS_OF_A_CLUSTER, SEED = 5_000, 100, 1

# Decisions of each kind, of which the median counts.
DECISIONS = 5
PLAIN = {"cpu": CPU_OF_ONE, "mem": MEM_OF_ONE}
# Sixteen equal containers; a main without a GPU and eight with one each.
KINDS: Sequence[Sequence[Group]] = (equal_containers(16), (Group("main", PLAIN, 1), Group("sub", request(1), 8)))

# Sessions that wait, the times that one may be skipped, and the passes after the first.
WAITING, PATIENCE, PASSES = 2000, 16, 3
POLICIES = ("fifo", "lifo", "drf")


def measure() -> dict[str, list[float]]:
    """Return all figures."""
    return {
        **placements(SESSIONS, SEED),
        f"decision_{AGENTS}_agents": [slowest_decision(AGENTS)],
        **queue(WAITING, AGENTS),
    }


def placements(sessions: int, seed: int) -> dict[str, list[float]]:
    """Place that many sessions, and compare each placement with an exact count; return the number of errors."""
    rng = random.Random(seed)
    agents: list[AgentFacts] = []
    spread = surplus = refused = 0
    for number, size in enumerate(rng.choices(list(SIZES), weights=list(SIZES.values()), k=sessions)):
        if number % SESSIONS_OF_A_CLUSTER == 0:
            agents = cluster(AGENTS, rng.choice(LOADS), rng)
        gpus = rng.choice(GPUS_OF_ONE) if size == 1 else 1
        placed = place(agents, equal_containers(size, gpus), single_node=False, selection="concentrated")
        rooms, room, fewest = sorted((_room(each, gpus) for each in agents), reverse=True), 0, 0
        while room < size and fewest < len(rooms) and rooms[fewest] > 0:
            room += rooms[fewest]
            fewest += 1
        if isinstance(placed, Unschedulable):
            refused += room >= size
            continue
        spread += rooms[0] >= size and len(placed.agents) > 1
        surplus += len(placed.agents) != fewest
    return {
        "placements_not_on_one_agent": [spread],
        "placements_on_surplus_agents": [surplus],
        "placements_refused_with_room": [refused],
    }


def _room(agent: AgentFacts, gpus: int) -> int:
    """Return how many containers with that many GPUs fit on an agent, counted independently of the planner."""
    return min((agent.capacity[slot] - agent.allocated[slot]) // each for slot, each in request(gpus).items())


def milliseconds(
    agents: Sequence[AgentFacts], plans: Mapping[str, SessionPlan], groups: Sequence[Group], *, room: bool
) -> float:
    """Return the median CPU time of a decision; raises :class:`BenchError` if it is not the expected one."""
    times = []
    for _round in range(DECISIONS):
        started_at = time.process_time()
        placed = place(agents, groups, single_node=False, selection="concentrated", plans=plans)
        times.append(time.process_time() - started_at)
        if isinstance(placed, Unschedulable) == room:
            raise BenchError(f"expected capacity: {room}, decision: {placed}")
    return statistics.median(times) * 1000


def slowest_decision(size: int) -> float:
    """Return the milliseconds of the slowest kind of decision over that many agents.

    Half as many sessions as agents hold 90 % of the GPUs, or all of them.
    """
    times = []
    for load, room in ((0.9, True), (1.0, False)):
        agents, plans = cluster_with_plans(size, load, random.Random(size))
        times += [milliseconds(agents, plans, groups, room=room) for groups in KINDS]
    return max(times)


def waiting(number: int, rng: random.Random) -> QueueEntry:
    """Return a session that waits; hardly two of them ask the same."""
    gpus, size = rng.choice(GPUS_OF_ONE), rng.choices(list(SIZES), weights=list(SIZES.values()))[0]
    asked = spec(
        name=f"session-{number}",
        cluster_mode="multi-node",
        cluster_size=size,
        resources={"cpu": rng.randint(1, 8 * gpus), "mem": rng.randint(1, 32 * gpus) * GIB, GPU: gpus},
        priority=rng.choice((10, 10, 10, 50)),
    )
    return requested(number, asked, user=rng.choice("abcdefgh"), enqueued_at=float(number))


def running(plan: SessionPlan) -> QueueEntry:
    """Return a session that has what its plan says, and came before all that wait."""
    asked = spec(name=plan.name, cluster_mode="multi-node", cluster_size=len(plan.kernels), resources=request(1))
    return requested(0, asked, id=plan.id, state="RUNNING", plan=plan, has_started=True, enqueued_at=0.0)


def _site(folder: str, agents: Sequence[str], policy: str, **args: Any) -> Site:
    """Return what a run plans with."""
    given = {"agents": agents, "pools": dataclasses.asdict(POOLS), "policy": policy, "max_skips": PATIENCE, **args}
    return Site(request_of(given), QueueStore(folder), {name: {} for name in agents})


def passes(skipped: int, policy: str, count: int, agents: int) -> tuple[float, float]:
    """Return the CPU seconds of a first pass, and the median of others for which nothing has changed.

    In the end a session is created. Raises :class:`BenchError` if one passes others that it has to wait for.
    """
    rng = random.Random(SEED)
    facts, plans = cluster_with_plans(agents, 1.0, rng)
    answers = {agent.name: json.loads(json.dumps(result(agent))) for agent in facts}
    entries = [waiting(number, rng) for number in range(1, count + 1)]
    entries += [
        requested(number, state="TERMINATED", spec=None, has_started=True, enqueued_at=float(number))
        for number in range(count + 1, count + 1 + skipped)
    ]
    with tempfile.TemporaryDirectory() as folder:
        for entry in (*entries, *map(running, plans.values())):
            (Path(folder) / f"{entry.id}.json").write_text(entry.to_json())
        seconds = []
        for _pass in range(1 + PASSES):
            began = time.process_time()
            starts = plan_waiting(_site(folder, list(answers), policy), answers).starts
            seconds.append(time.process_time() - began)
            if starts:
                raise BenchError("a session starts on full agents")
        small = spec(name="small", cluster_size=1, resources={"cpu": 1, "mem": GIB})
        site = _site(folder, list(answers), policy, spec=dataclasses.asdict(small))
        created = plan_session(site, answers)
        if bool(created.no_room) != (skipped >= PATIENCE):
            raise BenchError(f"created with all others skipped {skipped} times: {created.no_room}")
    return seconds[0], statistics.median(seconds[1:])


def queue(count: int, agents: int) -> dict[str, list[float]]:
    """Return the figures: of the slowest policy; with all past their patience, as a multiple of the others."""
    plain, due = ([passes(skipped, policy, count, agents) for policy in POLICIES] for skipped in (0, PATIENCE))
    first, unchanged = (max(column) for column in zip(*plain, strict=True))
    due_first, due_unchanged = (max(column) for column in zip(*due, strict=True))
    return {
        "queue_first": [first],
        "queue_unchanged": [unchanged],
        "queue_due_first": [due_first / first],
        "queue_due_unchanged": [due_unchanged / unchanged],
    }
