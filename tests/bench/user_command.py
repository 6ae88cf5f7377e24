"""Measure the command ``backendai``, which a user runs on a manager, beside the playbooks that it stands for."""

from __future__ import annotations

from tests.bench import lab, sessions
from tests.bench.leftovers import clean_lab
from tests.bench.timing import rounds
from tests.bench.workload import CPU, IMAGE, MEMORY

MANAGER, USER = "manager1", "alice"
NAME = f"{sessions.PREFIX}command"
SIZE = 4
#: What the manager's timer runs, which is off in the lab.
LOOK = (
    "runuser --user backendai -- sh -c 'cd; ANSIBLE_CONFIG=/etc/backendai/ansible.cfg"
    " /usr/local/lib/backendai-manager/schedule -i /etc/backendai/inventory.yml backendai.cluster.schedule_sessions"
    " -e session_queue_path=/var/lib/backendai-manager/queue'"
)


def seconds(words: str) -> float:
    """Return how long the command takes, without the login. Raises :class:`BenchError` if it fails."""
    line = f"cd; start=$(date +%s%N); backendai {words} > /dev/null && echo $(($(date +%s%N) - start))"
    return int(lab.run_on(MANAGER, f"runuser --user {USER} -- sh -c '{line}'")) / 1e9


def measure(count: int) -> dict[str, list[float]]:
    """Return for each verb the ratios of each round, and the seconds of a list from the timer's last look."""
    figures: dict[str, list[float]] = {"command_create": [], "command_list": [], "seconds_command_cached": []}
    variables = {
        "session_image": IMAGE,
        "session_cluster_size": SIZE,
        "session_resources": {"cpu": CPU, "mem": MEMORY},
    }
    create = f"create --name {NAME} --image {IMAGE} --size {SIZE} --cpu {CPU} --mem {MEMORY}"
    with clean_lab():
        for _number in rounds(count):
            playbook = sessions.create(f"{NAME}-playbook", variables).run.cost.wall
            figures["command_create"].append(seconds(create) / playbook)
            listing = sessions.list_all()[0].cost.wall
            figures["command_list"].append(seconds("list --json") / listing)
            lab.run_on(MANAGER, LOOK)
            figures["seconds_command_cached"].append(seconds("list --cached --json"))
            sessions.end_all()
    return figures
