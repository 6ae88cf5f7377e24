"""Create ten sessions in parallel with capacity for six."""

from __future__ import annotations

import time
from collections import Counter
from functools import partial

from tests.bench import lab, sessions
from tests.bench.errors import BenchError
from tests.bench.leftovers import clean_lab
from tests.bench.timing import cost_of, rounds

COUNT = 10
ROOM_ON_EACH_AGENT = 2
EXPECTED = Counter(RUNNING=6, PENDING=4)
SETTLE_SECONDS = 60


def measure(count: int) -> dict[str, list[float]]:
    """Return the seconds of each round until all ten runs of ``create_session`` have ended."""
    figures: dict[str, list[float]] = {"ten_creates": [], "cpu_ten_creates": []}
    with clean_lab():
        resources = {"cpu": 1, "mem": lab.memory_share(ROOM_ON_EACH_AGENT)}
        variables = {"session_image": lab.BUSYBOX, "session_resources": resources}
        creates = [partial(sessions.create, f"{sessions.PREFIX}ten-{number}", variables) for number in range(COUNT)]
        for _number in rounds(count):
            cost = cost_of(lambda: lab.in_parallel(creates))
            _await_statuses()
            figures["ten_creates"].append(cost.wall)
            figures["cpu_ten_creates"].append(cost.cpu)
            sessions.end_all()
    return figures


def _await_statuses() -> None:
    """Wait until six sessions are RUNNING and four PENDING. Raises :class:`BenchError` on timeout."""
    deadline = time.monotonic() + SETTLE_SECONDS
    while True:
        _run, records = sessions.list_all()
        statuses = Counter(record["status"] for record in records)
        if statuses == EXPECTED:
            return
        if time.monotonic() > deadline:
            raise BenchError(f"expected {dict(EXPECTED)} of {COUNT} sessions, got {dict(statuses)}")
