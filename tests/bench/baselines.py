"""The baselines: parallel ``docker run``, a loop of ``community.docker``, and an empty playbook."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from tests.bench import lab
from tests.bench.timing import Cost, cost_of
from tests.bench.workload import IMAGE, LABEL, MEMORY, Workload
from tests.lab.other_ansible import ensure_ansible

NETWORK = "bench-network"


def other_ansible() -> Path:
    """Return the ``ansible-playbook`` of a release with community.docker, and the core of the project."""
    packages = ("ansible==12.*", "ansible-core", "cryptography")
    return ensure_ansible("bench-venv", packages, ("runtime", "constraints")) / "ansible-playbook"


def empty_playbook() -> Cost:
    """Return the cost of a playbook with a single ``ping`` of the control node."""
    return lab.run_play({"hosts": "localhost", "tasks": [{"name": "Ping", "ansible.builtin.ping": {}}]}).cost


def docker_run(workload: Workload) -> Cost:
    """Return the cost of ``docker run`` for all containers in parallel, over an open SSH connection to each agent.

    Only the containers are created: no network, no names, no keys, no check that anything works.
    """
    # A connection that has expired is opened again before the clock starts.
    lab.run_on_each(dict.fromkeys(workload.agents, "true"))
    lines = {agent: _docker_runs(count) for agent, count in workload.agents.items()}
    return cost_of(lambda: lab.run_on_each(lines))


def community_docker(workload: Workload) -> Cost:
    """Return the cost of the same containers by a loop of tasks, with one network on each agent."""
    network = {"name": NETWORK, "labels": {LABEL: "tasks"}}
    container = {
        "name": "bench-{{ item }}",
        "image": IMAGE,
        "command": "sleep infinity",
        "cpuset_cpus": "{{ item % 2 }}",
        "memory": MEMORY,
        "memory_swap": MEMORY,
        "networks": [{"name": NETWORK}],
        "labels": {LABEL: "tasks"},
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
    return lab.run_play(play, str(other_ansible())).cost


def remove_all(agents: Iterable[str]) -> None:
    """Remove every container and local network of the benchmark; those of a swarm are removed with the swarm."""
    selection = f"--filter label={LABEL} --quiet"
    line = (
        f"docker ps --all {selection} | xargs --no-run-if-empty docker rm --force --volumes >/dev/null && "
        f"docker network ls --filter scope=local {selection} | xargs --no-run-if-empty docker network rm >/dev/null"
    )
    lab.run_on_each(dict.fromkeys(agents, line))


def _docker_runs(count: int) -> str:
    """Return a shell line that runs that many containers in parallel, and fails if one of them does."""
    options = f"--label {LABEL}=run --memory {MEMORY} --memory-swap {MEMORY}"
    runs = "".join(
        f"docker run --detach --cpuset-cpus {index % 2} {options} {IMAGE} sleep infinity >/dev/null & p{index}=$!; "
        for index in range(count)
    )
    return runs + " && ".join(f"wait $p{index}" for index in range(count))
