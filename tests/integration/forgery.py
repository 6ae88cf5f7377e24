"""Sends genuine and forged frames and reports which of them arrive."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from ipaddress import ip_address
from typing import Any

from tests.integration.containers import default_address
from tests.integration.frames import datagram, ethernet, vxlan
from tests.integration.internals import DEFAULT_BRIDGE, session_link
from tests.integration.laboratory import TIMEOUT, Kernel, address, in_network, in_parallel, run_in, run_on, ssh
from tests.integration.probes import mac
from tests.integration.programs import run_line
from tests.integration.sessions import StartedSession

TUNNEL, IN_CONTAINER, ON_AGENT, EXTERNAL = 4789, 9997, 9998, 9999
#: Sent by a peer of the session into its tunnel.
PEER = "a peer of the session"
#: Dropped by no rule.
LEGITIMATE = {"a container", "a host"}
#: Arrives only where the rules are missing.
FORGED = {
    "a stranger",
    "a stranger as a peer",
    "a stranger as a gateway",
    "an agent of another session",
    "a container to the broadcast address",
}


def in_container(kernel: Kernel, program: str, *arguments: object) -> str:
    """Return the shell line that runs a program in a container's network; it has to run on the container's agent."""
    return in_network(kernel, run_line(program, *arguments))


def session_mac(kernel: Kernel) -> str:
    """Return the MAC address of a container in its session, which follows from its IP address."""
    return f"02:ba:{ip_address(kernel['address']).packed.hex(':')}"


def listener(host: str, line: str) -> subprocess.Popen[str]:
    """Start a program that listens on a host until its standard input ends."""
    return subprocess.Popen(ssh(host, line), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def listen_in(kernel: Kernel) -> str:
    """Return the shell line that listens in a container; it has to run on the container's agent."""
    return in_container(kernel, "listen", IN_CONTAINER)


def collect_datagrams(listeners: Mapping[str, Sequence[str]], senders: Sequence[tuple[str, str]]) -> set[str]:
    """Start listeners on hosts, then run the senders' lines (host, line), and return all payloads received."""
    with ExitStack() as stack:
        listening = [stack.enter_context(listener(host, line)) for host, lines in listeners.items() for line in lines]
        assert {process.stdout and process.stdout.readline() for process in listening} == {"ready\n"}
        in_parallel(*[partial(run_on, host, line) for host, line in senders])
        return {name for process in listening for name in json.loads(process.communicate(timeout=TIMEOUT)[0])}


def external_address() -> str:
    """Return the address of a host outside the cluster."""
    return address("user1")


def send_forged_frames(session: StartedSession) -> set[str]:
    """Send genuine and forged frames and return the payloads received in a container, on agent2 and on user1."""
    target, peer = session.container_on("agent2"), session.container_on("agent3")
    listeners = {
        "agent2": [listen_in(target), run_line("listen", ON_AGENT)],
        "user1": [run_line("listen", EXTERNAL)],
    }
    return collect_datagrams(listeners, [*_vxlan_senders(session, target, peer), *_container_senders(session, target)])


def _vxlan_senders(session: StartedSession, target: Kernel, peer: Kernel) -> list[tuple[str, str]]:
    """Return the hosts that send VXLAN datagrams to agent2, each with its shell line."""
    names_by_host = {
        "agent3": {"agent3": PEER},
        "user1": {"user1": "a stranger", "agent3": "a stranger as a peer", "gateway1": "a stranger as a gateway"},
        "agent1": {"agent1": "an agent of another session"},
    }

    def frame(host: str, sender: str, name: str) -> str:
        inner = datagram(peer["address"], target["address"], IN_CONTAINER, name.encode())
        payload = vxlan(session.record["network"]["vni"], ethernet(session_mac(peer), session_mac(target), inner))
        outer = datagram(address(sender), address("agent2"), TUNNEL, payload)
        return ethernet(mac(host), mac("agent2"), outer).hex()

    return [
        (host, run_line("send_frames", "eth0", *(frame(host, sender, name) for sender, name in names.items())))
        for host, names in names_by_host.items()
    ]


def _container_senders(session: StartedSession, sender: Kernel) -> list[tuple[str, str]]:
    """Return the lines with which a container on agent2, and a host, send to the agent and to an external host."""
    links = {link["ifname"]: link for link in json.loads(run_on("agent2", "ip -j address show"))}
    tunnel, default = links[session_link(session.record["id"])], links[DEFAULT_BRIDGE]
    own_address = default_address("agent2", sender["container"])
    on_cluster0 = [
        datagram(sender["address"], address("agent2"), ON_AGENT, b"a container on its session's network"),
    ]
    on_eth0 = [
        datagram(own_address, "255.255.255.255", ON_AGENT, b"a container to the broadcast address"),
        datagram(own_address, external_address(), EXTERNAL, b"a container"),
    ]

    def sender_line(interface: str, link: dict[str, Any], packets: Sequence[bytes]) -> tuple[str, str]:
        own_mac = run_in(sender, "cat", f"/sys/class/net/{interface}/address").strip()
        frames = [ethernet(own_mac, link["address"], packet).hex() for packet in packets]
        return "agent2", in_container(sender, "send_frames", interface, *frames)

    hello = run_line("send_datagram", address("agent2"), ON_AGENT, "a host")
    return [sender_line("cluster0", tunnel, on_cluster0), sender_line("eth0", default, on_eth0), ("user1", hello)]
