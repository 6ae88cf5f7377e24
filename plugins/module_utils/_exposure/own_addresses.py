# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""At which addresses and UDP ports a host could be met by others on its network."""

from __future__ import annotations

from ansible_collections.backendai.cluster.plugins.module_utils._model.addressing import is_ipv6
from ansible_collections.backendai.cluster.plugins.module_utils._network.host import own_addresses
from ansible_collections.backendai.cluster.plugins.module_utils._network.iproute import show


def host_addresses() -> tuple[list[str], list[str]]:
    """Return the addresses of this host, link-local ones too, and those of the bridges behind it.

    Link-local addresses are those of interfaces that have another address of the host.
    """
    own = own_addresses(None)
    links = show("ip", "-j", "addr", "show")
    entries = [(link["ifname"], entry["local"], entry["scope"]) for link in links for entry in link["addr_info"]]
    outward = {name for name, address, _scope in entries if address in own}
    local = [address for name, address, scope in entries if name in outward and scope == "link" and is_ipv6(address)]
    behind = {address for _name, address, scope in entries if scope == "global" and address not in own}
    return [*own, *sorted(local)], sorted(behind)


def tunnel_ports() -> list[int]:
    """Return the UDP ports of all VXLAN links, ours or not."""
    links = show("ip", "-j", "-d", "link", "show", "type", "vxlan")
    return sorted({link["linkinfo"]["info_data"]["port"] for link in links if "port" in link["linkinfo"]["info_data"]})
