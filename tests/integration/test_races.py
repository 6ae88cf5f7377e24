"""Concurrent starts and terminations."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

from tests.integration.laboratory import AGENTS, BUSYBOX, Run, in_parallel, memory_share, stored_sessions
from tests.integration.session_requests import THREE
from tests.integration.sessions import Sessions
from tests.integration.waiting import wait_until

pytestmark = pytest.mark.queue

TWO_AGENTS = ("--limit", "localhost,gateway1,agent1,agent2")


def run_almost_at_once(rng: random.Random, *runs: Callable[[], Run]) -> list[Run]:
    """Start runs at almost the same time, and return their results."""

    def begin(run: Callable[[], Run], delay: float) -> Run:
        time.sleep(delay)
        return run()

    return in_parallel(*[partial(begin, run, rng.uniform(0, 0.5)) for run in runs])


def wait_for_statuses(sessions: Sessions, running: int, waiting: int) -> list[dict[str, Any]]:
    """Wait until that many sessions run and wait, without a run of the scheduler; return the records of the running."""
    expected = Counter(RUNNING=running, PENDING=waiting)
    records: list[dict[str, Any]] = []

    def is_reached() -> bool:
        records[:] = sessions.list_by_name(*TWO_AGENTS).values()
        return Counter(record["status"] for record in records) == expected

    wait_until(is_reached)
    return [record for record in records if record["status"] == "RUNNING"]


def assert_no_agent_is_overcommitted() -> None:
    """Check that no agent holds sessions beyond its memory."""
    capacity = memory_share(1)
    for agent, stored in stored_sessions().items():
        kernels = [kernel for session in stored for kernel in session["plan"]["kernels"] if kernel["agent"] == agent]
        assert sum(kernel["resources"]["mem"] for kernel in kernels) <= capacity, agent


@pytest.mark.soak
def test_concurrent_starts_fill_two_agents_exactly(sessions: Sessions, rounds: Iterator[random.Random]) -> None:
    request = {"image": BUSYBOX, "resources": {"cpu": 1, "mem": memory_share(1)}}
    names = [f"{sessions.name}-{number}" for number in range(3)]
    for rng in rounds:
        creations = [partial(sessions.create, *TWO_AGENTS, name=name, **request) for name in names]
        for run in run_almost_at_once(rng, *creations):
            assert run.code == 0, run.output
        running = wait_for_statuses(sessions, 2, 1)
        assert {kernel["agent"] for record in running for kernel in record["kernels"]} == set(AGENTS[:2])
        assert_no_agent_is_overcommitted()

        ends = [partial(sessions.terminate, *TWO_AGENTS, id=record["id"]) for record in running]
        ended = run_almost_at_once(rng, *ends)
        assert [run.code for run in ended] == [0, 0], ended[0].output + ended[1].output
        (later,) = wait_for_statuses(sessions, 1, 0)
        assert later["id"] not in {record["id"] for record in running}
        assert_no_agent_is_overcommitted()
        sessions.terminate_all()


@pytest.mark.soak
def test_concurrent_sessions_get_distinct_names_subnets_and_vnis(
    sessions: Sessions, rounds: Iterator[random.Random]
) -> None:
    names = [f"{sessions.name}-{number}" for number in range(2)]
    for rng in rounds:
        runs = run_almost_at_once(
            rng, *[partial(sessions.create, name=name, **{**THREE, "image": BUSYBOX}) for name in names]
        )
        assert [(run.code, run.record["status"]) for run in runs] == [(0, "RUNNING")] * 2, [run.output for run in runs]
        for values in (
            [kernel["container"] for run in runs for kernel in run.record["kernels"]],
            [run.record["network"]["subnet"] for run in runs],
            [run.record["network"]["vni"] for run in runs],
        ):
            assert None not in values
            assert len(set(values)) == len(values), values
        sessions.terminate_all()
