# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Reads the network of a host: ranges and ports in use, its underlay, and the SSH connection."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Mapping, Sequence
from typing import Any

from .._host.processes import parent_pid, process_environment
from .._model.network import BRIDGE_PREFIX, DEFAULT_BRIDGE, VXLAN_PREFIX, Underlay
from .iproute import show
from .sockets import sockets

# Names of links with addresses that are used only by containers of this host, or by the host itself. That of Kubernetes
# has the addresses of all its services, on each of its nodes.
_CONTAINER_LINKS = re.compile(
    rf"(docker0|docker_gwbridge|kube-ipvs0|br-[0-9a-f]{{12}}|{DEFAULT_BRIDGE}|{BRIDGE_PREFIX}.*|lo)"
)

# Kinds of bridge ports that end in this host: containers, virtual machines, sessions' tunnels.
_PORTS_INSIDE = ("veth", "tun", "vxlan")


Links = Sequence[Mapping[str, Any]]
"""The links of this host with their addresses and kinds, as :func:`read_links` returns them."""


def read_links() -> Links:
    """Read the links of this host, for all that is asked about them at one time."""
    return show("ip", "-j", "-d", "addr", "show")


def networks_in_use(links: Links) -> list[str]:
    """Return every IPv4 range that the host routes or has an address in, without the default route."""
    routes = show("ip", "-j", "-4", "route", "show")
    addresses = (entry for link in links for entry in link["addr_info"] if entry["family"] == "inet")
    ranges = {route["dst"] for route in routes if route["dst"] != "default"}
    return sorted(ranges | {f"{entry['local']}/{entry['prefixlen']}" for entry in addresses})


def vnis_in_use(links: Links) -> list[int]:
    """Return the VXLAN network identifiers of all links, of sessions or not."""
    return sorted({data["id"] for data in _tunnels(links).values() if "id" in data})


def _tunnels(links: Links) -> dict[str, Any]:
    """Return the properties of all VXLAN links by name."""
    return {link["ifname"]: link["linkinfo"]["info_data"] for link in links if _link_kind(link) == "vxlan"}


def find_underlay(address: str, links: Links | None = None) -> Underlay | None:
    """Return the underlay with ``address``, by default the address of the default route or of this SSH connection.

    ``None`` if no interface has the address.
    """
    links = read_links() if links is None else links
    underlay_address = address or _default_source(links) or _connection_address()
    for link in links:
        if any(entry.get("local") == underlay_address for entry in link["addr_info"]):
            return Underlay(underlay_address, link["ifname"], link["mtu"], _mac(link))
    return None


def own_addresses(underlay: Underlay | None, links: Links | None = None) -> list[str]:
    """Return the addresses at which this host itself can be reached, IPv4 and IPv6.

    Without those of the engine's bridges: every host has the same, and other hosts do not route them.
    """
    return sorted(
        {
            entry["local"]
            for link in (read_links() if links is None else links)
            if link["ifname"] == (underlay and underlay.interface) or not _CONTAINER_LINKS.fullmatch(link["ifname"])
            for entry in link["addr_info"]
            if entry["scope"] == "global"
        }
    )


def external_interfaces() -> list[str]:
    """Return the interfaces that connect this host to more than its own containers and virtual machines.

    They have a global address. A bridge counts if it has a route with a next hop, or a port that leaves this host.
    """
    links = read_links()
    external_bridges = {link["master"] for link in links if "master" in link and _link_kind(link) not in _PORTS_INSIDE}
    routes = [route for family in ("-4", "-6") for route in show("ip", "-j", family, "route", "show")]
    routed = {route["dev"] for route in routes if "dev" in route and ("gateway" in route or "via" in route)}
    return sorted(
        link["ifname"]
        for link in links
        if any(entry["scope"] == "global" for entry in link["addr_info"]) and link["ifname"] != "lo"
        if link["ifname"] in routed | external_bridges or _link_kind(link) != "bridge"
    )


def _link_kind(link: Mapping[str, Any]) -> str:
    """Return the kind of a virtual link; empty for hardware."""
    return str(link.get("linkinfo", {}).get("info_kind", ""))


def interfaces() -> set[str]:
    """Return the names of all interfaces of this host."""
    return {link["ifname"] for link in show("ip", "-j", "link", "show")}


def udp_ports(links: Links) -> dict[int, str]:
    """Return the UDP ports in use on this host, except those of sessions' tunnels, each with its user."""
    port_of = {name: data.get("port") for name, data in _tunnels(links).items()}
    ours = {port for name, port in port_of.items() if name.startswith(VXLAN_PREFIX)}
    open_ports = {entry.port for entry in sockets("udp")}
    foreign = {port: f"the link {name}" for name, port in port_of.items() if not name.startswith(VXLAN_PREFIX)}
    return {**dict.fromkeys(open_ports - ours, "another program"), **foreign}


def tcp_ports() -> set[int]:
    """Return the TCP ports that are listened on at this host."""
    return {entry.port for entry in sockets("tcp") if entry.listening}


def on_link(address: str) -> bool:
    """Return whether a host is on the same segment as this one, without a router in between."""
    return not any("gateway" in route or "via" in route for route in show("ip", "-j", "route", "get", address))


def _mac(link: Mapping[str, Any]) -> str:
    return str(link.get("address", "")) if link.get("link_type") == "ether" else ""


def _default_source(links: Links) -> str:
    """Return the first global address of the interface that holds the default route."""
    default = next(iter(show("ip", "-j", "-4", "route", "show", "default")), {})
    for link in links:
        if link["ifname"] == default.get("dev"):
            scoped = [entry["local"] for entry in link["addr_info"] if entry["scope"] == "global"]
            return default.get("prefsrc") or next(iter(scoped), "")
    return ""


def _connection_address() -> str:
    """Return the address of this host in the SSH connection of this process."""
    fields = ssh_connection().split()
    return fields[2] if len(fields) == 4 else ""


_VARIABLE = "SSH_CONNECTION"


def ssh_connection() -> str:
    """Return client address, client port, own address and own port, as in sshd(8); empty without SSH.

    Programs that change the user, such as sudo, drop the variable: then it is read from an ancestor process.
    """
    value, pid = os.environ.get(_VARIABLE, ""), os.getpid()
    with contextlib.suppress(OSError):
        while not value and pid > 1:
            pid = parent_pid(pid)
            value = process_environment(pid).get(_VARIABLE, "")
    return value
