"""The simulated agents: a network namespace and a state folder each, one mount namespace and one process for all."""

from __future__ import annotations

import shlex
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from ansible_collections.backendai.cluster.plugins.module_utils._model.network import DEFAULT_BRIDGE
from tests.lab.command import LabError, output
from tests.lab.engine import socket_answers
from tests.lab.leftovers import end_processes, join_cgroup_line, remove_folder
from tests.large.identity import ADDRESSES, LargeLab, SimulatedAgent

#: The name of the folder with the agents' kit, which no container uses.
KIT = "0123456789ab"
#: Where agents have their program.
LIBRARIES = "/usr/local/lib"


def ensure_agents(lab: LargeLab, agents: Sequence[SimulatedAgent]) -> None:
    """Create the agents, and start the process of their engines."""
    remove_agents(lab)
    lab.run_folder.mkdir(mode=0o700)
    _make_namespaces(agents)
    process = _start_engines(lab, agents)
    for agent in agents:
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
        # The lines of Ansible that run it are those of any host.
        nets = f"--net=/run/netns/{agent.namespace} --mount=/proc/{process}/ns/mnt"
        agent.interpreter.write_text(f'#!/bin/sh\nexec nsenter {nets} {shlex.quote(sys.executable)} "$@"\n')
        agent.interpreter.chmod(0o755)


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

    Agents install their program below a folder of their own, which lies over the machine's.
    """
    own = lab.folder / "libraries"
    own.mkdir(parents=True)
    script = f"""
        {join_cgroup_line(lab, "engines")}
        mount -t tmpfs none '{own}'
        mkdir '{own}/upper' '{own}/work'
        mount -t overlay -o 'lowerdir={LIBRARIES},upperdir={own}/upper,workdir={own}/work' overlay {LIBRARIES}
        exec '{sys.executable}' -m tests.large.engine '{lab.checkout}' {len(agents)}
    """
    log = lab.folder / "engines.log"
    with log.open("wb") as sink:
        process = subprocess.Popen(
            ["unshare", "--mount", "--propagation", "private", "sh", "-euc", script],
            cwd=Path(__file__).parents[2],
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
