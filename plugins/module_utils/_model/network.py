# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The network that joins a session's containers, how its parts are called on agents, and where agents meet."""

from __future__ import annotations

import dataclasses

# The engine appends a number, so that the session interface of every container is ``cluster0``.
INTERFACE_PREFIX = "cluster"

SESSION_INTERFACE = f"{INTERFACE_PREFIX}0"

# How the bridges and VXLAN links of sessions are called on their agents.
BRIDGE_PREFIX, VXLAN_PREFIX = "bai-", "bax-"

# The driver of a session whose agents are joined by an overlay of a Docker Swarm that is there already.
SWARM = "swarm"

# The driver of a session whose containers share their agents' own network, and what the engine calls that network.
HOST_NETWORK = "host"

# The bridge of the network that every container joins beside its session's.
DEFAULT_BRIDGE = "backendai0"


@dataclasses.dataclass(frozen=True)
class Network:
    """The session's network. ``vni`` and ``port`` are those of the VXLAN, ``None`` on a private bridge.

    ``bridge`` and ``link`` are names of interfaces on the agents; ``mtu`` is in bytes. The agents' own network (driver
    ``host``) has none of these but an MTU. An overlay of Docker Swarm has a subnet, and the ``manager`` that makes it.
    """

    driver: str
    name: str
    subnet: str | None
    mtu: int
    bridge: str | None
    vni: int | None = None
    port: int | None = None
    link: str | None = None
    swarm_manager: str | None = None


def vxlan_link_name(session_id: str) -> str:
    """Return the name of a session's VXLAN link, the same on every agent; names of links have 15 characters at most."""
    return f"{VXLAN_PREFIX}{_short_id(session_id)}"


def _short_id(session_id: str) -> str:
    return session_id.replace("-", "")[:10]


@dataclasses.dataclass(frozen=True)
class Underlay:
    """Where an agent meets its peers: its IPv4 or IPv6 address, and the interface that has it with its MTU in bytes.

    ``mac`` is that of the interface, empty where it has none. ``public_key`` is that of a WireGuard interface, and
    ``endpoint`` (``address:port``) where its peers reach that; both are empty for an underlay that is not encrypted.
    """

    address: str
    interface: str
    mtu: int
    mac: str = ""
    public_key: str = ""
    endpoint: str = ""
