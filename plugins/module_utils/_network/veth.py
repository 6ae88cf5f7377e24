# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Plans the veth interfaces of containers: the end inside each container, and the host end, a port of a bridge."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

from .._model.change import Change
from .iproute import LinkOperation, ProcessExitedError, show


@dataclasses.dataclass(frozen=True)
class VethInterface:
    """One desired interface of a running container.

    ``pid`` is a process of the container. ``address`` (with its prefix length), ``mac`` and ``mtu`` (in bytes) are
    those of the session network; on the agent's default network the engine chooses them, and they are ``None``.
    """

    hostname: str
    pid: int
    interface: str
    bridge: str
    address: str | None = None
    mac: str | None = None
    mtu: int | None = None


@dataclasses.dataclass(frozen=True)
class InterfacePlan:
    """What must change: ``steps`` that repair interfaces, and containers that have ``lost`` an interface.

    The latter are the names of the interfaces by hostname: such containers can only be recreated.
    """

    steps: list[LinkOperation]
    lost: dict[str, str]


def plan_veths(desired: Iterable[VethInterface]) -> InterfacePlan:
    """Return what must change for the interfaces to be as desired; containers that have ended are skipped."""
    listed = list(desired)
    container_links = {pid: _container_links(pid) for pid in dict.fromkeys(veth.pid for veth in listed)}
    host_links = {link["ifindex"]: link for link in show("ip", "-j", "link", "show")} if listed else {}
    steps: list[LinkOperation] = []
    lost: dict[str, str] = {}
    for veth in listed:
        links = container_links[veth.pid]
        if links is None:
            continue
        link = links.get(veth.interface)
        peer = host_links.get(link.get("link_index")) if link else None
        if link is None or peer is None:
            lost[veth.hostname] = veth.interface
        else:
            steps += [*_repair_container_end(veth, link), *_repair_host_end(veth, peer)]
    return InterfacePlan(steps, lost)


def _container_links(pid: int) -> dict[str, dict[str, Any]] | None:
    """Return the interfaces of a container by name; ``None`` if it has ended."""
    try:
        return {link["ifname"]: link for link in show("ip", "-j", "addr", "show", pid=pid)}
    except ProcessExitedError:
        return None


def _repair_container_end(veth: VethInterface, link: Mapping[str, Any]) -> list[LinkOperation]:
    subject, name = f"{veth.interface} of {veth.hostname}", veth.interface
    steps = []
    if veth.mtu is not None and link["mtu"] != veth.mtu:
        change = Change(subject, f"mtu {link['mtu']}", f"mtu {veth.mtu}")
        steps.append(LinkOperation(change, (f"link set dev {name} mtu {veth.mtu}",), pid=veth.pid))
    if veth.mac is not None and link["address"] != veth.mac:
        change = Change(subject, f"mac {link['address']}", f"mac {veth.mac}")
        steps.append(LinkOperation(change, (f"link set dev {name} address {veth.mac}",), pid=veth.pid))
    if "UP" not in link["flags"]:
        steps.append(LinkOperation(Change(subject, "down", "up"), (f"link set dev {name} up",), pid=veth.pid))
    addresses = [f"{entry['local']}/{entry['prefixlen']}" for entry in link["addr_info"] if entry["family"] == "inet"]
    if veth.address is not None and addresses != [veth.address]:
        change = Change(subject, f"address {', '.join(addresses) or 'none'}", f"address {veth.address}")
        lines = (f"addr flush dev {name} scope global", f"addr add {veth.address} brd + dev {name}")
        steps.append(LinkOperation(change, lines, pid=veth.pid))
    return steps


def _repair_host_end(veth: VethInterface, peer: Mapping[str, Any]) -> list[LinkOperation]:
    subject, name = f"port of {veth.hostname} on {veth.bridge}", peer["ifname"]
    steps = []
    if peer.get("master") != veth.bridge:
        change = Change(subject, f"on {peer['master']}" if "master" in peer else "detached", "attached")
        steps.append(LinkOperation(change, (f"link set dev {name} master {veth.bridge}",)))
    if veth.mtu is not None and peer["mtu"] != veth.mtu:
        change = Change(subject, f"mtu {peer['mtu']}", f"mtu {veth.mtu}")
        steps.append(LinkOperation(change, (f"link set dev {name} mtu {veth.mtu}",)))
    if "UP" not in peer["flags"]:
        steps.append(LinkOperation(Change(subject, "down", "up"), (f"link set dev {name} up",)))
    return steps
