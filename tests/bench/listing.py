"""Measure list_sessions with one session of eight containers on three agents."""

from __future__ import annotations

from tests.bench import baselines, sessions
from tests.bench.errors import BenchError
from tests.bench.leftovers import clean_lab
from tests.bench.timing import rounds
from tests.bench.workload import THREE_AGENTS

NAME = f"{sessions.PREFIX}list"


def measure(count: int) -> dict[str, list[float]]:
    """Return the ratios to an empty playbook, seconds and CPU seconds of each round."""
    figures: dict[str, list[float]] = {"list": [], "seconds_list": [], "cpu_list": [], "playbooks_list": []}
    with clean_lab(), sessions.session(NAME, THREE_AGENTS.variables):
        for _number in rounds(count):
            empty = baselines.empty_playbook()
            run, records = sessions.list_all()
            if [(record["name"], record["status"]) for record in records] != [(NAME, "RUNNING")]:
                raise BenchError(f"expected only {NAME} in the list, RUNNING: {records}")
            figures["list"].append(run.cost.wall / empty.wall)
            figures["seconds_list"].append(run.cost.wall)
            figures["cpu_list"].append(run.cost.cpu)
            figures["playbooks_list"].append(run.cost.cpu / empty.cpu)
    return figures
