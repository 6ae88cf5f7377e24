# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Renders the host firewall as parts of the project's nftables table: sets, a chain, and the rules that jump to it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from .._model.addressing import collapse
from .._wireguard.mesh import DEVICE
from .policy import REPORT, AllowRule, Firewall, filter_family
from .would_drop import INGRESS, ROUTED, SETS, render_chains

ENFORCING_CHAIN, REPORTING_CHAIN = "host_firewall", "reported_firewall"
"""The chain of the host firewall, by what it does with what is not allowed."""

ZONES_CHAIN = "zones"
"""The chain that keeps management and compute apart."""

_COMPUTE_PORTS = ("tcp dport @ssh_ports", "udp dport @peer_udp_ports")
"""What agents send each other, besides tunnels."""


class FirewallRules(NamedTuple):
    """Parts of the table: types and elements of ``sets``, rules of the chains ``ingress`` and ``forward``, a chain.

    ``tunnels`` are the rules of ``ingress`` before tunnel datagrams leave it.
    """

    sets: dict[str, str]
    elements: dict[str, list[str]]
    ingress: str
    forward: str
    chain: str
    tunnels: str = ""


def build_firewall_rules(firewall: Firewall | None, wireguard: Iterable[int]) -> FirewallRules:
    """Return the parts of the table for a firewall; empty without one.

    ``wireguard`` are the UDP ports of WireGuard.
    """
    if firewall is None:
        return FirewallRules({}, {}, "", "", "")
    trusted = collapse([*firewall.ssh_sources, *firewall.gateways, *firewall.agents])
    apart = bool(firewall.management and firewall.compute)
    groups = {"managers": firewall.ssh_sources, "peers": firewall.agents, "trusted": trusted}
    groups |= {"management": firewall.management, "compute": firewall.compute} if apart else {}
    families = ((4, "ipv4_addr"), (6, "ipv6_addr"))
    elements = {
        f"{name}{family}": filter_family(networks, family)
        for name, networks in groups.items()
        for family, _kind in families
    }
    kinds = {f"{name}{family}": f"type {kind}; flags interval" for name in groups for family, kind in families}
    elements["manager_ports"] = [str(port) for port in firewall.ssh_ports]
    elements["peer_udp_ports"] = [str(port) for port in sorted({*wireguard})]
    elements["firewall_ifaces"] = [f'"{name}"' for name in firewall.interfaces]
    kinds |= dict.fromkeys(("manager_ports", "peer_udp_ports"), "type inet_service")
    kinds |= {"firewall_ifaces": "type ifname"} if firewall.interfaces else {}
    match = "iifname @firewall_ifaces " if firewall.interfaces else ""
    reports = firewall.mode == REPORT
    kinds |= SETS if reports else {}
    elements |= {name: [] for name in SETS if reports}
    chain = REPORTING_CHAIN if reports else ENFORCING_CHAIN
    routed, rest = (ROUTED, INGRESS) if reports else ("drop_routed", "drop_ingress")
    return FirewallRules(
        kinds,
        elements,
        ingress=f"        jump {ZONES_CHAIN}\n" if apart else f"        {match}jump {chain}\n",
        # Traffic that the host routes between other hosts is not filtered.
        forward="        # Containers are reachable from outside only through published ports.\n"
        "        iifname @external_ifaces oifname @external_ifaces return\n"
        f"        iifname @external_ifaces ct direction original ct status & dnat == 0 goto {routed}\n",
        chain=(render_chains() if reports else "")
        + (_render_zones(rest, f"{match}goto {chain}") if apart else "")
        + _render_chain(chain, firewall.allow, rest, "ip daddr @compute4 " if apart else ""),
        tunnels="".join(_keep_in("compute", "udp dport @tunnel_ports", rest)) if apart else "",
    )


def _render_zones(rest: str, host_firewall: str) -> str:
    """Return the chain that keeps management and compute apart, on all interfaces; its end is the host firewall."""
    compute = [rule for ports in _COMPUTE_PORTS for rule in _keep_in("compute", ports, rest)]
    rules = "".join([*_keep_in("management", "tcp dport @manager_ports", rest), *compute])
    return f"""
    # SSH is for addresses of management only, what agents send each other for those of compute only.
    chain {ZONES_CHAIN} {{
{rules}        {host_firewall}
    }}
"""


def _keep_in(zone: str, ports: str, rest: str) -> list[str]:
    """Return the rules for packets to ports of this host that are not for an address of a zone.

    What comes out of WireGuard has addresses of its own; its own packets are kept in the zone of compute.
    """
    inside = f'iifname != "{DEVICE}" ' if zone == "compute" else ""
    return [
        f"        {ports} {inside}{word} daddr != @{zone}{family} fib daddr type local goto {rest}\n"
        for word, family in (("ip", 4), ("ip6", 6))
    ]


def _render_chain(name: str, allow: Iterable[AllowRule], rest: str, compute: str) -> str:
    """Return the chain of the host firewall; ``compute`` matches what peers with host networks may send to."""
    allowed = "".join(f"        {line} return\n" for rule in allow for line in _render_conditions(rule))
    return f"""
    # Host firewall: allowed incoming traffic; everything else is dropped (in report mode: reported).
    chain {name} {{
        # Forwarded traffic is handled by the chain forward.
        fib daddr type unicast return
        # sshds of sessions are handled by the chain session_sshd.
        tcp dport @ssh_ports return
        {compute}ip saddr . ether saddr @host_pinned4 return
        ip saddr . iifname @host_encrypted4 return
        {compute}ip saddr @host_routed4 return
        ip saddr @managers4 tcp dport @manager_ports return
        ip6 saddr @managers6 tcp dport @manager_ports return
        ip saddr @peers4 udp dport @peer_udp_ports return
        ip6 saddr @peers6 udp dport @peer_udp_ports return
        ip saddr @trusted4 icmp type echo-request return
        ip6 saddr @trusted6 icmpv6 type echo-request return
        # Required by the network itself: ICMP errors of existing connections, neighbour discovery, routers, DHCP.
        icmp type {{ destination-unreachable, time-exceeded, parameter-problem }} ct state related return
        icmpv6 type {{ packet-too-big, destination-unreachable }} ct state related return
        icmpv6 type {{ time-exceeded, parameter-problem }} ct state related return
        icmpv6 type {{ nd-router-advert, nd-neighbor-solicit, nd-neighbor-advert }} ip6 hoplimit 255 return
        icmpv6 type {{ mld-listener-query, mld-listener-report, mld2-listener-report }} ip6 saddr fe80::/10 return
        udp sport 67 udp dport 68 return
        ip6 saddr fe80::/10 udp sport 547 udp dport 546 return
{allowed}        goto {rest}
    }}
"""


def _render_conditions(rule: AllowRule) -> list[str]:
    """Return the conditions of the nft rules for an allow rule, one for each address family of its sources."""
    ports = f" {rule.protocol} dport {{ {', '.join(rule.ports)} }}" if rule.ports else ""
    sources = [
        f"{word} saddr {{ {', '.join(filter_family(rule.sources, family))} }}"
        for word, family in (("ip", 4), ("ip6", 6))
        if filter_family(rule.sources, family)
    ]
    return [f"{source}{ports}" for source in sources] or [ports.strip()]
