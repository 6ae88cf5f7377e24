# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Pins the ports of containers on the agent's default network to the MAC and IPv4 address of their container.

The bridge neither learns nor floods there, its ports are isolated from each other, and forwarding and neighbour
entries are permanent, so a container can neither take over the address of another one nor reach it. These entries are
also where the firewall table finds which frames a port may send.
"""

from __future__ import annotations

import dataclasses

from .._model.change import Change
from .._model.network import DEFAULT_BRIDGE
from .iproute import LinkOperation, LinkState

_FLAGS = {"isolated": True, "learning": False, "flood": False}


@dataclasses.dataclass(frozen=True, order=True)
class Pin:
    """The host end of a container's ``eth0``, and the only MAC and IPv4 address that the container may use there."""

    port: str
    mac: str
    address: str


def plan_pin(pin: Pin, state: LinkState) -> list[LinkOperation]:
    """Return what must change for a port to be pinned."""
    subject = f"port {pin.port}"
    slave = state.links[pin.port].get("linkinfo", {}).get("info_slave_data", {})
    steps = []
    if any(slave.get(name) != value for name, value in _FLAGS.items()):
        settings = " ".join(f"{name} {'on' if value else 'off'}" for name, value in _FLAGS.items())
        change = Change(subject, "not isolated", "isolated")
        steps.append(LinkOperation(change, bridge=(f"link set dev {pin.port} {settings}",)))
    if pin.mac not in _static_macs(pin.port, state):
        change = Change(f"forwarding entry {pin.mac} on {DEFAULT_BRIDGE}", None, f"to {pin.port}")
        steps.append(LinkOperation(change, bridge=(f"fdb replace {pin.mac} dev {pin.port} master static sticky",)))
    actual = _neighbours(state).get(pin.address)
    if actual != pin.mac:
        change = Change(f"neighbour {pin.address} on {DEFAULT_BRIDGE}", actual, pin.mac)
        line = f"neigh replace {pin.address} lladdr {pin.mac} nud permanent dev {DEFAULT_BRIDGE}"
        steps.append(LinkOperation(change, (line,)))
    return steps


def read_pins(state: LinkState) -> list[Pin]:
    """Return the ports that are pinned, sorted: those with both a forwarding and a neighbour entry."""
    address_of = {mac: address for address, mac in _neighbours(state).items()}
    ports = [name for name, link in state.links.items() if link.get("master") == DEFAULT_BRIDGE]
    return sorted(
        Pin(port, mac, address_of[mac]) for port in ports for mac in _static_macs(port, state) if mac in address_of
    )


def plan_stale_neighbours(state: LinkState) -> list[LinkOperation]:
    """Return the removal of neighbour entries of containers that no longer exist."""
    pinned = {pin.address for pin in read_pins(state)}
    return [
        LinkOperation(
            Change(f"neighbour {address} on {DEFAULT_BRIDGE}", mac, None),
            (f"neigh del {address} dev {DEFAULT_BRIDGE}",),
        )
        for address, mac in _neighbours(state).items()
        if address not in pinned
    ]


def _static_macs(port: str, state: LinkState) -> set[str]:
    """Return the MACs of a port that no other port can take over, not even one that still learns."""
    return {
        entry["mac"]
        for entry in state.forwarding.get(port, [])
        if entry.get("state") == "static" and "sticky" in entry.get("flags", [])
    }


def _neighbours(state: LinkState) -> dict[str, str]:
    return {entry["dst"]: entry.get("lladdr", "") for entry in state.neighbours.get(DEFAULT_BRIDGE, [])}
