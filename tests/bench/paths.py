"""The ways between two agents that are compared, each made for as long as it is measured."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import shlex
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

from tests.bench.measured import BenchError, measured
from tests.bench.setting import LABEL
from tests.integration import laboratory

NEAR, FAR = "agent1", "agent2"
"""The agent that sends, and the one that receives."""

IMAGE = "lab/busybox:1"
SLEEP = f"{IMAGE} /bin/busybox sleep 3600"
"""What ``docker run`` is told, behind its options."""

OVERLAY = "bench-overlay"
SWARM_PORT = 4790
"""Not the port of our tunnels, which Docker's is too: both are there at once."""


@dataclasses.dataclass(frozen=True)
class Way:
    """From where to where: process ids whose network namespaces are meant (0: the agent's own), the far address."""

    near: int
    far: int
    address: str


class Shell:
    """Lines run on agents over SSH connections that are kept open; ``folder`` holds their sockets."""

    def __init__(self, folder: Path) -> None:
        options = ("ControlMaster=auto", "ControlPersist=60s", f"ControlPath={folder}/%C")
        self._options = [word for option in options for word in ("-o", option)]

    def command(self, agent: str, line: str) -> list[str]:
        """Return the command that runs a line on an agent."""
        ssh, *rest = laboratory.ssh(agent, line)
        return [ssh, *self._options, *rest]

    def on(self, agent: str, line: str, text: str = "") -> str:
        """Run a line, ``text`` as its input, and return what it prints. Raises :class:`BenchError` when it fails."""
        done = subprocess.run(self.command(agent, line), input=text, capture_output=True, text=True, check=False)
        if done.returncode:
            raise BenchError(f"{agent}: {line!r} ended with {done.returncode}: {done.stdout}{done.stderr}")
        return done.stdout.strip()

    def everywhere(self, line: str) -> None:
        """Run a line on both agents."""
        for agent in (NEAR, FAR):
            self.on(agent, line)

    def pid(self, agent: str, container: str) -> int:
        """Return the process id of a container's first process."""
        return int(self.on(agent, f"docker inspect --format '{{{{.State.Pid}}}}' {shlex.quote(container)}"))


def underlay() -> Way:
    """Return the way that the agents have without anything of ours."""
    return Way(0, 0, str(laboratory.host_variables(FAR)["agent_underlay_address"]))


@contextlib.contextmanager
def session(shell: Shell, folder: Path, name: str, variables: Mapping[str, object]) -> Iterator[Way]:
    """Make a session of two containers, one on each agent; ``variables`` go to the playbook too."""
    asked = {
        "session_name": name,
        "session_image": IMAGE,
        "session_cluster_size": 2,
        "session_cluster_mode": "multi-node",
        "session_agent_selection": "dispersed",
        "session_designated_agents": [NEAR, FAR],
        "session_resources": {"cpu": 1, "mem": "64m"},
    }
    record = folder / f"{name}.json"
    try:
        play(folder, "create_session", {**asked, **variables, "session_record_path": str(record)})
        kernels = {kernel["agent"]: kernel for kernel in json.loads(record.read_text())["kernels"]}
        near, far = (shell.pid(agent, kernels[agent]["container"]) for agent in (NEAR, FAR))
        yield Way(near, far, kernels[FAR]["address"])
    finally:
        play(folder, "terminate_session", {"session_name": name, **variables})


@contextlib.contextmanager
def encrypted_session(shell: Shell, folder: Path, name: str) -> Iterator[Way]:
    """Make a session over WireGuard, the agents provisioned for it meanwhile."""
    try:
        play(folder, "provision_agents", {"agent_underlay_encryption": "wireguard"})
        with session(shell, folder, name, {"agent_underlay_encryption": "wireguard"}) as way:
            yield way
    finally:
        play(folder, "provision_agents", {"agent_underlay_encryption": ""})


@contextlib.contextmanager
def swarm(shell: Shell) -> Iterator[Way]:
    """Make a swarm of the two agents, with an overlay and a container on each."""
    leave_swarm(shell)
    before = {agent: shell.on(agent, "docker network ls --format '{{.Name}}'").split() for agent in (NEAR, FAR)}
    address, far = (str(laboratory.host_variables(agent)["agent_underlay_address"]) for agent in (NEAR, FAR))
    try:
        shell.on(NEAR, f"docker swarm init --advertise-addr {address} --data-path-port {SWARM_PORT}")
        token = shell.on(NEAR, "docker swarm join-token --quiet worker")
        shell.on(FAR, f"docker swarm join --token {token} --advertise-addr {far} {address}:2377")
        make_overlay(shell, OVERLAY)
        shell.everywhere(f"docker run --detach --label {LABEL}=swarm --name bench-swarm --network {OVERLAY} {SLEEP}")
        form = f'{{{{(index .NetworkSettings.Networks "{OVERLAY}").IPAddress}}}}'
        near, there = (shell.pid(agent, "bench-swarm") for agent in (NEAR, FAR))
        yield Way(near, there, shell.on(FAR, f"docker inspect --format '{form}' bench-swarm"))
    finally:
        leave_swarm(shell)
        for agent, names in before.items():
            if "docker_gwbridge" not in names:
                shell.on(agent, "docker network rm docker_gwbridge || true")


def make_overlay(shell: Shell, name: str) -> None:
    """Make an overlay that containers can be attached to; the other agent hears of it when one is."""
    shell.on(NEAR, f"docker network create --driver overlay --attachable --label {LABEL}=swarm {name}")


def leave_swarm(shell: Shell) -> None:
    """Take the benchmark's swarm away, also one that an earlier run left. Raises where there is somebody else's."""
    for agent in (FAR, NEAR):
        if shell.on(agent, "docker info --format '{{.Swarm.LocalNodeState}}'") == "inactive":
            continue
        mine = f"docker ps --all --quiet --filter label={LABEL}=swarm"
        if not shell.on(agent, f"{mine}; docker network ls --quiet --filter label={LABEL}=swarm"):
            raise BenchError(f"{agent} is in a swarm already: `docker swarm leave --force` there, if nobody needs it")
        shell.on(agent, f"{mine} | xargs --no-run-if-empty docker rm --force >/dev/null; docker swarm leave --force")


def play(folder: Path, playbook: str, variables: Mapping[str, object]) -> None:
    """Run a playbook of the collection. Raises :class:`BenchError` when it fails."""
    measured(laboratory.command(playbook, folder, variables), laboratory.ROOT, laboratory.environment())
