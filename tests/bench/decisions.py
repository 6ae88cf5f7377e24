"""Measure the time of one decision over many agents, and of decisions about unlike roles."""

from __future__ import annotations

import gc
import json
import random
import statistics
import time
from collections.abc import Mapping, Sequence

from ansible_collections.backendai.cluster.plugins.module_utils._model.facts import AgentFacts
from ansible_collections.backendai.cluster.plugins.module_utils._model.plan import SessionPlan
from ansible_collections.backendai.cluster.plugins.plugin_utils._placement.place import Group, Unschedulable, place
from tests.bench import mixed
from tests.bench.nodes import CPU_OF_ONE, MEM_OF_ONE, cluster_with_plans, equal_containers, request

SIZES = (10_000, 100_000)
ROUNDS = 5
MIXED = 300

PLAIN = {"cpu": CPU_OF_ONE, "mem": MEM_OF_ONE}
# Sixteen equal containers; a main without a GPU and eight with one each.
SESSIONS: Sequence[Sequence[Group]] = (equal_containers(16), (Group("main", PLAIN, 1), Group("sub", request(1), 8)))


def milliseconds(
    agents: Sequence[AgentFacts], plans: Mapping[str, SessionPlan], groups: Sequence[Group], *, room: bool
) -> float:
    """Return the median CPU time of a decision; raises :class:`RuntimeError` if it is not the expected one."""
    times = []
    for _round in range(ROUNDS):
        started_at = time.process_time()
        placed = place(agents, groups, single_node=False, selection="concentrated", plans=plans)
        times.append(time.process_time() - started_at)
        if isinstance(placed, Unschedulable) == room:
            raise RuntimeError(f"expected capacity: {room}, decision: {placed}")
    return statistics.median(times) * 1000


def slowest(size: int) -> float:
    """Return the milliseconds of the slowest kind of decision over that many agents.

    Half as many sessions as agents hold 90 % of the GPUs, or all of them.
    """
    times = []
    for load, room in ((0.9, True), (1.0, False)):
        agents, plans = cluster_with_plans(size, load, random.Random(size))
        # As after a start: no garbage of an earlier size.
        gc.collect()
        times += [milliseconds(agents, plans, groups, room=room) for groups in SESSIONS]
    return max(times)


def mixed_roles() -> dict[str, list[float]]:
    """Return the median, the 99th percentile and the slowest of seeded decisions about roles that are unlike."""
    times = sorted(mixed.milliseconds(mixed.make(f"ordinary-{number}")) for number in range(MIXED))
    ranks = {"p50": MIXED // 2, "p99": MIXED * 99 // 100, "worst": MIXED - 1}
    return {f"decision_mixed_{name}": [times[rank]] for name, rank in ranks.items()}


def main() -> None:
    """Print the figures as JSON."""
    print(json.dumps(mixed_roles() | {f"decision_{size}_agents": [slowest(size)] for size in SIZES}))


if __name__ == "__main__":
    main()
