# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Collects the scan targets of a host: its addresses, those behind it, its UDP ports and expected open ports."""

from __future__ import annotations

from typing import Any

from .._docker.addresses import container_addresses
from .._docker.client import DockerUnavailableError, connect
from .._gateway.model import GatewayError
from .._gateway.store import GatewayStore
from .._model.addressing import is_ipv6
from .._model.errors import as_phrase
from .._network.host import own_addresses
from .._network.iproute import show
from .model import AGENT, BRIDGE, CONTAINER, GATEWAY

SSH_PURPOSE, HTTPS_PURPOSE = "SSH of the session {name}", "HTTPS of sessions' apps"


def collect_agent_targets(docker_host: str, wireguard_port: int) -> dict[str, Any]:
    """Return the scan targets of an agent; ``unread`` is why its containers are missing."""
    own, bridges = read_host_addresses()
    try:
        containers, unread = container_addresses(connect(docker_host)), ""
    except DockerUnavailableError as error:
        containers, unread = [], f"its containers are not known: {as_phrase(error)}"
    return {
        "addresses": _map_owners({AGENT: own, BRIDGE: bridges, CONTAINER: containers}),
        "udp_ports": sorted({*read_tunnel_ports(), wireguard_port}),
        "expected": {},
        "unread": unread,
    }


def collect_gateway_targets(state_path: str, https_port: int) -> dict[str, Any]:
    """Return the scan targets of a gateway; ``expected`` are the ports that are open for users, as strings.

    ``unread`` is why those of sessions are missing.
    """
    own, bridges = read_host_addresses()
    try:
        routes, damaged = GatewayStore(state_path).routes()
        unread = as_phrase(" ".join(damaged.values()))
    except GatewayError as error:
        routes, unread = {}, f"its routes are not known: {as_phrase(error)}"
    ssh_ports = {route.ssh_port: route.name for route in routes.values() if route.ssh_port is not None}
    ssh = {str(port): SSH_PURPOSE.format(name=name) for port, name in ssh_ports.items()}
    return {
        "addresses": _map_owners({GATEWAY: own, BRIDGE: bridges}),
        "udp_ports": read_tunnel_ports(),
        "expected": {**ssh, str(https_port): HTTPS_PURPOSE},
        "unread": unread,
    }


def _map_owners(addresses: dict[str, list[str]]) -> dict[str, str]:
    """Return the owner of each address, the first one of several."""
    kinds: dict[str, str] = {}
    for kind, kind_addresses in addresses.items():
        kinds.update({address: kind for address in kind_addresses if address not in kinds})
    return kinds


def read_host_addresses() -> tuple[list[str], list[str]]:
    """Return the addresses of this host, link-local ones too, and those of the bridges behind it.

    Link-local addresses are those of interfaces that have another address of the host.
    """
    addresses = own_addresses(None)
    links = show("ip", "-j", "addr", "show")
    entries = [(link["ifname"], entry["local"], entry["scope"]) for link in links for entry in link["addr_info"]]
    outward = {name for name, address, _scope in entries if address in addresses}
    local = [address for name, address, scope in entries if name in outward and scope == "link" and is_ipv6(address)]
    behind = {address for _name, address, scope in entries if scope == "global" and address not in addresses}
    return [*addresses, *sorted(local)], sorted(behind)


def read_tunnel_ports() -> list[int]:
    """Return the UDP ports of all VXLAN links of this host."""
    links = show("ip", "-j", "-d", "link", "show", "type", "vxlan")
    return sorted({link["linkinfo"]["info_data"]["port"] for link in links if "port" in link["linkinfo"]["info_data"]})
