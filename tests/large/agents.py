"""The simulated agents: a network namespace and a state folder each, one mount namespace and one process for all.

Each runs the program that provisioning installs on any agent, over ``ansible_connection: local``. Only its engine is
simulated.
"""

from __future__ import annotations

import shlex
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path

from tests.integration.internals import DEFAULT_BRIDGE
from tests.lab.command import LabError, output
from tests.lab.engine import socket_answers
from tests.lab.identity import Lab
from tests.lab.leftovers import end_processes, join_cgroup_line, remove_folder

#: The addresses of the agents, each in a network namespace without a way out; reserved for measurements (RFC 2544).
ADDRESSES = IPv4Network("198.18.0.0/15")
#: An agent offers this many times its cores, and its containers take all of them, each as many as there are.
CONTAINERS = 5
#: The name of the folder with the agents' kit, which no container uses.
KIT = "0123456789ab"
#: Where agents have their program.
LIBRARIES = "/usr/local/lib"

ROOT = Path(__file__).resolve().parents[2]

_INVENTORY = """\
---
all:
  vars:
    session_queue_path: {queue}
  children:
    agents:
      hosts:
"""
_HOST = """\
        {agent.name}:
          ansible_connection: local
          ansible_python_interpreter: {agent.interpreter}
          agent_docker_host: unix://{agent.socket}
          agent_state_path: {agent.state}
          agent_underlay_address: {agent.address}
          agent_cpu_overcommit: {containers}
          agent_slots: []
"""


@dataclass(frozen=True)
class SimulatedAgent:
    """One agent: its name in the inventory, its address, its network namespace, its folder and its engine's socket."""

    name: str
    address: IPv4Address
    namespace: str
    folder: Path
    socket: Path

    @property
    def state(self) -> Path:
        """The folder ``agent_state_path``."""
        return self.folder / "state"

    @property
    def homes(self) -> Path:
        """The folder ``agent_home_path``."""
        return self.folder / "homes"

    @property
    def interpreter(self) -> Path:
        """The program that runs Python on the agent."""
        return self.folder / "python"


@dataclass(frozen=True)
class LargeLab(Lab):
    """Names and folders of the simulated agents of one checkout."""

    @property
    def folder(self) -> Path:
        return self.checkout / ".lab-large"

    @property
    def name(self) -> str:
        return f"backendai-large-{self.id}"

    @property
    def queue(self) -> Path:
        """The folder of the queue."""
        return self.folder / "queue"

    def agent(self, number: int) -> SimulatedAgent:
        """Return the agent with that number, which begins with 1."""
        name = f"simulated{number:03}"
        return SimulatedAgent(
            name, ADDRESSES[number], f"{self.name}-{number}", self.folder / name, self.run_folder / f"{name}.sock"
        )


def make_agents(lab: LargeLab, count: int) -> list[SimulatedAgent]:
    """Create that many agents without sessions, and their inventory, and install their program as provisioning does."""
    remove_agents(lab)
    agents = [lab.agent(number) for number in range(1, count + 1)]
    lab.run_folder.mkdir(mode=0o700)
    _make_namespaces(agents)
    process = _start_engines(lab, agents)
    for agent in agents:
        _make_folders(agent, process)
    hosts = (_HOST.format(agent=agent, containers=CONTAINERS) for agent in agents)
    lab.inventory.write_text(_INVENTORY.format(queue=lab.queue) + "".join(hosts))
    # That of the first agent is that of all of them.
    ansible = str(ROOT / ".venv" / "bin" / "ansible")
    output(ansible, "-i", str(lab.inventory), agents[0].name, "-m", "backendai.cluster.agent_program")
    return agents


def remove_agents(lab: LargeLab) -> None:
    """Remove all agents of the lab, however many there are."""
    end_processes(lab)
    names = [path.name for path in Path("/run/netns").glob(f"{lab.name}-*")]
    if names:
        output("ip", "-batch", "-", stdin="".join(f"netns delete {name}\n" for name in names).encode())
    for folder in (lab.run_folder, lab.folder):
        remove_folder(folder)


def _make_namespaces(agents: Sequence[SimulatedAgent]) -> None:
    """Create the namespaces: an underlay without a way out, the bridge of the default network, the engine's rules."""
    lines = "".join(f"netns add {agent.namespace}\n" for agent in agents)
    output("ip", "-batch", "-", stdin=lines.encode())
    for agent in agents:
        inside = [
            "link set lo up",
            "link add eth0 type veth peer name out",
            f"addr add {agent.address}/{ADDRESSES.prefixlen} dev eth0",
            "link set eth0 up",
            f"link add {DEFAULT_BRIDGE} type bridge",
            f"addr add 172.18.0.1/16 dev {DEFAULT_BRIDGE}",
            f"link set {DEFAULT_BRIDGE} up",
        ]
        lines = "".join(f"{line}\n" for line in inside)
        output("ip", "-netns", agent.namespace, "-batch", "-", stdin=lines.encode())
        enter = ["nsenter", f"--net=/run/netns/{agent.namespace}"]
        output(*enter, "iptables", "--wait", "-t", "nat", "-N", "DOCKER")
        output(*enter, "sysctl", "--quiet", "--write", "net.ipv4.ip_forward=1")


def _start_engines(lab: LargeLab, agents: Sequence[SimulatedAgent]) -> int:
    """Start the process of the engines in the agents' mount namespace, and return its id.

    Agents install their program below a folder of their own, which lies over the machine's. In their homes no setuid
    program has an effect.
    """
    own = lab.folder / "libraries"
    own.mkdir(parents=True)
    script = f"""
        {join_cgroup_line(lab, "engines")}
        mount --bind -o nosuid,nodev '{lab.folder}' '{lab.folder}'
        mount -t tmpfs none '{own}'
        mkdir '{own}/upper' '{own}/work'
        mount -t overlay -o 'lowerdir={LIBRARIES},upperdir={own}/upper,workdir={own}/work' overlay {LIBRARIES}
        exec '{sys.executable}' -m tests.large.engine '{lab.checkout}' {len(agents)}
    """
    log = lab.folder / "engines.log"
    with log.open("wb") as sink:
        process = subprocess.Popen(
            ["unshare", "--mount", "--propagation", "private", "sh", "-euc", script],
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=sink,
            start_new_session=True,
        )
    for _attempt in range(600):
        if all(agent.socket.exists() for agent in agents) and socket_answers(agents[-1].socket):
            return process.pid
        if process.poll() is not None:
            break
        time.sleep(0.1)
    raise LabError(f"the simulated engines did not start: {log.read_text(errors='replace')[-600:]}")


def _make_folders(agent: SimulatedAgent, process: int) -> None:
    """Create the folders of an agent, and the program that runs Python in its namespaces."""
    kit = agent.state / "kit" / KIT
    kit.mkdir(parents=True)
    (kit.parent / "current").symlink_to(KIT)
    # All that an agent itself runs of its kit, with the options of its loader.
    (kit / "loader").mkdir()
    (kit / "loader/ssh-keygen").write_text('#!/bin/sh\nshift 4\nexec ssh-keygen "$@"\n')
    (kit / "loader/ssh-keygen").chmod(0o755)
    (agent.homes / "removed").mkdir(parents=True)
    (agent.state / "homes").symlink_to(agent.homes)
    agent.state.chmod(0o700)
    (agent.state / "lock").touch(mode=0o600)
    (agent.state / "sessions").mkdir(mode=0o700)
    # The lines of Ansible that run it are those of any host.
    nets = f"--net=/run/netns/{agent.namespace} --mount=/proc/{process}/ns/mnt"
    agent.interpreter.write_text(f'#!/bin/sh\nexec nsenter {nets} {shlex.quote(sys.executable)} "$@"\n')
    agent.interpreter.chmod(0o755)
