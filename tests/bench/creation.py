"""Create eight containers by each means, run the creation again, and terminate and list the session.

The other means are parallel ``docker run``, a loop of ``community.docker``, and as measures a playbook with a ``ping``
and a play without a task.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.bench import lab
from tests.bench.timing import BenchError, Cost, cost_of, rounds
from tests.lab.other_ansible import ensure_ansible

NAME, NETWORK = f"{lab.PREFIX}creation", "bench-network"
COUNT, CPU, MEMORY, IMAGE = 8, 1, "64m", lab.PYTHON


@dataclasses.dataclass(frozen=True)
class Workload:
    """The number of containers on each agent, and the session variables for that placement."""

    name: str
    agents: dict[str, int]
    placement: dict[str, object]

    @property
    def variables(self) -> dict[str, Any]:
        """The variables of the session."""
        resources = {"cpu": CPU, "mem": MEMORY}
        return {
            "session_image": IMAGE,
            "session_cluster_size": COUNT,
            "session_resources": resources,
            **self.placement,
        }


ONE_AGENT = Workload(
    "one_agent",
    {"agent1": 8},
    {"session_designated_agents": ["agent1"], "session_cluster_mode": "single-node"},
)
THREE_AGENTS = Workload(
    "three_agents",
    {"agent1": 3, "agent2": 3, "agent3": 2},
    {"session_agent_selection": "dispersed", "session_cluster_mode": "multi-node"},
)
WORKLOADS = (ONE_AGENT, THREE_AGENTS)


@dataclasses.dataclass(frozen=True)
class Costs:
    """All costs of one round, with one workload."""

    empty_playbook: Cost
    no_task: Cost
    docker_run: Cost
    community_docker: Cost
    create: Cost
    again: Cost
    terminate: Cost


def measure(count: int) -> dict[str, list[float]]:
    """Return the figures of each round."""
    other_ansible()
    costs: dict[str, list[Costs]] = {workload.name: [] for workload in WORKLOADS}
    with lab.clean_lab():
        for _number in rounds(count):
            for workload in WORKLOADS:
                costs[workload.name].append(_take_turns(workload))
    return figures(costs)


def figures(costs: Mapping[str, Sequence[Costs]]) -> dict[str, list[float]]:
    """Return ratios within each round, and CPU seconds over three agents, given the costs by workload."""
    result: dict[str, list[float]] = {}
    for name, each in costs.items():
        result[f"create_{name}"] = [
            cost.create.wall / (cost.docker_run.wall + cost.empty_playbook.wall) for cost in each
        ]
        result[f"create_no_task_{name}"] = [
            cost.create.wall / (cost.docker_run.wall + cost.no_task.wall) for cost in each
        ]
        result[f"tasks_{name}"] = [cost.community_docker.wall / cost.create.wall for cost in each]
        result[f"again_{name}"] = [
            (cost.again.wall - cost.empty_playbook.wall) / (cost.create.wall - cost.empty_playbook.wall)
            for cost in each
        ]
    three = costs[THREE_AGENTS.name]
    for command in dataclasses.fields(Costs):
        result[f"cpu_{command.name}"] = [getattr(cost, command.name).cpu for cost in three]
    for verb in ("create", "again", "terminate"):
        result[f"playbooks_{verb}"] = [getattr(cost, verb).cpu / cost.empty_playbook.cpu for cost in three]
    return result


def measure_list(count: int) -> dict[str, list[float]]:
    """Return the figures of ``list_sessions`` with one session over three agents, of each round."""
    result: dict[str, list[float]] = {"list": [], "cpu_list": [], "playbooks_list": []}
    with lab.clean_lab(), lab.session(NAME, THREE_AGENTS.variables):
        for _number in rounds(count):
            empty = empty_playbook()
            cost, records = lab.list_all()
            if [(record["name"], record["status"]) for record in records] != [(NAME, "RUNNING")]:
                raise BenchError(f"expected only {NAME} in the list, RUNNING: {records}")
            result["list"].append(cost.wall / empty.wall)
            result["cpu_list"].append(cost.cpu)
            result["playbooks_list"].append(cost.cpu / empty.cpu)
    return result


def other_ansible() -> Path:
    """Return the ``ansible-playbook`` of a release with community.docker, and the core of the project."""
    packages = ("ansible==12.*", "ansible-core", "cryptography")
    return ensure_ansible("bench-venv", packages, ("runtime", "constraints")) / "ansible-playbook"


def empty_playbook() -> Cost:
    """Return the cost of a playbook with a single ``ping`` of the control node."""
    return lab.run_play({"hosts": "localhost", "tasks": [{"name": "Ping", "ansible.builtin.ping": {}}]})


def _take_turns(workload: Workload) -> Costs:
    """Measure everything once. Raises :class:`BenchError` if the session is not placed like the other containers."""
    empty = empty_playbook()
    no_task = lab.run_play({"hosts": "localhost"})
    docker_run = _docker_run(workload)
    lab.remove_containers()
    community_docker = _community_docker(workload)
    lab.remove_containers()
    created, record = lab.create(NAME, workload.variables)
    placed = Counter(kernel["agent"] for kernel in record["kernels"])
    if placed != workload.agents:
        raise BenchError(f"{NAME} is placed on {dict(placed)}, expected {workload.agents}")
    again, _record = lab.create(NAME, workload.variables)
    return Costs(empty, no_task, docker_run, community_docker, created, again, lab.terminate(NAME))


def _docker_run(workload: Workload) -> Cost:
    """Return the cost of ``docker run`` for all containers in parallel, over an open SSH connection to each agent.

    Only the containers are created: no network, no names, no keys, no check that anything works.
    """
    # A connection that has expired is opened again before the clock starts.
    lab.run_on_each(dict.fromkeys(workload.agents, "true"))
    lines = {agent: _docker_runs(count) for agent, count in workload.agents.items()}
    return cost_of(lambda: lab.run_on_each(lines))


def _docker_runs(count: int) -> str:
    """Return a shell line that runs that many containers in parallel, and fails if one of them does."""
    options = f"--label {lab.LABEL}=run --memory {MEMORY} --memory-swap {MEMORY}"
    runs = "".join(
        f"docker run --detach --cpuset-cpus {index % 2} {options} {IMAGE} sleep infinity >/dev/null & p{index}=$!; "
        for index in range(count)
    )
    return runs + " && ".join(f"wait $p{index}" for index in range(count))


def _community_docker(workload: Workload) -> Cost:
    """Return the cost of the same containers by a loop of tasks, with one network on each agent."""
    network = {"name": NETWORK, "labels": {lab.LABEL: "tasks"}}
    container = {
        "name": "bench-{{ item }}",
        "image": IMAGE,
        "command": "sleep infinity",
        "cpuset_cpus": "{{ item % 2 }}",
        "memory": MEMORY,
        "memory_swap": MEMORY,
        "networks": [{"name": NETWORK}],
        "labels": {lab.LABEL: "tasks"},
    }
    loop = "{{ range(counts[inventory_hostname]) | list }}"
    play = {
        "hosts": ",".join(workload.agents),
        "vars": {"counts": workload.agents},
        "tasks": [
            {"name": "Make the network", "community.docker.docker_network": network},
            {"name": "Make the containers", "community.docker.docker_container": container, "loop": loop},
        ],
    }
    return lab.run_play(play, str(other_ansible()))
