# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What keeps sessions apart on one agent, as the text of an nftables table of the project's own.

It only ever drops, and a drop is final: it holds whatever Docker, ufw or firewalld accept, before it or after it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable

from .._model.addressing import collapse, is_ipv6
from .._model.network import BRIDGE_PREFIX, DEFAULT_BRIDGE, Underlay
from .._model.plan import SessionPlan
from .._wireguard.mesh import DEVICE, NETWORK
from .host_rules import FirewallRules, firewall_rules
from .policy import Firewall, filter_family
from .table import TABLE

# How much is logged of each kind of what is dropped; all of it is counted.
LOG_RATE = "6/minute"

# The network identifier of a VXLAN datagram: the three bytes behind the UDP header and four more (RFC 7348).
_VNI = "@th,96,24"

_SETS = {
    "agents": "type ipv4_addr; flags interval",
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

# Where what is dropped ends, with why: each end counts, and logs a little of it.
_DROPS = {
    "drop_ipv6": "containers have no IPv6",
    "drop_forged": "a container, or somebody outside, under an address that cannot be theirs",
    "drop_tunnel": "a tunnel's datagram that is not a peer's",
    "drop_agent": "a container to an agent",
    "drop_metadata": "a container to the metadata service",
    "drop_default_network": "a container to another one on the default network",
    "drop_session": "into a session, or out of one, past its own network",
    "drop_routed": "to a container, not by a published port",
    "drop_unencrypted": "past the encryption",
    "drop_sshd": "to a session's sshd on the agent's own network",
    "drop_published": "to a published port, not from a gateway",
    "drop_ingress": "to this host, not allowed",
}


@dataclasses.dataclass(frozen=True)
class IsolationPolicy:
    """What one agent has to keep apart.

    ``agents`` are the IPv4 addresses and networks of agents: containers do not reach them, and nobody over IPv6.
    ``bridges`` are those of the sessions here, ``ports`` the UDP ports of their tunnels. ``senders`` are the agents
    that may send there, each under what it is known by: ``pinned4``, for one, has (address, MAC, network identifier).
    ``ssh_ports`` are those of containers on the agent's own network, and ``ssh_pinned4`` has (address, MAC, port).
    """

    agents: tuple[str, ...]
    bridges: tuple[str, ...]
    ports: tuple[int, ...]
    peers: dict[str, tuple[tuple[str, ...], ...]]
    ssh_ports: tuple[int, ...] = ()
    published: tuple[tuple[str, str], ...] = ()
    gateways: tuple[str, ...] = ()
    wireguard_ports: tuple[int, ...] = ()


def build_isolation_policy(slices: Iterable[tuple[SessionPlan, str]], routed: Collection[str]) -> IsolationPolicy:
    """Return what keeps sessions apart on an agent that holds these plans, each with the agent's own name in it.

    ``routed`` are the underlay addresses of peers that a router lies before: MACs say nothing of those.
    """
    listed = list(slices)
    networks = [plan.network for plan, _agent in listed if plan.network]
    addresses = {address for plan, _agent in listed for address in plan.agent_addresses}
    addresses |= {underlay.address for plan, _agent in listed for underlay in plan.underlays.values()}
    senders: dict[str, set[tuple[str, ...]]] = {}
    for plan, agent in listed:
        for peer in peers(plan, agent):
            known_by, *rest = _peer_match(peer, plan.underlays[agent], routed)
            for prefix, door in _peer_services(plan, agent):
                senders.setdefault(f"{prefix}{known_by}", set()).add((peer.address, *rest, *door))
    return IsolationPolicy(
        agents=tuple(filter_family(collapse(addresses), 4)),
        bridges=tuple(sorted(network.bridge for network in networks if network.bridge)),
        ports=tuple(sorted({network.port for network in networks if network.port is not None})),
        peers={known_by: tuple(sorted(found)) for known_by, found in sorted(senders.items())},
        ssh_ports=tuple(sorted(port for plan, agent in listed for port in plan.host_ports(agent))),
        published=tuple(
            sorted((one.address, str(one.host_port)) for plan, agent in listed for one in plan.published_on(agent))
        ),
        gateways=collapse(address for plan, _agent in listed for address in plan.gateways),
        wireguard_ports=tuple(sorted({port for plan, agent in listed for port in _wireguard_ports(plan, agent)})),
    )


def peers(plan: SessionPlan, agent: str) -> list[Underlay]:
    """Return the other agents of a session, which send to ``agent``; none where they have nothing to send."""
    return [underlay for name, underlay in plan.underlays.items() if name != agent]


def render(isolation: IsolationPolicy, firewall: Firewall | None = None, outer: Collection[str] = ()) -> str:
    """Return the text with which ``nft`` replaces the whole table in one step; it may be loaded again and again.

    ``firewall`` is the operator's, and ``outer`` are the interfaces at which others than containers are met.
    """
    rules = firewall_rules(firewall, isolation.wireguard_ports)
    gateways = collapse([*isolation.gateways, *(firewall.gateways if firewall else ())])
    elements = {
        "agents": isolation.agents,
        "session_bridges": [f'"{bridge}" . "{bridge}"' for bridge in isolation.bridges],
        "tunnel_ports": map(str, isolation.ports),
        "ssh_ports": map(str, isolation.ssh_ports),
        "published4": [" . ".join(one) for one in isolation.published if not is_ipv6(one[0])],
        "published6": [" . ".join(one) for one in isolation.published if is_ipv6(one[0])],
        "gateways4": filter_family(gateways, 4),
        "gateways6": filter_family(gateways, 6),
        "external_ifaces": _quoted(outer),
        **{known_by: [" . ".join(sender) for sender in found] for known_by, found in isolation.peers.items()},
        **rules.elements,
    }
    met = {"external_ifaces": "type ifname"} if outer or firewall else {}
    sets = "".join(_set(name, kind, elements.get(name, [])) for name, kind in {**_SETS, **met, **rules.sets}.items())
    ends = "".join(_drop_chain(name, why) for name, why in _DROPS.items())
    return (
        f"table inet {TABLE}\ndelete table inet {TABLE}\ntable inet {TABLE} {{\n{sets}{ends}{_chains(rules, outer)}}}\n"
    )


def _chains(firewall: FirewallRules, outer: Collection[str]) -> str:
    """Return the chains of the table, with what the operator's firewall adds to them."""
    return f"""
    # Between connection tracking (-200) and Docker's translation (-100): addresses are still those that were asked for.
    chain from_containers {{
        type filter hook prerouting priority mangle; policy accept;
        iifname != "{DEFAULT_BRIDGE}" return
        meta nfproto ipv6 goto drop_ipv6
        # A forged sender.
        fib saddr . iif oif missing goto drop_forged
        # Nothing that agents could take for a peer's, not even as an answer.
        udp dport @tunnel_ports goto drop_tunnel
        # An answer to whoever came in through a published port, or to the agent itself.
        ct direction reply return
        # This agent under any of its addresses, broadcasts and multicasts.
        fib daddr type != unicast goto drop_agent
        ip daddr @agents goto drop_agent
        ip daddr 169.254.0.0/16 goto drop_metadata
    }}
    # What comes from outside: every packet is looked at, also of a connection that is open already.
    chain ingress {{
        type filter hook prerouting priority mangle; policy accept;
        iifname {{ "lo", "{DEFAULT_BRIDGE}" }} return
        iifname "{BRIDGE_PREFIX}*" return
        # Sessions' traffic comes in tunnels: the chain vxlan_peers knows who may send those.
        udp dport @tunnel_ports fib daddr type local return
{_anti_spoofing_rules(outer)}        ct direction reply return
        ip daddr . tcp dport @published4 goto published
        ip6 daddr . tcp dport @published6 goto published
{firewall.ingress}    }}
    # Doors of main1: for gateways, and for the agents of a session that shares their network.
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
        # Containers of all sessions are here: none talks to another, and published ports are the only way in.
        iifname "{DEFAULT_BRIDGE}" oifname "{DEFAULT_BRIDGE}" goto drop_default_network
        oifname "{DEFAULT_BRIDGE}" ct direction original ct status ! dnat goto drop_routed
        # Frames within one session pass here where bridged filtering is on; nothing else comes or goes.
        iifname "{BRIDGE_PREFIX}*" iifname . oifname != @session_bridges goto drop_session
        oifname "{BRIDGE_PREFIX}*" iifname . oifname != @session_bridges goto drop_session
{firewall.forward}    }}
    chain input {{
        type filter hook input priority filter; policy accept;
        iifname "{BRIDGE_PREFIX}*" goto drop_session
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
    # What is meant to be encrypted takes no other way, also while the device is away.
    chain output {{
        type filter hook output priority filter; policy accept;
        ip6 daddr {NETWORK} oifname != {{ "lo", "{DEVICE}" }} goto drop_unencrypted
    }}
    # Containers on this agent's own network: their sshds are for the agents of their session, main1's for gateways too.
    chain session_sshd {{
        ip saddr . ether saddr . tcp dport @ssh_pinned4 return
        ip saddr . iifname . tcp dport @ssh_encrypted4 return
        ip saddr . tcp dport @ssh_routed4 return
        ip daddr . tcp dport @published4 ip saddr @gateways4 return
        goto drop_sshd
    }}
{firewall.chain}"""


def _anti_spoofing_rules(outer: Collection[str]) -> str:
    """Return the rules by which nobody outside pretends to be a container that has asked for something.

    In ``nft`` 1.0.6 interfaces that ``fib`` finds are of another type than the elements of a named set of interfaces.
    """
    if not outer:
        return ""
    wrong = f"fib saddr oifname != {{ {', '.join(_quoted(outer))} }} goto drop_forged"
    return f"""\
        # Who comes from outside is none of those inside: else it could pretend that they had asked it for something.
        iifname @external_ifaces ip saddr != 0.0.0.0 {wrong}
        iifname @external_ifaces ip6 saddr != {{ ::, fe80::/10 }} {wrong}
"""


def _quoted(names: Iterable[str]) -> list[str]:
    return [f'"{name}"' for name in names]


def _peer_services(plan: SessionPlan, agent: str) -> list[tuple[str, tuple[str, ...]]]:
    """Return where peers may send to: the tunnel by its identifier, or what containers have on the agent's network.

    There an sshd is for its session alone, while anything else that containers open has a port that nobody knows.
    """
    if plan.network and plan.network.vni is not None:
        return [("", (str(plan.network.vni),))]
    ports = plan.host_ports(agent)
    return [*(("ssh_", (str(port),)) for port in ports), *([("host_", ())] if ports else [])]


def _wireguard_ports(plan: SessionPlan, agent: str) -> list[int]:
    own = plan.underlays.get(agent)
    return [int(own.endpoint.rpartition(":")[2])] if own and own.endpoint else []


def _peer_match(peer: Underlay, own: Underlay, routed: Collection[str]) -> tuple[str, ...]:
    """Return the set that a peer belongs to, and what it is known by there beside its address and the identifier."""
    family = "6" if is_ipv6(peer.address) else "4"
    if own.public_key:
        # The tunnel under it lets a peer send from its own address only.
        return f"encrypted{family}", own.interface
    if peer.mac and peer.address not in routed:
        return f"pinned{family}", peer.mac
    return (f"routed{family}",)


def _drop_chain(name: str, why: str) -> str:
    """Return the chain where something that is dropped ends; what it logs can be told from what others log."""
    log = f'limit rate {LOG_RATE} burst 5 packets log prefix "{TABLE} {name}: "'
    return f"    # {why[0].upper()}{why[1:]}.\n    chain {name} {{\n        {log}\n        counter drop\n    }}\n"


def _set(name: str, kind: str, elements: Iterable[str]) -> str:
    listed = ", ".join(elements)
    return f"    set {name} {{ {kind}; {f'elements = {{ {listed} }}' if listed else ''} }}\n"
