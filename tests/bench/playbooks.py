"""Measure playbooks beside others: the command of users, a long queue, and ten creations at once."""

from __future__ import annotations

import random
import time
from collections import Counter
from functools import partial
from pathlib import Path

from tests.bench import lab, planner
from tests.bench.creation import CPU, IMAGE, MEMORY, ONE_AGENT
from tests.bench.timing import BenchError, cost_of, rounds
from tests.integration.laboratory import in_parallel, memory_share

MANAGER, USER = "manager1", "alice"
SIZE = 4

TEN, ROOM_ON_EACH_AGENT = 10, 2
EXPECTED = Counter(RUNNING=6, PENDING=4)
SETTLE_SECONDS = 60


def measure_command(count: int) -> dict[str, list[float]]:
    """Return for verbs of ``backendai`` the ratios to the playbooks that they stand for, of each round."""
    figures: dict[str, list[float]] = {"command_create": [], "command_list": []}
    name = f"{lab.PREFIX}command"
    variables = {"session_image": IMAGE, "session_cluster_size": SIZE, "session_resources": {"cpu": CPU, "mem": MEMORY}}
    create = f"create --name {name} --image {IMAGE} --size {SIZE} --cpu {CPU} --mem {MEMORY}"
    with lab.clean_lab():
        for _number in rounds(count):
            playbook, _record = lab.create(f"{name}-playbook", variables)
            figures["command_create"].append(_seconds_of_user(create) / playbook.wall)
            listing, _records = lab.list_all()
            figures["command_list"].append(_seconds_of_user("list --json") / listing.wall)
            lab.end_all()
    return figures


def _seconds_of_user(words: str) -> float:
    """Return how long a user's command takes, without the login. Raises :class:`BenchError` if it fails."""
    line = f"cd; start=$(date +%s%N); backendai {words} > /dev/null && echo $(($(date +%s%N) - start))"
    return int(lab.run_on(MANAGER, f"runuser --user {USER} -- sh -c '{line}'")) / 1e9


def measure_long_queue(count: int) -> dict[str, list[float]]:
    """Return for each playbook the ratios of each round; the first pass over the queue is not among them."""
    empty, full = lab.make_folder(), lab.make_folder()
    fill(full)
    figures: dict[str, list[float]] = {}
    with lab.clean_lab():
        _seconds_with(full)
        for _number in rounds(count):
            short, long = _seconds_with(empty), _seconds_with(full)
            for name, taken in long.items():
                figures.setdefault(name, []).append(taken / short[name])
    return figures


def fill(folder: Path) -> None:
    """Write sessions that wait for more than the lab has."""
    rng = random.Random(planner.SEED)
    for number in range(1, planner.WAITING + 1):
        entry = planner.waiting(number, rng)
        (folder / f"{entry.id}.json").write_text(entry.to_json())


def _seconds_with(queue: Path) -> dict[str, float]:
    """Return how long each playbook takes with that queue."""
    name, options = f"{lab.PREFIX}queue", {"session_queue_path": str(queue)}
    created, record = lab.create(name, {**ONE_AGENT.variables, **options})
    if record["status"] != "RUNNING":
        raise BenchError(f"expected {name} to run beside sessions that wait: {record}")
    listed = lab.run_playbook("list_sessions", options)
    lab.terminate(name, options)
    return {"long_queue_create": created.wall, "long_queue_list": listed.wall}


def measure_ten_creates(count: int) -> dict[str, list[float]]:
    """Return the seconds of each round until ten runs of ``create_session`` with room for six have ended."""
    figures: dict[str, list[float]] = {"ten_creates": [], "cpu_ten_creates": []}
    with lab.clean_lab():
        resources = {"cpu": 1, "mem": memory_share(ROOM_ON_EACH_AGENT)}
        variables = {"session_image": lab.BUSYBOX, "session_resources": resources}
        creates = [partial(lab.create, f"{lab.PREFIX}ten-{number}", variables) for number in range(TEN)]
        for _number in rounds(count):
            cost = cost_of(lambda: in_parallel(*creates))
            _await_statuses()
            figures["ten_creates"].append(cost.wall)
            figures["cpu_ten_creates"].append(cost.cpu)
            lab.end_all()
    return figures


def _await_statuses() -> None:
    """Wait until six sessions are RUNNING and four PENDING. Raises :class:`BenchError` on timeout."""
    deadline = time.monotonic() + SETTLE_SECONDS
    while True:
        _cost, records = lab.list_all()
        statuses = Counter(record["status"] for record in records)
        if statuses == EXPECTED:
            return
        if time.monotonic() > deadline:
            raise BenchError(f"expected {dict(EXPECTED)} of {TEN} sessions, got {dict(statuses)}")
