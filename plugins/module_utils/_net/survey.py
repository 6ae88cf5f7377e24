# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What an agent's network has in use, and where it meets its peers."""

from __future__ import annotations

import os
from typing import Any

from ansible_collections.backendai.cluster.plugins.module_utils._core.facts import Underlay
from ansible_collections.backendai.cluster.plugins.module_utils._net.iproute import show


def networks_in_use() -> list[str]:
    """Return every IPv4 range that the agent routes or has an address in, without the default route."""
    routes = show("ip", "-j", "-4", "route", "show")
    addresses = (entry for link in show("ip", "-j", "-4", "addr", "show") for entry in link["addr_info"])
    ranges = {route["dst"] for route in routes if route["dst"] != "default"}
    return sorted(ranges | {f"{entry['local']}/{entry['prefixlen']}" for entry in addresses})


def vnis_in_use() -> list[int]:
    """Return the VXLAN network identifiers of all links, ours or not."""
    links = show("ip", "-j", "-d", "link", "show", "type", "vxlan")
    return sorted({link["linkinfo"]["info_data"]["id"] for link in links if "id" in link["linkinfo"]["info_data"]})


def find_underlay(address: str) -> Underlay | None:
    """Return the interface that has ``address``; without one, the address of the default route or of this connection.

    ``None``: no interface has it.
    """
    links = show("ip", "-j", "addr", "show")
    wanted = address or _default_source(links) or _connection_address()
    for link in links:
        if any(entry.get("local") == wanted for entry in link["addr_info"]):
            return Underlay(wanted, link["ifname"], link["mtu"])
    return None


def _default_source(links: list[dict[str, Any]]) -> str:
    """Return the first global address of the interface that holds the default route."""
    default = next(iter(show("ip", "-j", "-4", "route", "show", "default")), {})
    for link in links:
        if link["ifname"] == default.get("dev"):
            scoped = [entry["local"] for entry in link["addr_info"] if entry["scope"] == "global"]
            return default.get("prefsrc") or next(iter(scoped), "")
    return ""


def _connection_address() -> str:
    """Return the address of this host at which the SSH connection that runs us came in."""
    fields = os.environ.get("SSH_CONNECTION", "").split()
    return fields[2] if len(fields) == 4 else ""
