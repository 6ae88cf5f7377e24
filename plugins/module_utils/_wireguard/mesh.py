# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""WireGuard under the tunnels of sessions: where an agent is in it, and which agents it meets there."""

from __future__ import annotations

import base64
import binascii
import dataclasses
import hashlib
import ipaddress
from collections.abc import Iterable

from .._model.addressing import bracketed, is_ipv6
from .._model.network import Underlay
from .._model.plan import SessionPlan

# The WireGuard device of an agent; the names of sessions' bridges begin in another way.
DEVICE = "baiwg0"

# Where all agents have their inner addresses (RFC 4193); the 80 bits behind it tell them apart.
NETWORK = ipaddress.IPv6Network("fd62:6169::/48")

# IPv4 20 + UDP 8 + WireGuard 32 bytes.
OVERHEAD_V4 = 60

# As over IPv4, with the 40 bytes of an IPv6 header.
OVERHEAD_V6 = 80

_KEY_BYTES = 32


@dataclasses.dataclass(frozen=True)
class WireGuardConfig:
    """The device of an agent as it should be, and the other agents that it should know; sorted by their addresses."""

    local: Underlay
    peers: tuple[Underlay, ...]


def inner_address(public_key: str) -> str:
    """Return the address that belongs to a public key, so that agents need not agree on addresses.

    Raises :class:`ValueError` for what is no public key.
    """
    try:
        key = base64.b64decode(public_key, validate=True)
    except binascii.Error:
        key = b""
    if len(key) != _KEY_BYTES:
        raise ValueError(f"{public_key!r} is no public key of WireGuard")
    bits = NETWORK.max_prefixlen - NETWORK.prefixlen
    return str(NETWORK[int.from_bytes(hashlib.sha256(key).digest(), "big") >> (256 - bits)])


def wireguard_underlay(plain: Underlay, public_key: str, port: int) -> Underlay:
    """Return the underlay that lies, with that key, on a plain one, where peers reach it at a UDP port."""
    return Underlay(
        address=inner_address(public_key),
        interface=DEVICE,
        mtu=plain.mtu - (OVERHEAD_V6 if is_ipv6(plain.address) else OVERHEAD_V4),
        public_key=public_key,
        endpoint=f"{bracketed(plain.address)}:{port}",
    )


def endpoint_port(underlay: Underlay) -> int:
    """Return the UDP port at which peers reach an encrypted underlay."""
    return int(underlay.endpoint.rpartition(":")[2])


def build_wireguard_config(slices: Iterable[tuple[SessionPlan, str]], public_key: str) -> WireGuardConfig | None:
    """Return the mesh of an agent with that key that holds these plans, each with the agent's own name in it.

    Where plans say different things of an agent, the newest is right. ``None``: no session lies on WireGuard.
    """
    listed = sorted(slices, key=lambda entry: entry[0].created_at)
    with_underlay = [(plan, agent) for plan, agent in listed if agent in plan.underlays]
    ours = [(plan, agent) for plan, agent in with_underlay if plan.underlays[agent].public_key == public_key]
    if not ours:
        return None
    plan, agent = ours[-1]
    peers = {peer.public_key: peer for plan, agent in ours for name, peer in plan.underlays.items() if name != agent}
    return WireGuardConfig(plan.underlays[agent], tuple(sorted(peers.values(), key=lambda peer: peer.address)))
