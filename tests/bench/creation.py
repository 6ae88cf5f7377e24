"""Create eight containers by each means, run the creation again, and terminate the session."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Mapping, Sequence

from tests.bench import baselines, sessions, task_times
from tests.bench.errors import BenchError
from tests.bench.leftovers import clean_lab
from tests.bench.timing import Cost, Run, rounds
from tests.bench.workload import THREE_AGENTS, WORKLOADS, Workload

NAME = f"{sessions.PREFIX}creation"


@dataclasses.dataclass(frozen=True)
class Costs:
    """All costs of one round, with one workload."""

    empty_playbook: Cost
    docker_run: Cost
    community_docker: Cost
    create: Cost
    again: Cost
    terminate: Cost


# Measured with eight containers.
COMMANDS = ("docker_run", "community_docker", "create", "again", "terminate")


def measure(count: int) -> dict[str, list[float]]:
    """Return the figures of each round, and print the task times of the median creations."""
    baselines.other_ansible()
    costs: dict[str, list[Costs]] = {workload.name: [] for workload in WORKLOADS}
    creations: dict[str, list[Run]] = {workload.name: [] for workload in WORKLOADS}
    with clean_lab():
        for _number in rounds(count):
            for workload in WORKLOADS:
                cost, creation = _take_turns(workload)
                costs[workload.name].append(cost)
                creations[workload.name].append(creation)
    for name, runs in creations.items():
        median = sorted(runs, key=lambda run: run.cost.wall)[len(runs) // 2]
        print(f"\ncreate_session, {name}: start and duration of each task, and of each host (seconds)\n")
        print("\n".join(task_times.table(median)))
    return figures(costs)


def figures(costs: Mapping[str, Sequence[Costs]]) -> dict[str, list[float]]:
    """Return ratios within each round, seconds, and CPU seconds over three agents, given the costs by workload."""
    result: dict[str, list[float]] = {}
    for name, each in costs.items():
        result[f"create_{name}"] = [cost.create.wall / _floor(cost) for cost in each]
        result[f"tasks_{name}"] = [cost.community_docker.wall / cost.create.wall for cost in each]
        result[f"again_{name}"] = [_beyond_start(cost, cost.again) / _beyond_start(cost, cost.create) for cost in each]
        for command in COMMANDS:
            result[f"seconds_{command}_{name}"] = [getattr(cost, command).wall for cost in each]
    three = costs[THREE_AGENTS.name]
    result["seconds_empty_playbook"] = [cost.empty_playbook.wall for cost in three]
    for command in ("empty_playbook", *COMMANDS):
        result[f"cpu_{command}"] = [getattr(cost, command).cpu for cost in three]
    for command in ("create", "again", "terminate"):
        result[f"playbooks_{command}"] = [getattr(cost, command).cpu / cost.empty_playbook.cpu for cost in three]
    return result


def _floor(cost: Costs) -> float:
    return cost.docker_run.wall + cost.empty_playbook.wall


def _beyond_start(cost: Costs, command: Cost) -> float:
    return command.wall - cost.empty_playbook.wall


def _take_turns(workload: Workload) -> tuple[Costs, Run]:
    """Measure everything once. Raises :class:`BenchError` if the session is not placed like the other containers."""
    empty_playbook = baselines.empty_playbook()
    docker_run = baselines.docker_run(workload)
    baselines.remove_all(workload.agents)
    community_docker = baselines.community_docker(workload)
    baselines.remove_all(workload.agents)
    created = sessions.create(NAME, workload.variables)
    placed = Counter(kernel["agent"] for kernel in created.record["kernels"])
    if placed != workload.agents:
        raise BenchError(f"{NAME} is placed on {dict(placed)}, expected {workload.agents}")
    again = sessions.create(NAME, workload.variables).run
    terminate = sessions.terminate(NAME)
    costs = (docker_run, community_docker, created.run.cost, again.cost, terminate.cost)
    return Costs(empty_playbook, *costs), created.run
