# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Computes the WireGuard underlay of an agent: its own address, and its peers."""

from __future__ import annotations

import base64
import binascii
import hashlib
import ipaddress
from collections.abc import Iterable
from typing import NamedTuple

from .._model.addressing import bracketed, is_ipv6
from .._model.network import Underlay
from .._model.plan import SessionPlan

# The WireGuard device of an agent; its prefix differs from that of sessions' bridges.
DEVICE = "baiwg0"

# The network of the inner addresses of all agents (RFC 4193); the other 80 bits identify an agent.
NETWORK = ipaddress.IPv6Network("fd62:6169::/48")

# IPv4 20 + UDP 8 + WireGuard 32 bytes.
OVERHEAD_V4 = 60

# As over IPv4, with the 40 bytes of an IPv6 header.
OVERHEAD_V6 = 80

_KEY_BYTES = 32


class WireGuardConfig(NamedTuple):
    """The desired device of an agent (``local``) and its peers, sorted by address."""

    local: Underlay
    peers: tuple[Underlay, ...]


def inner_address(public_key: str) -> str:
    """Return the inner address that is derived from a public key, so that agents need not agree on addresses.

    Raises :class:`ValueError` for an invalid public key.
    """
    try:
        key = base64.b64decode(public_key, validate=True)
    except binascii.Error:
        key = b""
    if len(key) != _KEY_BYTES:
        raise ValueError(f"{public_key!r} is not a WireGuard public key")
    bits = NETWORK.max_prefixlen - NETWORK.prefixlen
    return str(NETWORK[int.from_bytes(hashlib.sha256(key).digest(), "big") >> (256 - bits)])


def wireguard_underlay(plain: Underlay, public_key: str, port: int) -> Underlay:
    """Return the encrypted underlay with that key on a plain one, which peers reach at a UDP port."""
    return Underlay(
        address=inner_address(public_key),
        interface=DEVICE,
        mtu=plain.mtu - (OVERHEAD_V6 if is_ipv6(plain.address) else OVERHEAD_V4),
        public_key=public_key,
        endpoint=f"{bracketed(plain.address)}:{port}",
    )


def endpoint_port(underlay: Underlay) -> int:
    """Return the UDP port of an encrypted underlay."""
    return int(underlay.endpoint.rpartition(":")[2])


def build_wireguard_config(slices: Iterable[tuple[SessionPlan, str]], public_key: str) -> WireGuardConfig | None:
    """Return the configuration of an agent with that key that holds these plans, each with the agent's name in it.

    If plans differ about an agent, the newest one applies. ``None``: no session uses WireGuard.
    """
    listed = sorted(slices, key=lambda entry: entry[0].created_at)
    with_underlay = [(plan, agent) for plan, agent in listed if agent in plan.underlays]
    ours = [(plan, agent) for plan, agent in with_underlay if plan.underlays[agent].public_key == public_key]
    if not ours:
        return None
    plan, agent = ours[-1]
    peers = {peer.public_key: peer for plan, agent in ours for name, peer in plan.underlays.items() if name != agent}
    return WireGuardConfig(plan.underlays[agent], tuple(sorted(peers.values(), key=lambda peer: peer.address)))
