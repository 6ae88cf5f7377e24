# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Renders the isolation of sessions on one agent as nftables tables of its own: for packets, and for frames.

The tables only drop. A drop is final in nftables, so it takes effect whatever Docker, ufw or firewalld accept.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable

from .._model.addressing import collapse, is_ipv6
from .._model.network import BRIDGE_PREFIX, DEFAULT_BRIDGE, VXLAN_PREFIX, Underlay
from .._model.plan import SessionPlan
from .._network.pins import Pin
from .._wireguard.mesh import DEVICE, NETWORK
from .egress import NOTHING_CLOSED, EgressPolicy, Service
from .host_rules import FirewallRules, build_firewall_rules
from .policy import Firewall, filter_family
from .table import LOG_RATE, TABLE

# The network identifier of a VXLAN datagram: three bytes, four bytes after the UDP header (RFC 7348).
_VNI = "@th,96,24"

_SETS = {
    "agents": "type ipv4_addr; flags interval",
    "containers": "typeof ip saddr . ether saddr",
    "container_addresses": "type ipv4_addr",
    "closed_networks": "type ipv4_addr; flags interval",
    "name_servers": "type ipv4_addr",
    "session_bridges": "type ifname . ifname",
    "tunnel_ports": "type inet_service",
    "pinned4": f"typeof ip saddr . ether saddr . {_VNI}",
    "pinned6": f"typeof ip6 saddr . ether saddr . {_VNI}",
    "encrypted4": f"typeof ip saddr . iifname . {_VNI}",
    "encrypted6": f"typeof ip6 saddr . iifname . {_VNI}",
    "routed4": f"typeof ip saddr . {_VNI}",
    "routed6": f"typeof ip6 saddr . {_VNI}",
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


@dataclasses.dataclass(frozen=True)
class IsolationPolicy:
    """Input of the isolation rules of one agent.

    ``agents`` are the IPv4 addresses and networks of agents, which containers must not reach; containers have no IPv6.
    ``bridges`` are those of the sessions here, ``ports`` the UDP ports of their tunnels. ``peers`` are the allowed
    senders by the set that matches them: ``pinned4``, for example, has (address, MAC, VNI). ``ssh_ports`` are those of
    containers in the agent's own network; ``ssh_pinned4`` has (address, MAC, port). ``pins`` are the pinned
    ports of containers on the default network. ``egress`` is what these may not reach, ``name_servers`` what they may
    always ask.
    """

    agents: tuple[str, ...]
    bridges: tuple[str, ...]
    ports: tuple[int, ...]
    peers: dict[str, tuple[tuple[str, ...], ...]]
    ssh_ports: tuple[int, ...] = ()
    published: tuple[tuple[str, str], ...] = ()
    gateways: tuple[str, ...] = ()
    wireguard_ports: tuple[int, ...] = ()
    pins: tuple[Pin, ...] = ()
    egress: EgressPolicy = NOTHING_CLOSED
    name_servers: tuple[str, ...] = ()


def build_isolation_policy(
    slices: Iterable[tuple[SessionPlan, str]], routed: Collection[str], pins: Iterable[Pin] = ()
) -> IsolationPolicy:
    """Return the isolation policy of an agent that holds these plans, each with the agent's name in it.

    ``routed`` are the underlay addresses of peers behind a router, which cannot be matched by MAC address. ``pins`` are
    the agent's pinned ports.
    """
    listed = list(slices)
    networks = [plan.network for plan, _agent in listed if plan.network]
    addresses = {address for plan, _agent in listed for address in plan.agent_addresses}
    addresses |= {underlay.address for plan, _agent in listed for underlay in plan.underlays.values()}
    senders: dict[str, set[tuple[str, ...]]] = {}
    for plan, agent in listed:
        for peer in list_peers(plan, agent):
            match_set, *rest = _match_peer(peer, plan.underlays[agent], routed)
            for prefix, service in _peer_services(plan, agent):
                senders.setdefault(f"{prefix}{match_set}", set()).add((peer.address, *rest, *service))
    return IsolationPolicy(
        agents=tuple(filter_family(collapse(addresses), 4)),
        bridges=tuple(sorted(network.bridge for network in networks if network.bridge)),
        ports=tuple(sorted({network.port for network in networks if network.port is not None})),
        peers={match_set: tuple(sorted(matches)) for match_set, matches in sorted(senders.items())},
        ssh_ports=tuple(sorted(port for plan, agent in listed for port in plan.host_ports(agent))),
        published=tuple(
            sorted((port.address, str(port.host_port)) for plan, agent in listed for port in plan.published_on(agent))
        ),
        gateways=collapse(address for plan, _agent in listed for address in plan.gateways),
        wireguard_ports=tuple(sorted({port for plan, agent in listed for port in _wireguard_ports(plan, agent)})),
        pins=tuple(pins),
    )


def list_peers(plan: SessionPlan, agent: str) -> list[Underlay]:
    """Return the underlays of the other agents of a session, which send to ``agent``."""
    return [underlay for name, underlay in plan.underlays.items() if name != agent]


def render(isolation: IsolationPolicy, firewall: Firewall | None = None, external: Collection[str] = ()) -> str:
    """Return the ``nft`` input that replaces both tables atomically; loading it is idempotent.

    ``firewall`` is the host firewall, ``external`` are the interfaces that lead to other hosts, not to containers.
    """
    rules = build_firewall_rules(firewall, isolation.wireguard_ports)
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
        **rules.elements,
    }
    dynamic_sets = {"external_ifaces": "type ifname"} if external or firewall else {}
    types = {**_SETS, **dynamic_sets, **rules.sets}
    sets = "".join(_render_set(name, kind, elements.get(name, [])) for name, kind in types.items())
    drop_chains = "".join(_render_drop_chain(name, reason) for name, reason in _DROPS.items())
    packets = f"{sets}{drop_chains}{_render_chains(rules, isolation.egress, external)}"
    return f"{_replace_table('inet', packets)}{_replace_table('bridge', _render_frames(isolation.pins))}"


def _pin_elements(pins: Collection[Pin]) -> dict[str, list[str]]:
    """Return the elements of the sets for packets of containers on the default network."""
    return {
        "containers": [f"{pin.address} . {pin.mac}" for pin in pins],
        "container_addresses": [pin.address for pin in pins],
    }


def has_pin_sets(listing: str) -> bool:
    """Return whether tables, as listed, have the sets of :func:`render_pins`; those of earlier releases lack them."""
    return "set container_addresses {" in listing


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
    link-local destinations bypass prerouting; LLDP's bypasses every hook, and is not forwarded either.
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


def _render_chains(firewall: FirewallRules, egress: EgressPolicy, external: Collection[str]) -> str:
    """Return the chains of the table, with the rules of the host firewall."""
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
        ip daddr @agents goto drop_agent
        ip daddr 169.254.0.0/16 goto drop_metadata
        ip daddr @name_servers meta l4proto {{ tcp, udp }} th dport 53 return
{_service_rules(egress.allowed, "return")}{_service_rules(egress.closed_services, "goto drop_closed")}\
        ip daddr @closed_networks goto drop_closed
    }}
    # Incoming traffic: every packet is checked, also of established connections.
    chain ingress {{
        type filter hook prerouting priority mangle; policy accept;
        iifname {{ "lo", "{DEFAULT_BRIDGE}" }} return
        iifname "{BRIDGE_PREFIX}*" return
        iifname "{VXLAN_PREFIX}*" return
        # Session traffic arrives in tunnels: the chain vxlan_peers checks the senders.
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
        # Shared by containers of all sessions: no traffic between them, and access only through published ports.
        iifname "{DEFAULT_BRIDGE}" oifname "{DEFAULT_BRIDGE}" goto drop_default_network
        oifname "{DEFAULT_BRIDGE}" ct direction original ct status ! dnat goto drop_routed
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
    chain vxlan_peers {{
        ip saddr . ether saddr . {_VNI} @pinned4 return
        ip6 saddr . ether saddr . {_VNI} @pinned6 return
        ip saddr . iifname . {_VNI} @encrypted4 return
        ip6 saddr . iifname . {_VNI} @encrypted6 return
        ip saddr . {_VNI} @routed4 return
        ip6 saddr . {_VNI} @routed6 return
        goto drop_tunnel
    }}
    # Traffic to encrypted addresses must use the WireGuard device, also while that is missing.
    chain output {{
        type filter hook output priority filter; policy accept;
        ip6 daddr {NETWORK} oifname != {{ "lo", "{DEVICE}" }} goto drop_unencrypted
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


def _peer_services(plan: SessionPlan, agent: str) -> list[tuple[str, tuple[str, ...]]]:
    """Return what peers may send to, as set prefixes: the tunnel by its VNI, or containers in the agent's network.

    Those have one sshd port for each container; other ports that they open are not known in advance.
    """
    if plan.network and plan.network.vni is not None:
        return [("", (str(plan.network.vni),))]
    ports = plan.host_ports(agent)
    return [*(("ssh_", (str(port),)) for port in ports), *([("host_", ())] if ports else [])]


def _wireguard_ports(plan: SessionPlan, agent: str) -> list[int]:
    underlay = plan.underlays.get(agent)
    return [int(underlay.endpoint.rpartition(":")[2])] if underlay and underlay.endpoint else []


def _match_peer(peer: Underlay, underlay: Underlay, routed: Collection[str]) -> tuple[str, ...]:
    """Return the set that matches a peer, and its elements beside the address and the service."""
    family = "6" if is_ipv6(peer.address) else "4"
    if underlay.public_key:
        # WireGuard ties the address of a peer to its key.
        return f"encrypted{family}", underlay.interface
    if peer.mac and peer.address not in routed:
        return f"pinned{family}", peer.mac
    return (f"routed{family}",)


def _render_drop_chain(name: str, reason: str) -> str:
    """Return a chain that logs under its own prefix, counts and drops."""
    log = f'limit rate {LOG_RATE} burst 5 packets log prefix "{TABLE} {name}: "'
    return f"    # {reason[0].upper()}{reason[1:]}.\n    chain {name} {{\n        {log}\n        counter drop\n    }}\n"


def _render_set(name: str, kind: str, elements: Iterable[str]) -> str:
    listed = ", ".join(elements)
    return f"    set {name} {{ {kind}; {f'elements = {{ {listed} }}' if listed else ''} }}\n"
