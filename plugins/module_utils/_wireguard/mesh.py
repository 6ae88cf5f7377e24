# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Computes the WireGuard underlay of an agent: its own address, and its peers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from .._model.addressing import bracketed, is_ipv6
from .._model.network import Underlay, inner_address
from .._model.plan import SessionPlan

# The WireGuard device of an agent; its prefix differs from that of sessions' bridges.
DEVICE = "baiwg0"

# IPv4 20 + UDP 8 + WireGuard 32 bytes.
OVERHEAD_V4 = 60

# As over IPv4, with the 40 bytes of an IPv6 header.
OVERHEAD_V6 = 80


class WireGuardConfig(NamedTuple):
    """The desired device of an agent (``local``) and its peers, sorted by address."""

    local: Underlay
    peers: tuple[Underlay, ...]


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

    If plans differ about an agent, the newest one applies. If they give two agents one key, which has one owner, it is
    that of the agent whose plan is older. ``None``: no session uses WireGuard.
    """
    listed = sorted(slices, key=lambda entry: entry[0].created_at)
    with_underlay = [(plan, agent) for plan, agent in listed if agent in plan.underlays]
    ours = [(plan, agent) for plan, agent in with_underlay if plan.underlays[agent].public_key == public_key]
    if not ours:
        return None
    plan, agent = ours[-1]
    peers: dict[str, tuple[str, Underlay]] = {}
    for session, own_name in ours:
        for name, peer in session.underlays.items():
            if name != own_name and peers.get(peer.public_key, (name, peer))[0] == name:
                peers[peer.public_key] = name, peer
    sorted_peers = sorted((peer for _name, peer in peers.values()), key=lambda peer: peer.address)
    return WireGuardConfig(plan.underlays[agent], tuple(sorted_peers))
