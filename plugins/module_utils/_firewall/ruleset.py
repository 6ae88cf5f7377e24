# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Renders the isolation of sessions on one agent as nftables tables of its own: for packets, and for frames.

The tables only drop, and limit TCP's segments to what a route carries. A drop is final in nftables, so it takes effect
whatever Docker, ufw or firewalld accept.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from .._model.addressing import collapse, is_ipv6
from .._model.network import BRIDGE_PREFIX, DEFAULT_BRIDGE, INNER_NETWORK, VXLAN_PREFIX
from .._model.storage import StorageService
from .._network.pins import Pin
from .._wireguard.mesh import DEVICE
from .egress import Service
from .host_rules import FirewallRules, build_firewall_rules
from .isolation_policy import IsolationPolicy
from .policy import Firewall, filter_family
from .table import LOG_RATE, TABLE
from .tunnel_rules import build_tunnel_rules
from .would_drop import STORAGE_CHAIN, STORAGE_SET, STORAGE_TYPE, render_storage_chain

_SETS = {
    "agents": "type ipv4_addr; flags interval",
    "containers": "typeof ip saddr . ether saddr",
    "container_addresses": "type ipv4_addr",
    "closed_networks": "type ipv4_addr; flags interval",
    "name_servers": "type ipv4_addr",
    "session_bridges": "type ifname . ifname",
    "tunnel_ports": "type inet_service",
    "ssh_ports": "type inet_service",
    "ssh_pinned4": "typeof ip saddr . ether saddr . tcp dport",
    "ssh_encrypted4": "typeof ip saddr . iifname . tcp dport",
    "ssh_routed4": "typeof ip saddr . tcp dport",
    "host_pinned4": "typeof ip saddr . ether saddr",
    "host_encrypted4": "typeof ip saddr . iifname",
    "host_routed4": "typeof ip saddr",
    "published4": "typeof ip daddr . tcp dport",
    "published6": "typeof ip6 daddr . tcp dport",
    "gateways4": "type ipv4_addr; flags interval",
    "gateways6": "type ipv6_addr; flags interval",
}

PIN_SETS = {f"firewall set {name}" for name in ("containers", "container_addresses", "ports", "port_macs", "senders")}
"""The sets that depend on running containers, as subjects of changes."""

# Drop chains with their reason; each counts all packets and logs some.
_DROPS = {
    "drop_ipv6": "containers have no IPv6",
    "drop_forged": "spoofed source address, of a container or of an outside host",
    "drop_tunnel": "tunnel datagram that no peer of the session sent",
    "drop_agent": "from a container to an agent",
    "drop_metadata": "from a container to the metadata service",
    "drop_closed": "from a container to a closed network or service",
    "drop_default_network": "between containers on the default network",
    "drop_session": "into or out of a session, not over its own network",
    "drop_routed": "to a container, not through a published port",
    "drop_unencrypted": "unencrypted traffic between encrypted addresses",
    "drop_sshd": "to the sshd of a session in the network of the agent",
    "drop_published": "to a published port, not from a gateway",
    "drop_ingress": "to this host, not allowed",
}


def render(isolation: IsolationPolicy, firewall: Firewall | None = None, external: Collection[str] = ()) -> str:
    """Return the ``nft`` input that replaces both tables atomically; loading it is idempotent.

    ``firewall`` is the host firewall, ``external`` are the interfaces that lead to other hosts, not to containers.
    """
    rules = build_firewall_rules(firewall, isolation.wireguard_ports)
    tunnels = build_tunnel_rules(isolation.peers)
    gateways = collapse([*isolation.gateways, *(firewall.gateways if firewall else ())])
    elements = {
        "agents": isolation.agents,
        **_pin_elements(isolation.pins),
        "closed_networks": isolation.egress.closed_networks,
        "name_servers": isolation.name_servers,
        "session_bridges": [f'"{bridge}" . "{bridge}"' for bridge in isolation.bridges],
        "tunnel_ports": map(str, isolation.ports),
        "ssh_ports": map(str, isolation.ssh_ports),
        "published4": [" . ".join(published) for published in isolation.published if not is_ipv6(published[0])],
        "published6": [" . ".join(published) for published in isolation.published if is_ipv6(published[0])],
        "gateways4": filter_family(gateways, 4),
        "gateways6": filter_family(gateways, 6),
        "external_ifaces": _quote(external),
        **{match_set: [" . ".join(sender) for sender in matches] for match_set, matches in isolation.peers.items()},
        **tunnels.elements,
        **rules.elements,
    }
    dynamic_sets = {"external_ifaces": "type ifname"} if external or firewall else {}
    dynamic_sets |= {STORAGE_SET: STORAGE_TYPE} if isolation.storage else {}
    types = {**_SETS, **tunnels.sets, **dynamic_sets, **rules.sets}
    sets = "".join(_render_set(name, kind, elements.get(name, [])) for name, kind in types.items())
    drop_chains = "".join(_render_drop_chain(name, reason) for name, reason in _DROPS.items())
    drop_chains += render_storage_chain() if isolation.storage else ""
    packets = f"{sets}{drop_chains}{_render_chains(rules, tunnels.chains, isolation, external)}"
    return f"{_replace_table('inet', packets)}{_replace_table('bridge', _render_frames(isolation.pins))}"


def _pin_elements(pins: Collection[Pin]) -> dict[str, list[str]]:
    """Return the elements of the sets for packets of containers on the default network."""
    return {
        "containers": [f"{pin.address} . {pin.mac}" for pin in pins],
        "container_addresses": [pin.address for pin in pins],
    }


def render_pins(pins: Collection[Pin]) -> str:
    """Return the ``nft`` input that updates what depends on pinned ports, and no other rules."""
    table = f"inet {TABLE}"
    updates = [
        f"flush set {table} {name}\n" + (f"add element {table} {name} {{ {', '.join(listed)} }}\n" if listed else "")
        for name, listed in _pin_elements(pins).items()
    ]
    return "".join(updates) + _replace_table("bridge", _render_frames(pins))


def _replace_table(family: str, body: str) -> str:
    table = f"table {family} {TABLE}"
    return f"{table}\ndelete {table}\n{table} {{\n{body}}}\n"


def _render_frames(pins: Collection[Pin]) -> str:
    """Return the sets and chains for frames of containers on the default network.

    The link header is compared, in which a tagged frame is neither IP nor ARP, whatever tag was offloaded. Most
    link-local destinations bypass prerouting; LLDP's bypasses every hook, and is not forwarded either. From a port that
    is not pinned yet, they reach the agent: not every kernel can match a bridge there.
    """
    elements = {
        "ports": ("type ifname", _quote(pin.port for pin in pins)),
        "port_macs": ("type ether_addr", [pin.mac for pin in pins]),
        "senders": (
            "type ifname . ether_addr . ipv4_addr",
            [f'"{pin.port}" . {pin.mac} . {pin.address}' for pin in pins],
        ),
    }
    sets = "".join(_render_set(name, kind, listed) for name, (kind, listed) in elements.items())
    drop = _render_drop_chain("drop_frame", "frame that a container must not send, or between containers")
    return f"""{sets}{drop}\
    # What a container may send: untagged IPv4 and ARP, from its own MAC and address.
    chain from_ports {{
        type filter hook prerouting priority filter; policy accept;
        ether type ip iifname . ether saddr . ip saddr @senders return
        ether type arp iifname @ports iifname . arp saddr ether . arp saddr ip != @senders goto drop_frame
        ether type arp iifname . ether saddr . arp saddr ip @senders return
        iifname @ports goto drop_frame
        # A port that is not pinned yet must not use the MAC of a container.
        ether saddr @port_macs goto drop_frame
    }}
    chain link_local {{
        type filter hook input priority filter; policy accept;
        iifname @ports ether daddr & ff:ff:ff:ff:ff:f0 == 01:80:c2:00:00:00 goto drop_frame
    }}
    # Containers of the default network reach each other over no port.
    chain between_ports {{
        type filter hook forward priority filter; policy accept;
        iifname @ports goto drop_frame
        oifname @ports goto drop_frame
    }}
"""


def _render_chains(firewall: FirewallRules, tunnels: str, isolation: IsolationPolicy, external: Collection[str]) -> str:
    """Return the chains of the table, with the rules of the host firewall and those of tunnels."""
    egress = isolation.egress
    return f"""
    # Tunnel datagrams are matched one by one, and each direction is a connection of its own: none of them is tracked.
    chain untracked_received {{
        type filter hook prerouting priority raw; policy accept;
        udp dport @tunnel_ports fib daddr type local notrack
    }}
    chain untracked_sent {{
        type filter hook output priority raw; policy accept;
        udp dport @tunnel_ports notrack
    }}
    # After connection tracking (-200) and before Docker's DNAT (-100): destinations are still the original ones.
    chain from_containers {{
        type filter hook prerouting priority mangle; policy accept;
        iifname != "{DEFAULT_BRIDGE}" return
        meta nfproto ipv6 goto drop_ipv6
        # Anti-spoofing.
        fib saddr . iif oif missing goto drop_forged
        # Containers must not send tunnel datagrams, not even as replies.
        udp dport @tunnel_ports goto drop_tunnel
        # Forged errors would pass as replies, and change routes and path MTUs of agents and gateways. Of all errors, a
        # container only sends that a port is closed.
        icmp type {{ redirect, time-exceeded, parameter-problem }} goto drop_agent
        icmp type destination-unreachable icmp code != port-unreachable goto drop_agent
        icmp type destination-unreachable fib daddr type local goto drop_agent
        icmp type destination-unreachable ip daddr @agents goto drop_agent
        ip saddr @container_addresses ip saddr . ether saddr != @containers goto drop_forged
        # Replies to connections through published ports, or from the agent itself.
        ct direction reply return
        # Until its port is pinned, a container can send nothing else.
        ip saddr . ether saddr != @containers goto drop_forged
        # All addresses of this agent, broadcast and multicast.
        fib daddr type != unicast goto drop_agent
        ip daddr 169.254.0.0/16 goto drop_metadata
        # Before the addresses of agents, which each agent reports itself.
        ip daddr @name_servers meta l4proto {{ tcp, udp }} th dport 53 return
        ip daddr @agents goto drop_agent
{_service_rules(egress.allowed, "return")}{_storage_rules(isolation.storage)}\
{_service_rules(egress.closed_services, "goto drop_closed")}\
        ip daddr @closed_networks goto drop_closed
    }}
    # Incoming traffic: every packet is checked, also of established connections.
    chain ingress {{
        type filter hook prerouting priority mangle; policy accept;
        iifname {{ "lo", "{DEFAULT_BRIDGE}" }} return
        iifname "{BRIDGE_PREFIX}*" return
        iifname "{VXLAN_PREFIX}*" return
{firewall.tunnels}        # Session traffic arrives in tunnels: the chain vxlan_peers checks the senders.
        udp dport @tunnel_ports fib daddr type local return
{_anti_spoofing_rules(external)}        ct direction reply return
        ip daddr . tcp dport @published4 goto published
        ip6 daddr . tcp dport @published6 goto published
{firewall.ingress}    }}
    # Published ports of main1: for gateways, and for the agents of a session in host network mode.
    chain published {{
        ip saddr @gateways4 return
        ip6 saddr @gateways6 return
        ip saddr . ether saddr @host_pinned4 return
        ip saddr . iifname @host_encrypted4 return
        ip saddr @host_routed4 return
        goto drop_published
    }}
    chain forward {{
        type filter hook forward priority filter; policy accept;
        # Both sides of a connection agree on segments that fit the route between them, which may be narrower than eth0.
        iifname "{DEFAULT_BRIDGE}" tcp flags & (syn | rst) == syn tcp option maxseg size set rt mtu
        oifname "{DEFAULT_BRIDGE}" tcp flags & (syn | rst) == syn tcp option maxseg size set rt mtu
        # Shared by containers of all sessions: no traffic between them, and access only through published ports.
        iifname "{DEFAULT_BRIDGE}" oifname "{DEFAULT_BRIDGE}" goto drop_default_network
        oifname "{DEFAULT_BRIDGE}" ct direction original ct status & dnat == 0 goto drop_routed
        # With bridge netfilter, frames within one session pass here; all other traffic of session bridges is dropped.
        iifname "{BRIDGE_PREFIX}*" iifname . oifname != @session_bridges goto drop_session
        oifname "{BRIDGE_PREFIX}*" iifname . oifname != @session_bridges goto drop_session
        iifname "{VXLAN_PREFIX}*" goto drop_session
        oifname "{VXLAN_PREFIX}*" goto drop_session
{firewall.forward}    }}
    chain input {{
        type filter hook input priority filter; policy accept;
        iifname "{BRIDGE_PREFIX}*" goto drop_session
        iifname "{VXLAN_PREFIX}*" goto drop_session
        udp dport @tunnel_ports jump vxlan_peers
        iifname != "lo" tcp dport @ssh_ports jump session_sshd
    }}
{tunnels}    # Traffic to encrypted addresses must use the WireGuard device, also while that is missing.
    chain output {{
        type filter hook output priority filter; policy accept;
        ip6 daddr {INNER_NETWORK} oifname != {{ "lo", "{DEVICE}" }} goto drop_unencrypted
    }}
    # sshds of containers in host network mode: for the agents of their session, that of main1 also for gateways.
    chain session_sshd {{
        ip saddr . ether saddr . tcp dport @ssh_pinned4 return
        ip saddr . iifname . tcp dport @ssh_encrypted4 return
        ip saddr . tcp dport @ssh_routed4 return
        ip daddr . tcp dport @published4 ip saddr @gateways4 return
        goto drop_sshd
    }}
{firewall.chain}"""


def _service_rules(services: Iterable[Service], verdict: str) -> str:
    return "".join(
        f"        ip daddr {{ {', '.join(service.destinations)} }} {service.protocol} dport"
        f" {{ {', '.join(service.ports)} }} {verdict}\n"
        for service in services
    )


def _storage_rules(services: Iterable[StorageService]) -> str:
    """Return the rules that close storage services, never a whole server: it may have other services."""
    by_protocol = [
        Service(protocol, ports, (service.address,))
        for service in services
        for protocol, ports in (("tcp", service.tcp), ("udp", service.udp))
        if ports
    ]
    return _service_rules(by_protocol, f"goto {STORAGE_CHAIN}")


def _anti_spoofing_rules(external: Collection[str]) -> str:
    """Return the rules that drop packets from outside with a source address that is routed inside.

    In ``nft`` 1.0.6 the result of ``fib`` has another type than the elements of a named set of interfaces.
    """
    if not external:
        return ""
    mismatch = f"fib saddr oifname != {{ {', '.join(_quote(external))} }} goto drop_forged"
    return f"""\
        # Anti-spoofing: source addresses that are routed inside are invalid here, or they could pass as replies.
        iifname @external_ifaces ip saddr != 0.0.0.0 {mismatch}
        iifname @external_ifaces ip6 saddr != {{ ::, fe80::/10 }} {mismatch}
"""


def _quote(names: Iterable[str]) -> list[str]:
    return [f'"{name}"' for name in names]


def _render_drop_chain(name: str, reason: str) -> str:
    """Return a chain that logs under its own prefix, counts and drops."""
    log = f'limit rate {LOG_RATE} burst 5 packets log prefix "{TABLE} {name}: "'
    return f"    # {reason[0].upper()}{reason[1:]}.\n    chain {name} {{\n        {log}\n        counter drop\n    }}\n"


def _render_set(name: str, kind: str, elements: Iterable[str]) -> str:
    listed = ", ".join(elements)
    return f"    set {name} {{ {kind}; {f'elements = {{ {listed} }}' if listed else ''} }}\n"
