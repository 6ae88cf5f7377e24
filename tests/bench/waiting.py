"""Measure passes over a long queue on full agents, by the actions themselves on files, without a lab."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import random
import statistics
import tempfile
import time
import unittest.mock
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from ansible.parsing.dataloader import DataLoader
from ansible.playbook.task import Task
from ansible.template import Templar

from ansible_collections.backendai.cluster.plugins.action.session_plan import ActionModule
from ansible_collections.backendai.cluster.plugins.plugin_utils._queue.entry import QueueEntry
from ansible_collections.backendai.cluster.plugins.plugin_utils._queue.store import QueueStore
from tests.bench.nodes import GIB, GPU, cluster
from tests.bench.replay import GPUS_OF_ONE, SEED, SIZES
from tests.unit.builders import POOLS, requested, result, spec

ENTRIES, AGENTS = 10_000, 1213
PATIENCE, ROUNDS = 16, 3
POLICIES = ("fifo", "lifo", "drf")


def waiting(number: int, rng: random.Random) -> QueueEntry:
    """Return a session that waits; hardly two of them ask the same."""
    gpus, size = rng.choice(GPUS_OF_ONE), rng.choices(list(SIZES), weights=list(SIZES.values()))[0]
    request = spec(
        name=f"session-{number}",
        cluster_mode="multi-node",
        cluster_size=size,
        resources={"cpu": rng.randint(1, 8 * gpus), "mem": rng.randint(1, 32 * gpus) * GIB, GPU: gpus},
        priority=rng.choice((10, 10, 10, 50)),
    )
    return requested(number, request, user=rng.choice("abcdefgh"), enqueued_at=float(number))


def run(folder: str, hostvars: dict[str, Any], **args: Any) -> dict[str, Any]:
    """Run the action ``session_plan`` as a playbook does."""
    task, loader = Task(), DataLoader()
    task.args = {"agents": list(hostvars), "pools": dataclasses.asdict(POOLS), "queue_path": folder, **args}
    task.check_mode = False
    connection = SimpleNamespace(_shell=SimpleNamespace(tmpdir=None), _play_context=SimpleNamespace(no_log=False))
    action = ActionModule(task, connection, None, loader, Templar(loader=loader, variables={}), None)
    return dict(action.run(task_vars={"hostvars": hostvars}))


@contextlib.contextmanager
def timed_locks() -> Iterator[list[float]]:
    """Yield the CPU seconds for which the lock of a queue is held each time."""
    held: list[float] = []
    lock = QueueStore.lock

    @contextlib.contextmanager
    def timed(store: QueueStore) -> Iterator[None]:
        with lock(store):
            began = time.process_time()
            yield
            held.append(time.process_time() - began)

    with unittest.mock.patch.object(QueueStore, "lock", timed):
        yield held


def passes(skipped: int, policy: str, count: int = ENTRIES, agents: int = AGENTS) -> tuple[float, float]:
    """Return the CPU seconds of a first pass, and the median of others for which nothing has changed.

    In the end a session is created. Raises :class:`RuntimeError` if one passes others that it has to wait for.
    """
    rng = random.Random(SEED)
    facts = cluster(agents, 1.0, rng)
    hostvars = {agent.name: {"__session_agent": json.loads(json.dumps(result(agent)))} for agent in facts}
    with tempfile.TemporaryDirectory() as folder:
        for number in range(1, count + 1):
            entry = waiting(number, rng)
            (Path(folder) / f"{entry.id}.json").write_text(entry.to_json())
        for number in range(count + 1, count + 1 + skipped):
            ended = requested(number, state="TERMINATED", spec=None, has_started=True, enqueued_at=float(number))
            (Path(folder) / f"{ended.id}.json").write_text(ended.to_json())
        seconds = []
        rules = {"policy": policy, "max_skips": PATIENCE}
        for _pass in range(1 + ROUNDS):
            began = time.process_time()
            starts = run(folder, hostvars, queue=True, **rules)["starts"]
            seconds.append(time.process_time() - began)
            if starts:
                raise RuntimeError("a session starts on full agents")
        small = spec(name="small", cluster_size=1, resources={"cpu": 1, "mem": GIB})
        created = run(folder, hostvars, spec=dataclasses.asdict(small), **rules)
        if bool(created["pending"]) != (skipped >= PATIENCE):
            raise RuntimeError(f"created with all others skipped {skipped} times: {created['pending']}")
    return seconds[0], statistics.median(seconds[1:])


def measure(count: int = ENTRIES, agents: int = AGENTS) -> dict[str, list[float]]:
    """Return the figures: of the slowest policy; with all past their patience, as a multiple of the others."""
    with timed_locks() as held:
        plain, due = ([passes(skipped, policy, count, agents) for policy in POLICIES] for skipped in (0, PATIENCE))
    first, unchanged = (max(column) for column in zip(*plain, strict=True))
    due_first, due_unchanged = (max(column) for column in zip(*due, strict=True))
    return {
        "queue_first": [first],
        "queue_unchanged": [unchanged],
        "queue_due_first": [due_first / first],
        "queue_due_unchanged": [due_unchanged / unchanged],
        "queue_lock": [max(held)],
    }


def main() -> None:
    """Print the figures as JSON."""
    print(json.dumps(measure()))


if __name__ == "__main__":
    main()
