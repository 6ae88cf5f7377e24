# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Renders who may send tunnel datagrams to this host: sets of senders for each VXLAN network, and the chains.

The network is looked up alone, first: ``nft`` 1.0.2 and older ones take no raw payload in a concatenation.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

# The network identifier of a VXLAN datagram: three bytes, four bytes after the UDP header (RFC 7348).
_VNI = "@th,96,24"

# What has to match for the senders of a set, whose name the network follows.
_KEYS = {
    "pinned4": "ip saddr . ether saddr",
    "pinned6": "ip6 saddr . ether saddr",
    "encrypted4": "ip saddr . iifname",
    "encrypted6": "ip6 saddr . iifname",
    "routed4": "ip saddr",
    "routed6": "ip6 saddr",
}


class TunnelRules(NamedTuple):
    """Parts of the table: types and elements of ``sets``, and ``chains``, of which ``vxlan_peers`` is the first."""

    sets: dict[str, str]
    elements: dict[str, list[str]]
    chains: str


def build_tunnel_rules(peers: Mapping[str, Iterable[tuple[str, ...]]]) -> TunnelRules:
    """Return the parts of the table for the senders of tunnel datagrams, by the set that matches them.

    The network is the last part of each sender; other sets are not of tunnels.
    """
    sets: dict[str, str] = {}
    elements: dict[str, list[str]] = {}
    networks: dict[str, list[str]] = {}
    for kind, key in _KEYS.items():
        for *sender, vni in peers.get(kind, ()):
            name = f"{kind}_{vni}"
            if name not in sets:
                sets[name] = f"typeof {key}"
                networks.setdefault(vni, []).append(f"        {key} @{name} return\n")
            elements.setdefault(name, []).append(" . ".join(sender))
    chains = "".join(_render_chain(f"vni_{vni}", "".join(networks[vni])) for vni in sorted(networks, key=int))
    verdicts = ", ".join(f"{vni} : goto vni_{vni}" for vni in sorted(networks, key=int))
    lookup = f"        {_VNI} vmap {{ {verdicts} }}\n" if verdicts else ""
    return TunnelRules(sets, elements, f"{_render_chain('vxlan_peers', lookup)}{chains}")


def _render_chain(name: str, rules: str) -> str:
    return f"    chain {name} {{\n{rules}        goto drop_tunnel\n    }}\n"
