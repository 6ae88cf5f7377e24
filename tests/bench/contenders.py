"""The ways to get the containers, each measured alone: the floor, a loop of tasks, and a session."""

from __future__ import annotations

import json
import shlex
import subprocess
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from tests.bench.measured import BenchError, Run, measured
from tests.bench.setting import COUNT, CPU, IMAGE, LABEL, MEMORY, Setting
from tests.integration import laboratory

SESSION = "bench-session"
NETWORK = "bench-network"


class Floor:
    """``docker run`` for all containers at once, over one SSH connection to each agent that is kept open.

    Nothing but the containers is made: no network, no names, no keys, no check that anything works.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def create(self, setting: Setting) -> float:
        """Return the seconds until every ``docker run`` has ended."""
        lines = {agent: _docker_runs(count) for agent, count in setting.agents.items()}
        return self._on_all(lines)

    def remove(self, agents: Iterable[str]) -> None:
        """Remove every container and network that the benchmark has made, however it made it."""
        chosen = f"--filter label={LABEL} --quiet"
        line = (
            f"docker ps --all {chosen} | xargs --no-run-if-empty docker rm --force --volumes >/dev/null && "
            f"docker network ls {chosen} | xargs --no-run-if-empty docker network rm >/dev/null"
        )
        self._on_all(dict.fromkeys(agents, line))

    def _on_all(self, lines: Mapping[str, str]) -> float:
        began = time.monotonic()
        with ThreadPoolExecutor(len(lines)) as pool:
            list(pool.map(self._on, lines, lines.values()))
        return time.monotonic() - began

    def _on(self, agent: str, line: str) -> None:
        variables = laboratory.host_variables(agent)
        done = subprocess.run(
            [
                *("ssh", "-o", "ControlMaster=auto", "-o", "ControlPersist=60s"),
                *("-o", f"ControlPath={self._folder}/%C", "-o", "BatchMode=yes"),
                *("-i", variables["ansible_ssh_private_key_file"]),
                *shlex.split(variables["ansible_ssh_common_args"]),
                *(f"{variables['ansible_user']}@{variables['ansible_host']}", line),
            ],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise BenchError(f"{agent}: {line!r} ended with {done.returncode}: {done.stdout}{done.stderr}")


class Tasks:
    """The same containers through modules of ``community.docker``, one network and a loop of containers per agent."""

    def __init__(self, folder: Path, ansible_playbook: Path) -> None:
        self._folder = folder
        self._ansible_playbook = ansible_playbook

    def startup(self) -> float:
        """Return the seconds of a playbook that has nothing to do but one ``ping`` of the control node."""
        task = {"name": "Do nothing", "ansible.builtin.ping": {}}
        return self._play("startup", {"hosts": "localhost", "tasks": [task]}).seconds

    def create(self, setting: Setting) -> float:
        """Return the seconds until the playbook has ended."""
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
        play = {
            "hosts": ",".join(setting.agents),
            "vars": {"counts": setting.agents},
            "tasks": [
                {"name": "Make the network", "community.docker.docker_network": network},
                {
                    "name": "Make the containers",
                    "community.docker.docker_container": container,
                    "loop": "{{ range(counts[inventory_hostname]) | list }}",
                },
            ],
        }
        return self._play("tasks", play).seconds

    def _play(self, name: str, play: dict[str, Any]) -> Run:
        playbook = self._folder / f"{name}.json"
        playbook.write_text(json.dumps([{"name": name, "gather_facts": False, **play}]))
        command = [str(self._ansible_playbook), "-i", str(laboratory.INVENTORY), str(playbook)]
        return measured(command, laboratory.ROOT, laboratory.environment())


class Session:
    """A session of the collection."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._record = folder / "record.json"

    def create(self, setting: Setting) -> Run:
        """Create the session, or run the creation of one again that is there. Raises where containers lie elsewhere."""
        variables = {
            "session_image": IMAGE,
            "session_cluster_size": COUNT,
            "session_resources": {"cpu": CPU, "mem": MEMORY},
            **{f"session_{name}": value for name, value in setting.variables.items()},
        }
        run = self._play("create_session", variables)
        placed = Counter(kernel["agent"] for kernel in json.loads(self._record.read_text())["kernels"])
        if placed != setting.agents:
            raise BenchError(f"{SESSION} lies on {dict(placed)}, where {setting.agents} was expected")
        return run

    def terminate(self) -> Run:
        """End the session; one that is not there is as good."""
        return self._play("terminate_session", {})

    def _play(self, playbook: str, variables: Mapping[str, object]) -> Run:
        given = {"session_name": SESSION, "session_record_path": str(self._record), **variables}
        line = laboratory.command(playbook, self._folder, given)
        return measured(line, laboratory.ROOT, laboratory.environment())


def _docker_runs(count: int) -> str:
    """Return a shell line that runs that many containers at once, and fails where one of them does."""
    options = f"--label {LABEL}=floor --memory {MEMORY} --memory-swap {MEMORY}"
    runs = "".join(
        f"docker run --detach --cpuset-cpus {index % 2} {options} {IMAGE} sleep infinity >/dev/null & p{index}=$!; "
        for index in range(count)
    )
    return runs + " && ".join(f"wait $p{index}" for index in range(count))
