# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Data model of the exposure scan: targets, batches, port states, and probes from inside of containers."""

from __future__ import annotations

import dataclasses

# Owner of an address. Those of a host's bridges and containers are reached through the host.
AGENT, BRIDGE, CONTAINER, GATEWAY = "agent", "bridge", "container", "gateway"

# Seconds for one probe, in which the kernel repeats the SYN once, and for one batch of a probe host.
PROBE_TIMEOUT, BATCH_SECONDS = 2.5, 60.0

# Port states. `open` and `closed` as in nmap; `answered`: the target itself sent another ICMP error.
OPEN, CLOSED, ICMP_ERROR = "open", "closed", "answered"


@dataclasses.dataclass(frozen=True)
class Separation:
    """How an agent keeps management and compute apart.

    ``declared`` is whether its networks are, ``problems`` are why they are not apart, and ``enforced`` is whether its
    firewall keeps SSH and tunnels to their networks.
    """

    declared: bool
    problems: tuple[str, ...]
    enforced: bool


@dataclasses.dataclass(frozen=True)
class ProbedHost:
    """A host to scan. ``addresses`` maps each address to its owner, ``udp_ports`` are those of its tunnels.

    ``expected`` are the TCP ports of its own addresses that may be open, with their purpose. ``unread`` is why the host
    could not report all of this; empty if it did. ``firewall_mode`` is ``off`` without a firewall, empty if unknown.
    ``separation`` is that of an agent, ``None`` if unknown.
    """

    name: str
    kind: str
    addresses: dict[str, str]
    udp_ports: tuple[int, ...] = ()
    expected: dict[int, str] = dataclasses.field(default_factory=dict)
    unread: str = ""
    firewall_mode: str = ""
    separation: Separation | None = None


@dataclasses.dataclass(frozen=True)
class TargetsReply:
    """What a host reports of itself, with the fields of :class:`ProbedHost`."""

    addresses: dict[str, str]
    udp_ports: tuple[int, ...]
    expected: dict[int, str]
    unread: str
    firewall_mode: str = ""
    separation: Separation | None = None


@dataclasses.dataclass(frozen=True)
class PortAnswer:
    """The TCP or UDP ports of an address that gave the same answer; ``ports`` are ranges as text."""

    address: str
    protocol: str
    state: str
    ports: str


@dataclasses.dataclass(frozen=True)
class ProbeReply:
    """What a probe host reports of one batch: answers, next hops by address, and what it could not probe."""

    answers: tuple[PortAnswer, ...]
    next_hops: dict[str, str]
    missing: dict[str, str]
    unresolved: tuple[str, ...]
    on_link: bool


@dataclasses.dataclass(frozen=True)
class ProbeBatch:
    """A part of the scan of one host, as plain data; ``ports`` are TCP ports as text."""

    target: str
    own: tuple[str, ...]
    addresses: tuple[str, ...]
    ports: str
    udp_ports: tuple[int, ...]
    echo: bool


@dataclasses.dataclass(frozen=True)
class InsideTarget:
    """An address of ``host`` for its management, and its SSH port: no container may reach it."""

    host: str
    address: str
    port: int


@dataclasses.dataclass(frozen=True)
class InsideAnswer:
    """A target that answered, by its address and port, and the state of the port."""

    address: str
    port: int
    state: str


@dataclasses.dataclass(frozen=True)
class InsideProbe:
    """What answered a container of a session; ``failed`` is why nothing was probed from it."""

    session: str
    container: str
    answers: tuple[InsideAnswer, ...]
    failed: str = ""


@dataclasses.dataclass(frozen=True)
class InsideReply:
    """What an agent reports of its containers; ``skipped`` is the number of sessions beyond the limit."""

    probes: tuple[InsideProbe, ...]
    skipped: int
