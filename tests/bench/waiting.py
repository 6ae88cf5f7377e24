"""Measure passes over a long queue on full agents, by the actions themselves on files, without a lab."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import random
import statistics
import tempfile
import time
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
PATIENCE = 16


def waiting(number: int, rng: random.Random, skipped: int) -> QueueEntry:
    """Return a session that waits; hardly two of them ask the same."""
    gpus, size = rng.choice(GPUS_OF_ONE), rng.choices(list(SIZES), weights=list(SIZES.values()))[0]
    request = spec(
        name=f"session-{number}",
        cluster_mode="multi-node",
        cluster_size=size,
        resources={"cpu": rng.randint(1, 8 * gpus), "mem": rng.randint(1, 32 * gpus) * GIB, GPU: gpus},
        priority=rng.choice((10, 10, 10, 50)),
    )
    return requested(number, request, skipped=skipped, user=rng.choice("abcdefgh"))


def run(folder: Path, hostvars: dict[str, Any], **args: Any) -> dict[str, Any]:
    """Run the action ``session_plan`` as a playbook does."""
    task, loader = Task(), DataLoader()
    task.args = {"agents": list(hostvars), "pools": dataclasses.asdict(POOLS), "queue_path": str(folder), **args}
    task.check_mode = False
    connection = SimpleNamespace(_shell=SimpleNamespace(tmpdir=None), _play_context=SimpleNamespace(no_log=False))
    action = ActionModule(task, connection, None, loader, Templar(loader=loader, variables={}), None)
    return dict(action.run(task_vars={"hostvars": hostvars}))


class Locks:
    """How long the queue's lock was held, in seconds."""

    def __init__(self) -> None:
        self.held: list[float] = []
        self._lock = QueueStore.lock

    @contextlib.contextmanager
    def timed(self, store: QueueStore) -> Iterator[None]:
        """Hold the lock of a queue."""
        with self._lock(store):
            began = time.process_time()
            yield
            self.held.append(time.process_time() - began)


def passes(skipped: int, policy: str, locks: Locks, count: int = ENTRIES, agents: int = AGENTS) -> tuple[float, float]:
    """Return the seconds of a first pass, and of one for which nothing has changed; one session is created besides."""
    rng = random.Random(SEED)
    hostvars = {
        facts.name: {"__session_agent": json.loads(json.dumps(result(facts)))} for facts in cluster(agents, 1.0, rng)
    }
    with tempfile.TemporaryDirectory() as folder:
        queue = Path(folder)
        for number in range(1, count + 1):
            entry = waiting(number, rng, skipped)
            (queue / f"{entry.id}.json").write_text(entry.to_json())
        seconds = []
        for _pass in range(4):
            began = time.process_time()
            if run(queue, hostvars, queue=True, policy=policy, max_skips=PATIENCE)["starts"]:
                raise RuntimeError("a session starts on full agents")
            seconds.append(time.process_time() - began)
        plain = {"cluster_size": 1, "resources": {"cpu": 1, "mem": GIB}}
        small = dataclasses.asdict(spec(name="small", **plain))
        created = run(queue, hostvars, spec=small, policy=policy, max_skips=PATIENCE)
        if not created["pending"] and skipped:
            raise RuntimeError("a later session passes one that is due")
    return seconds[0], statistics.median(seconds[1:])


def main() -> None:
    """Print the figures as JSON."""
    locks = Locks()
    QueueStore.lock = lambda store: locks.timed(store)
    first, unchanged = passes(0, "fifo", locks)
    due_first, due_unchanged = passes(PATIENCE, "fifo", locks)
    print(
        json.dumps(
            {
                "queue_first": [first],
                "queue_unchanged": [unchanged],
                "queue_due_first": [due_first],
                "queue_due_unchanged": [due_unchanged],
                "queue_lock": [max(locks.held)],
            }
        )
    )


if __name__ == "__main__":
    main()
