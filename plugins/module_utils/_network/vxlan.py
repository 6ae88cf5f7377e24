# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Plans a static VXLAN link of a session, with entries for every remote container.

``nolearning`` and no default entry: frames to destinations outside the plan are not sent. ``proxy``: the link answers
ARP for remote containers from its permanent neighbour entries, so no broadcast crosses the underlay.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from .._model.change import Change
from .._model.plan import SessionPlan
from .bridge import plan_without_addresses
from .iproute import LinkOperation, LinkState


class Peer(NamedTuple):
    """A container on another agent: its address and MAC, and the underlay address of its agent."""

    address: str
    mac: str
    underlay: str


class Vxlan(NamedTuple):
    """A desired VXLAN link, on which containers have macvlans. ``peers`` are sorted by address; ``mtu`` is in bytes."""

    name: str
    vni: int
    local: str
    port: int
    mtu: int
    peers: tuple[Peer, ...]


def desired_vxlan(plan: SessionPlan, agent: str) -> Vxlan | None:
    """Return the link that the plan requires on an agent; ``None`` if the session needs none."""
    network = plan.network
    if network is None or network.vni is None or network.port is None or network.link is None:
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
        peers=tuple(sorted(peers, key=lambda peer: peer.address)),
    )


def plan_vxlan(desired: Vxlan, state: LinkState) -> list[LinkOperation]:
    """Return what must change for a link to be as desired."""
    link = state.links.get(desired.name)
    reason = _why_recreate(desired, link) if link else "missing"
    if reason:
        remove = [f"link del dev {desired.name}"] if link else []
        before = reason if link else None
        entries = [_add_peer(desired.name, peer) for peer in desired.peers]
        change = Change(f"link {desired.name}", before, _describe(desired))
        ip_lines = (*remove, *_create_lines(desired), *(ip for ip, _bridge in entries))
        return [LinkOperation(change, ip_lines, tuple(bridge for _ip, bridge in entries))]
    addresses = plan_without_addresses(desired.name, state)
    return [*_plan_adjustments(desired, link or {}), *addresses, *_plan_entries(desired, state)]


def _create_lines(desired: Vxlan) -> list[str]:
    settings = f"id {desired.vni} local {desired.local} dstport {desired.port} nolearning proxy"
    return [
        f"link add {desired.name} mtu {desired.mtu} type vxlan {settings}",
        # No address of its own: an fe80:: address would make the host reachable from the session's network.
        f"link set dev {desired.name} addrgenmode none",
        f"link set dev {desired.name} up",
    ]


def _why_recreate(desired: Vxlan, link: dict[str, Any]) -> str:
    """Return the wrong settings that cannot be changed in place; empty if there are none."""
    data = link.get("linkinfo", {}).get("info_data", {})
    local = data.get("local") or data.get("local6")
    actual = (data.get("id"), local, data.get("port"), data.get("learning", False), data.get("proxy", False))
    expected = (desired.vni, desired.local, desired.port, False, True)
    names = ("vni", "local address", "port", "learning", "proxy")
    return ", ".join(
        f"{name} {value}" for name, value, expected_value in zip(names, actual, expected) if value != expected_value
    )


def _plan_adjustments(desired: Vxlan, link: dict[str, Any]) -> list[LinkOperation]:
    subject = f"link {desired.name}"
    steps: list[LinkOperation] = []
    if link.get("mtu") != desired.mtu:
        change = Change(subject, f"mtu {link.get('mtu')}", f"mtu {desired.mtu}")
        steps.append(LinkOperation(change, (f"link set dev {desired.name} mtu {desired.mtu}",)))
    if "master" in link:
        change = Change(subject, f"bridge {link['master']}", "no bridge")
        steps.append(LinkOperation(change, (f"link set dev {desired.name} nomaster",)))
    if "UP" not in link.get("flags", []):
        steps.append(LinkOperation(Change(subject, "down", "up"), (f"link set dev {desired.name} up",)))
    return steps


def _plan_entries(desired: Vxlan, state: LinkState) -> list[LinkOperation]:
    """Return the changes of forwarding and neighbour entries that are missing, wrong or not in the plan."""
    name = desired.name
    forwarding = {(entry["mac"], _destination(entry)) for entry in state.forwarding.get(name, []) if "dst" in entry}
    neighbours = {(entry["dst"], entry.get("lladdr", "")) for entry in state.neighbours.get(name, [])}
    steps: list[LinkOperation] = []
    for mac, underlay in sorted(forwarding - {(peer.mac, peer.underlay) for peer in desired.peers}):
        change = Change(f"forwarding entry {mac} on {name}", f"to {underlay}", None)
        steps.append(LinkOperation(change, bridge=(f"fdb del {mac} dev {name} dst {underlay}",)))
    for address, mac in sorted(neighbours - {(peer.address, peer.mac) for peer in desired.peers}):
        change = Change(f"neighbour {address} on {name}", mac, None)
        steps.append(LinkOperation(change, (f"neigh del {address} dev {name}",)))
    for peer in desired.peers:
        ip_line, bridge_line = _add_peer(name, peer)
        if (peer.mac, peer.underlay) not in forwarding:
            change = Change(f"forwarding entry {peer.mac} on {name}", None, f"to {peer.underlay}")
            steps.append(LinkOperation(change, bridge=(bridge_line,)))
        if (peer.address, peer.mac) not in neighbours:
            steps.append(LinkOperation(Change(f"neighbour {peer.address} on {name}", None, peer.mac), (ip_line,)))
    return steps


def _destination(entry: dict[str, Any]) -> str:
    """Return the destination of a forwarding entry, including a port, VNI or link of its own."""
    overrides = [f"{key} {entry[key]}" for key in ("port", "vni", "via") if key in entry]
    return " ".join([entry["dst"], *overrides])


def _add_peer(name: str, peer: Peer) -> tuple[str, str]:
    """Return the lines for ``ip`` and for ``bridge`` that add the entries of a remote container."""
    return (
        f"neigh replace {peer.address} lladdr {peer.mac} nud permanent dev {name}",
        f"fdb replace {peer.mac} dev {name} dst {peer.underlay} self permanent",
    )


def _describe(desired: Vxlan) -> str:
    return f"vni {desired.vni}, mtu {desired.mtu}, {len(desired.peers)} remote containers"
