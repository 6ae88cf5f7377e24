"""Measure creations and lists while hundreds of agents are known: simulated ones beside those of the lab."""

from __future__ import annotations

from pathlib import Path

from tests.bench import lab, sessions
from tests.bench.control_memory import peak_during
from tests.bench.errors import BenchError
from tests.bench.leftovers import clean_lab
from tests.bench.timing import Run, rounds
from tests.bench.workload import COUNT, CPU, IMAGE, MEMORY
from tests.large.hosts import remove_agents
from tests.large.identity import LargeLab
from tests.large.lab import up

NAME = f"{sessions.PREFIX}many-agents"
AGENTS, SESSIONS = 200, 500
# The simulated agents are full, so that the session is placed on one of the lab's.
REQUEST = {
    "session_image": IMAGE,
    "session_cluster_size": COUNT,
    "session_cluster_mode": "single-node",
    "session_resources": {"cpu": CPU, "mem": MEMORY},
    "session_facts_max_age": 86400,
}


def measure(count: int) -> dict[str, list[float]]:
    """Return the ratio of creations, and seconds, CPU seconds and memory of a list, of each round."""
    large, few = LargeLab(lab.ROOT), lab.make_folder()
    try:
        up(large, AGENTS, SESSIONS)
        with clean_lab():
            return _measure(count, few, large.queue, "-i", str(large.inventory))
    finally:
        remove_agents(large)


def _measure(count: int, few: Path, many: Path, *options: str) -> dict[str, list[float]]:
    """Return the figures, given the queue for few agents, and for many that of theirs with their inventory."""
    figures: dict[str, list[float]] = {}
    for queue, inventory in ((few, ()), (many, options)):
        lab.run_playbook("schedule_sessions", {**REQUEST, "session_queue_path": str(queue)}, *inventory)
        _create(queue, *inventory)
    for _number in rounds(count):
        alone, beside = _create(few), _create(many, *options)
        figures.setdefault("create_many_agents", []).append(beside / alone)
        listed = _list(many, *options)
        figures.setdefault("list_many_agents", []).append(listed.cost.wall)
        figures.setdefault("cpu_list_many_agents", []).append(listed.cost.cpu)
        # Apart, because looking at the memory takes time.
        figures.setdefault("list_many_agents_memory", []).append(peak_during(lambda: _list(many, *options)))
    return figures


def _create(queue: Path, *options: str) -> float:
    """Return the seconds that a creation takes; all facts are cached but those of the agents that it used before."""
    variables = {**REQUEST, "session_queue_path": str(queue)}
    created = sessions.create(NAME, variables, *options)
    if created.record["status"] != "RUNNING":
        raise BenchError(f"expected {NAME} to run on the lab's agents: {created.record}")
    # The other agents hold nothing of it.
    sessions.terminate(NAME, variables)
    return created.run.cost.wall


def _list(queue: Path, *options: str) -> Run:
    run, records = sessions.list_all({"session_queue_path": str(queue)}, *options)
    running = [record for record in records if record["status"] == "RUNNING"]
    if len(running) != SESSIONS:
        raise BenchError(f"expected {SESSIONS} running sessions of {len(records)}, got {len(running)}")
    return run
