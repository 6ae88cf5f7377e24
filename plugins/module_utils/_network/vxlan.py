# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A static VXLAN: a link enslaved to the session's bridge, with every remote container written out.

``nolearning`` and no default entry: what is not in the plan is not sent. ``proxy``: the link answers ARP for remote
containers from its permanent neighbour entries, so no broadcast crosses the underlay.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from .._model.change import Change
from .._model.plan import SessionPlan
from .iproute import LinkOperation, LinkState, apply_operations, show


@dataclasses.dataclass(frozen=True)
class Peer:
    """A container on another agent: its address and MAC, and the underlay address of its agent."""

    address: str
    mac: str
    underlay: str


@dataclasses.dataclass(frozen=True)
class Vxlan:
    """A link as it is or should be. ``peers`` are sorted by address; ``mtu`` is in bytes."""

    name: str
    vni: int
    local: str
    port: int
    mtu: int
    bridge: str
    peers: tuple[Peer, ...]


def desired_vxlan(plan: SessionPlan, agent: str) -> Vxlan | None:
    """Return the link that the plan wants on an agent; ``None`` where the session needs none."""
    network = plan.network
    if network is None or network.vni is None or network.port is None or network.link is None or network.bridge is None:
        return None
    peers = [
        Peer(kernel.address, kernel.mac, plan.underlays[kernel.agent].address)
        for kernel in plan.kernels
        if kernel.agent != agent and kernel.address and kernel.mac
    ]
    return Vxlan(
        name=network.link,
        vni=network.vni,
        local=plan.underlays[agent].address,
        port=network.port,
        mtu=network.mtu,
        bridge=network.bridge,
        peers=tuple(sorted(peers, key=lambda peer: peer.address)),
    )


def plan_vxlan(wanted: Vxlan, look: LinkState) -> list[LinkOperation]:
    """Return what must change for a link to be as wanted."""
    link = look.links.get(wanted.name)
    why = _why_recreate(wanted, link) if link else "missing"
    if why:
        remove = [f"link del dev {wanted.name}"] if link else []
        before = why if link else None
        entries = [_add_peer(wanted.name, peer) for peer in wanted.peers]
        change = Change(f"link {wanted.name}", before, _describe(wanted))
        ip_lines = (*remove, *_create(wanted), *(ip for ip, _bridge in entries))
        return [LinkOperation(change, ip_lines, tuple(bridge for _ip, bridge in entries))]
    return [*_adjustments(wanted, link or {}), *_entries(wanted, look)]


def remove_link(name: str) -> None:
    """Remove a link, its entries with it; nothing happens where it is not there."""
    if show("ip", "-j", "link", "show", "dev", name):
        apply_operations([LinkOperation(Change(f"link {name}", "there", None), (f"link del dev {name}",))])


def _create(wanted: Vxlan) -> list[str]:
    settings = f"id {wanted.vni} local {wanted.local} dstport {wanted.port} nolearning proxy"
    return [
        f"link add {wanted.name} mtu {wanted.mtu} type vxlan {settings}",
        # No address of its own: an fe80:: address on a port would be a door into the session's network.
        f"link set dev {wanted.name} addrgenmode none master {wanted.bridge}",
        f"link set dev {wanted.name} up",
    ]


def _why_recreate(wanted: Vxlan, link: dict[str, Any]) -> str:
    """Return what of the link cannot be changed in place and is wrong; empty when all of it is right."""
    data = link.get("linkinfo", {}).get("info_data", {})
    local = data.get("local") or data.get("local6")
    seen = (data.get("id"), local, data.get("port"), data.get("learning", False), data.get("proxy", False))
    right = (wanted.vni, wanted.local, wanted.port, False, True)
    names = ("vni", "local address", "port", "learning", "proxy")
    return ", ".join(f"{name} {is_now}" for name, is_now, should in zip(names, seen, right) if is_now != should)


def _adjustments(wanted: Vxlan, link: dict[str, Any]) -> list[LinkOperation]:
    subject = f"link {wanted.name}"
    found: list[LinkOperation] = []
    if link.get("mtu") != wanted.mtu:
        change = Change(subject, f"mtu {link.get('mtu')}", f"mtu {wanted.mtu}")
        found.append(LinkOperation(change, (f"link set dev {wanted.name} mtu {wanted.mtu}",)))
    if link.get("master") != wanted.bridge:
        change = Change(subject, f"bridge {link.get('master')}", f"bridge {wanted.bridge}")
        found.append(LinkOperation(change, (f"link set dev {wanted.name} master {wanted.bridge}",)))
    if "UP" not in link.get("flags", []):
        found.append(LinkOperation(Change(subject, "down", "up"), (f"link set dev {wanted.name} up",)))
    return found


def _entries(wanted: Vxlan, look: LinkState) -> list[LinkOperation]:
    """Return the forwarding and neighbour entries that are missing, wrong or not in the plan."""
    name = wanted.name
    forwarding = {(entry["mac"], _destination(entry)) for entry in look.forwarding.get(name, []) if "dst" in entry}
    neighbours = {(entry["dst"], entry.get("lladdr", "")) for entry in look.neighbours.get(name, [])}
    found: list[LinkOperation] = []
    for mac, underlay in sorted(forwarding - {(peer.mac, peer.underlay) for peer in wanted.peers}):
        change = Change(f"forwarding entry {mac} on {name}", f"to {underlay}", None)
        found.append(LinkOperation(change, bridge=(f"fdb del {mac} dev {name} dst {underlay}",)))
    for address, mac in sorted(neighbours - {(peer.address, peer.mac) for peer in wanted.peers}):
        change = Change(f"neighbour {address} on {name}", mac, None)
        found.append(LinkOperation(change, (f"neigh del {address} dev {name}",)))
    for peer in wanted.peers:
        ip_line, bridge_line = _add_peer(name, peer)
        if (peer.mac, peer.underlay) not in forwarding:
            change = Change(f"forwarding entry {peer.mac} on {name}", None, f"to {peer.underlay}")
            found.append(LinkOperation(change, bridge=(bridge_line,)))
        if (peer.address, peer.mac) not in neighbours:
            found.append(LinkOperation(Change(f"neighbour {peer.address} on {name}", None, peer.mac), (ip_line,)))
    return found


def _destination(entry: dict[str, Any]) -> str:
    """Return where a forwarding entry sends to; a port, an identifier or a link of its own makes it another place."""
    own = [f"{key} {entry[key]}" for key in ("port", "vni", "via") if key in entry]
    return " ".join([entry["dst"], *own])


def _add_peer(name: str, peer: Peer) -> tuple[str, str]:
    """Return the line for ``ip`` and the one for ``bridge`` that make a remote container known."""
    return (
        f"neigh replace {peer.address} lladdr {peer.mac} nud permanent dev {name}",
        f"fdb replace {peer.mac} dev {name} dst {peer.underlay} self permanent",
    )


def _describe(wanted: Vxlan) -> str:
    return f"vni {wanted.vni}, mtu {wanted.mtu}, on {wanted.bridge}, {len(wanted.peers)} remote containers"
