"""Reachability tests from containers and hosts.

Any response counts as reached: a connection, a refusal, an ICMP error. Only silence counts as closed.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from tests.integration.laboratory import AGENTS, Kernel, address, in_network, run_on
from tests.integration.programs import run_line

#: Protocol, address, port.
Target = tuple[str, str, int]

#: A port that containers outside of sessions publish on agents, so that there is something to reach.
PUBLISHED = 8099


def all_targets(*addresses: str) -> list[Target]:
    """Return all kinds of targets on hosts: open and closed ports, ICMP, and an unused IP protocol."""
    kinds = (("tcp", 22), ("tcp", PUBLISHED), ("udp", 9), ("icmp", 0), ("other", 0))
    return [(protocol, host, port) for host in addresses for protocol, port in kinds]


def targets_with_ports(*addresses: str) -> list[Target]:
    """Return the targets with ports or ICMP ids; without them, NAT and conntrack cannot tell senders apart."""
    return [target for target in all_targets(*addresses) if target[0] != "other"]


def reachable_from_container(kernel: Kernel, targets: Sequence[Target]) -> set[Target]:
    """Return those of the targets that respond to a container, probed with more than its own capabilities."""
    return _answers(run_on(kernel["agent"], in_network(kernel, run_line("reach", json.dumps(targets)))))


def reachable_from_host(host: str, targets: Sequence[Target]) -> set[Target]:
    """Return those of the targets that respond to a host."""
    return _answers(run_on(host, run_line("reach", json.dumps(targets))))


def _answers(printed: str) -> set[Target]:
    return set(map(tuple, json.loads(printed)))


def list_addresses(agent: str) -> list[str]:
    """Return the addresses of an agent, including those of its bridges."""
    links = json.loads(run_on(agent, "ip -j -4 address show scope global"))
    return [entry["local"] for link in links for entry in link["addr_info"]]


@functools.cache
def mac(host: str) -> str:
    """Return the MAC address of a host in the agents' network."""
    return run_on(host, "cat /sys/class/net/eth0/address").strip()


def control_node_address() -> str:
    """Return the source address of Ansible's connections."""
    return run_on(AGENTS[0], "echo ${SSH_CONNECTION%% *}").strip()


def read_banner(host: str, target: str, port: int) -> str:
    """Return the banner that a host reads from a port, such as ``SSH-2.0-…``, or the error, such as ``… timed out``."""
    output = run_on(host, run_line("banner", target, port), check=False).strip()
    return output.splitlines()[-1] if output else ""


@contextmanager
def routes_through(agent: str, addresses: Sequence[str]) -> Iterator[None]:
    """Route these addresses through an agent on user1."""
    run_on("user1", "; ".join(f"ip route replace {inner} via {address(agent)}" for inner in addresses))
    try:
        yield
    finally:
        run_on("user1", "; ".join(f"ip route del {inner}" for inner in addresses))


def scan(addresses: Sequence[str], ports: str) -> set[tuple[str, str]]:
    """Scan TCP ports from user1; return address and ``port/state`` of those that are open or closed, not filtered."""
    run_on("user1", "command -v nmap || apt-get install --yes --no-install-recommends nmap")
    line = f"nmap -Pn -n -sS -p {ports} --min-rate 40000 --max-retries 1 -oG - {' '.join(addresses)}"
    hosts = re.findall(r"^Host: (\S+).*?Ports: (.*?)(?:\t|$)", run_on("user1", line), re.MULTILINE)
    ports_by_state = {(host, port) for host, listed in hosts for port in re.findall(r"(\d+/\w+)", listed)}
    return {(host, port) for host, port in ports_by_state if "/filtered" not in port}
