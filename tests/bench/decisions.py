"""Time one decision over ever more agents."""

from __future__ import annotations

import gc
import random
import statistics
import time
from collections.abc import Sequence

from ansible_collections.backendai.cluster.plugins.module_utils._model.facts import AgentFacts
from ansible_collections.backendai.cluster.plugins.plugin_utils._placement.place import Group, NoRoom, place
from tests.bench.nodes import CPU_OF_ONE, MEM_OF_ONE, alike, cluster, request

SIZES = (1_000, 10_000, 100_000)
WANTED = {1_000: "", 10_000: "< 100 ms", 100_000: "< 1000 ms"}
ROUNDS = 5

PLAIN = {"cpu": CPU_OF_ONE, "mem": MEM_OF_ONE}
SESSIONS: dict[str, Sequence[Group]] = {
    "16 alike": alike(16),
    "main and 8 with a GPU": [Group("main", PLAIN, 1), Group("sub", request(1), 8)],
}


def milliseconds(agents: Sequence[AgentFacts], groups: Sequence[Group], *, room: bool) -> float:
    """Return the median CPU time of a decision; raises :class:`RuntimeError` where it is not the expected one."""
    times = []
    for _round in range(ROUNDS):
        began = time.process_time()
        placed = place(agents, groups, single_node=False, selection="concentrated")
        times.append(time.process_time() - began)
        if isinstance(placed, NoRoom) == room:
            raise RuntimeError(f"room was expected: {room}, and this was decided: {placed}")
    return statistics.median(times) * 1000


def main() -> None:
    """Print a row for each kind of session."""
    print(f"One decision, medians of {ROUNDS}; half as many sessions as agents hold 90 % of GPUs, or all of them")
    print(f"{'milliseconds':<34}{''.join(f'{size:>12,}' for size in SIZES)}   growth from 1,000")
    rows: dict[str, list[float]] = {}
    for size in SIZES:
        for load, room in ((0.9, True), (1.0, False)):
            agents = cluster(size, load, random.Random(size))
            # As after a start, where the facts have just been read: nothing of an earlier size is in the way.
            gc.collect()
            for name, groups in SESSIONS.items():
                row = f"{name}, {'room' if room else 'no room'}"
                rows.setdefault(row, []).append(milliseconds(agents, groups, room=room))
    for name, times in rows.items():
        growth = ", ".join(f"x{later / times[0]:.0f}" for later in times[1:])
        print(f"{name:<34}{''.join(f'{one:>12.1f}' for one in times)}   {growth}")
    print(f"{'wanted':<34}{''.join(f'{WANTED[size]:>12}' for size in SIZES)}".rstrip())


if __name__ == "__main__":
    main()
