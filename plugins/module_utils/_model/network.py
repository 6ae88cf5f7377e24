# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The network of a session, the names of its interfaces on agents, and the underlay of an agent."""

from __future__ import annotations

import dataclasses

# The engine appends a number, so that the session interface of every container is ``cluster0``.
INTERFACE_PREFIX = "cluster"

SESSION_INTERFACE = f"{INTERFACE_PREFIX}0"

# Name prefixes of the bridges and VXLAN interfaces of sessions on their agents.
BRIDGE_PREFIX, VXLAN_PREFIX = "bai-", "bax-"

# The driver of a session on the network of its agents, and the engine's name of that network.
HOST_NETWORK = "host"

# The bridge of the default network, which every container joins in addition to its session's.
DEFAULT_BRIDGE = "backendai0"


@dataclasses.dataclass(frozen=True)
class Network:
    """The session's network. ``vni`` and ``port`` are those of the VXLAN, ``None`` on a private bridge.

    ``bridge`` and ``link`` are names of interfaces on the agents, of which it has one: the bridge of one agent, or the
    VXLAN link of several. ``mtu`` is in bytes. The agents' own network (driver ``host``) has only an MTU.
    """

    driver: str
    name: str
    subnet: str | None
    mtu: int
    bridge: str | None
    vni: int | None = None
    port: int | None = None
    link: str | None = None

    @property
    def engine_network(self) -> str | None:
        """The name of the engine's network; ``None`` if containers have macvlans on the link, made by the agent."""
        return None if self.link else self.name


def vxlan_link_name(session_id: str) -> str:
    """Return the name of a session's VXLAN link on every agent; Linux allows 15 characters at most."""
    return f"{VXLAN_PREFIX}{short_id(session_id)}"


def bridge_name(session_id: str) -> str:
    """Return the name of a session's bridge on its agent."""
    return f"{BRIDGE_PREFIX}{short_id(session_id)}"


def short_id(session_id: str) -> str:
    """Return the part of a session's id that is in the names of its interfaces."""
    return session_id.replace("-", "")[:10]


@dataclasses.dataclass(frozen=True)
class Underlay:
    """The underlay of an agent: its IPv4 or IPv6 address towards other agents, and the interface with its MTU in bytes.

    ``mac`` is that of the interface, empty if it has none. ``public_key`` and ``endpoint`` (``address:port``) are those
    of a WireGuard interface, empty if the underlay is not encrypted.
    """

    address: str
    interface: str
    mtu: int
    mac: str = ""
    public_key: str = ""
    endpoint: str = ""

    @property
    def host(self) -> str:
        """The address at which other hosts reach the agent; an encrypted ``address`` is reachable by peers only."""
        return self.endpoint.rpartition(":")[0].strip("[]") or self.address
