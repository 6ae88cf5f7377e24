"""Who reaches whom, as containers and hosts find out.

Whatever comes back counts as reached: a connection, a refusal, an ICMP error. Only silence is closed.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from tests.integration.laboratory import AGENTS, Kernel, address, inside, on
from tests.integration.programs import run_line, source

#: Protocol, address, port.
Target = tuple[str, str, int]

#: A port that foreign containers publish on agents, so that there is something to reach.
PUBLISHED = 8099


def all_ways(*addresses: str) -> list[Target]:
    """Return every way to reach hosts: open and closed ports, ICMP, and an IP protocol that nobody speaks."""
    kinds = (("tcp", 22), ("tcp", PUBLISHED), ("udp", 9), ("icmp", 0), ("other", 0))
    return [(protocol, host, port) for host in addresses for protocol, port in kinds]


def ways_with_ports(*addresses: str) -> list[Target]:
    """Return the ways by which hosts tell who asked: without ports, translation and tracking take all for one."""
    return [way for way in all_ways(*addresses) if way[0] != "other"]


def reached(kernel: Kernel, targets: Sequence[Target]) -> set[Target]:
    """Return those of the targets that answer a container, whoever its user is."""
    return _answers(inside(kernel, "python3", "-c", source("reach"), json.dumps(targets), user="root"))


def reached_by_host(host: str, targets: Sequence[Target]) -> set[Target]:
    """Return those of the targets that answer a host."""
    return _answers(on(host, run_line("reach", json.dumps(targets))))


def _answers(printed: str) -> set[Target]:
    return set(map(tuple, json.loads(printed)))


def addresses_of(agent: str) -> list[str]:
    """Return the addresses of an agent, those of its bridges among them."""
    links = json.loads(on(agent, "ip -j -4 address show scope global"))
    return [entry["local"] for link in links for entry in link["addr_info"]]


@functools.cache
def mac(host: str) -> str:
    """Return the MAC that a host has in the agents' network."""
    return on(host, "cat /sys/class/net/eth0/address").strip()


def manager() -> str:
    """Return the address from which Ansible's connections come."""
    return on(AGENTS[0], "echo ${SSH_CONNECTION%% *}").strip()


def greeting(host: str, target: str, port: int) -> str:
    """Return what a host hears first at a port, such as ``SSH-2.0-…``, or why it hears nothing: ``… timed out``."""
    heard = on(host, run_line("greeting", target, port), check=False).strip()
    return heard.splitlines()[-1] if heard else ""


@contextmanager
def routed_through(agent: str, addresses: Sequence[str]) -> Iterator[None]:
    """Let user1 send what is for these addresses to an agent."""
    on("user1", "; ".join(f"ip route replace {inner} via {address(agent)}" for inner in addresses))
    try:
        yield
    finally:
        on("user1", "; ".join(f"ip route del {inner}" for inner in addresses))


def scan(addresses: Sequence[str], ports: str) -> set[tuple[str, str]]:
    """Return what user1 finds among TCP ports, as address and ``port/state``; refusals count."""
    on("user1", "command -v nmap || apt-get install --yes --no-install-recommends nmap")
    line = f"nmap -Pn -n -sS -p {ports} --min-rate 40000 --max-retries 1 -oG - {' '.join(addresses)}"
    shown = re.findall(r"^Host: (\S+).*?Ports: (.*?)(?:\t|$)", on("user1", line), re.MULTILINE)
    found = {(host, port) for host, listed in shown for port in re.findall(r"(\d+/\w+)", listed)}
    return {(host, port) for host, port in found if "/filtered" not in port}
