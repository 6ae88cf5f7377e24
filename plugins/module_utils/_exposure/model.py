# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What is tried from outside, and what may come of it."""

from __future__ import annotations

import dataclasses

# What an address belongs to. Those of a host's bridges and containers are behind the host.
AGENT, BRIDGE, CONTAINER, GATEWAY = "agent", "bridge", "container", "gateway"

# Seconds for one attempt, in which the kernel sends a second SYN, and for one part of what an outsider tries.
PROBE_TIMEOUT, STINT_SECONDS = 2.5, 60.0

# The states of a door, two of them in the words of nmap: the handshake went through, or something came back; the other
# side refused; the host itself sent another ICMP error.
OPEN, CLOSED, ICMP_ERROR = "open", "closed", "answered"


@dataclasses.dataclass(frozen=True)
class ProbedHost:
    """A host that is tried. ``addresses`` are by address what each belongs to, ``udp_ports`` those of its tunnels.

    ``expected`` are the TCP ports of its own addresses that may be open, with what they are for. ``unread`` is why the
    host could not say all of that itself; empty when it did.
    """

    name: str
    kind: str
    addresses: dict[str, str]
    udp_ports: tuple[int, ...] = ()
    expected: dict[int, str] = dataclasses.field(default_factory=dict)
    unread: str = ""


@dataclasses.dataclass(frozen=True)
class ProbeBatch:
    """A part of what an outsider tries, as plain data would have it; ``ports`` are TCP ports as they are written."""

    target: str
    own: tuple[str, ...]
    addresses: tuple[str, ...]
    ports: str
    udp_ports: tuple[int, ...]
    echo: bool
