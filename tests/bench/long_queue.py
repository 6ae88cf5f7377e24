"""Measure playbooks while thousands of sessions wait in the queue, beside the same with an empty queue."""

from __future__ import annotations

import random
from pathlib import Path

from tests.bench import lab, sessions, waiting
from tests.bench.errors import BenchError
from tests.bench.leftovers import clean_lab
from tests.bench.replay import SEED
from tests.bench.timing import rounds
from tests.bench.workload import ONE_AGENT

NAME = f"{sessions.PREFIX}queue"


def fill(folder: Path, entries: int) -> None:
    """Write sessions that wait for more than the lab has."""
    rng = random.Random(SEED)
    for number in range(1, entries + 1):
        entry = waiting.waiting(number, rng)
        (folder / f"{entry.id}.json").write_text(entry.to_json())


def seconds(queue: Path) -> dict[str, float]:
    """Return how long each playbook takes with that queue."""
    options = {"session_queue_path": str(queue)}
    created = sessions.create(NAME, {**ONE_AGENT.variables, **options})
    if created.record["status"] != "RUNNING":
        raise BenchError(f"expected {NAME} to run beside sessions that wait: {created.record}")
    taken = {"long_queue_create": created.run.cost.wall}
    for playbook in ("list", "schedule"):
        taken[f"long_queue_{playbook}"] = lab.run_playbook(f"{playbook}_sessions", options).cost.wall
    sessions.terminate(NAME, options)
    return taken


def measure(count: int, entries: int = waiting.ENTRIES) -> dict[str, list[float]]:
    """Return for each playbook the ratios of each round; the first pass over the queue is not among them."""
    empty, full = lab.make_folder(), lab.make_folder()
    fill(full, entries)
    figures: dict[str, list[float]] = {}
    with clean_lab():
        seconds(full)
        for _number in rounds(count):
            short, long = seconds(empty), seconds(full)
            for name, taken in long.items():
                figures.setdefault(name, []).append(taken / short[name])
    return figures
