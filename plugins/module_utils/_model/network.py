# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The network of a session, the names of its interfaces on agents, and the underlay of an agent."""

from __future__ import annotations

import base64
import dataclasses
import functools
import hashlib
import ipaddress
import re

from .addressing import bracketed, is_address

# The network of the inner addresses of agents with WireGuard (RFC 4193); the other 80 bits identify an agent.
INNER_NETWORK = ipaddress.IPv6Network("fd62:6169::/48")

_KEY_BYTES = 32

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


@functools.lru_cache(4096)
def inner_address(public_key: str) -> str:
    """Return the inner address that is derived from a public key, so that agents need not agree on addresses.

    Raises :class:`ValueError` for an invalid public key, and for another spelling of a valid one, which ``wg`` refuses.
    """
    try:
        key = base64.b64decode(public_key, validate=True)
    except ValueError:
        key = b""
    if len(key) != _KEY_BYTES or base64.b64encode(key).decode() != public_key:
        raise ValueError("its public key is not one of WireGuard")
    bits = INNER_NETWORK.max_prefixlen - INNER_NETWORK.prefixlen
    return str(INNER_NETWORK[int.from_bytes(hashlib.sha256(key).digest(), "big") >> (256 - bits)])


@dataclasses.dataclass(frozen=True)
class Underlay:
    """The underlay of an agent: its IPv4 or IPv6 address towards other agents, and the interface with its MTU in bytes.

    ``mac`` is that of the interface, empty if it has none. ``public_key`` and ``endpoint`` (``address:port``) are those
    of a WireGuard interface, empty if the underlay is not encrypted.

    Raises :class:`ValueError` for what is no address, key or endpoint, and for an inner address that is not that of the
    key: all three are words of ``wg set``, and a peer with the inner address of another one takes its packets.
    """

    address: str
    interface: str
    mtu: int
    mac: str = ""
    public_key: str = ""
    endpoint: str = ""

    def __post_init__(self) -> None:
        problem = _underlay_problem(self.address, self.public_key, self.endpoint)
        if problem:
            raise ValueError(problem)

    @property
    def host(self) -> str:
        """The address at which other hosts reach the agent; an encrypted ``address`` is reachable by peers only."""
        return self.endpoint.rpartition(":")[0].strip("[]") or self.address


# The plans of a cluster have the same underlays again and again.
@functools.lru_cache(4096)
def _underlay_problem(address: str, public_key: str, endpoint: str) -> str:
    """Return why these are not those of an underlay; empty if they are. Raises :class:`ValueError` for the key."""
    if not is_address(address):
        return "its address must be an IP address"
    if not public_key:
        encrypted = endpoint or ipaddress.ip_address(address) in INNER_NETWORK
        return "its address or its endpoint is one of WireGuard, and it has no public key" if encrypted else ""
    if address != inner_address(public_key):
        return "its address must be that of its public key"
    host, _colon, port = endpoint.rpartition(":")
    plain = host.strip("[]")
    if not is_address(plain) or host != bracketed(plain) or not _PORT.fullmatch(port) or int(port) >= 1 << 16:
        return "its endpoint must be an IP address and a port"
    return ""


_PORT = re.compile("[1-9][0-9]{0,4}")
