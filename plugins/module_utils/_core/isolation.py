# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What keeps sessions apart on one agent, as the text of an nftables table of the project's own.

It only ever drops, and a drop is final: it holds whatever Docker, ufw or firewalld accept, before it or after it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable

from ansible_collections.backendai.cluster.plugins.module_utils._core.addressing import collapsed
from ansible_collections.backendai.cluster.plugins.module_utils._core.facts import Underlay
from ansible_collections.backendai.cluster.plugins.module_utils._core.network import BRIDGE_PREFIX, DEFAULT_BRIDGE
from ansible_collections.backendai.cluster.plugins.module_utils._core.plan import SessionPlan
from ansible_collections.backendai.cluster.plugins.module_utils._core.wireguard import DEVICE, NETWORK

TABLE = "backendai"

_VNI = "@th,96,24"
"""The network identifier of a VXLAN datagram: the three bytes behind the UDP header and four more (RFC 7348)."""

_SETS = {
    "agents": "type ipv4_addr; flags interval",
    "same": "type ifname . ifname",
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
}

_CHAINS = f"""
    # Between connection tracking (-200) and Docker's translation (-100): addresses are still those that were asked for.
    chain containers {{
        type filter hook prerouting priority mangle; policy accept;
        iifname != "{DEFAULT_BRIDGE}" return
        meta nfproto ipv6 drop
        # A forged sender.
        fib saddr . iif oif missing drop
        # Nothing that agents could take for a peer's, not even as an answer.
        udp dport @tunnel_ports drop
        # An answer to whoever came in through a published port, or to the agent itself.
        ct direction reply return
        # This agent under any of its addresses, broadcasts and multicasts.
        fib daddr type != unicast drop
        ip daddr @agents drop
        ip daddr 169.254.0.0/16 drop
    }}
    chain forward {{
        type filter hook forward priority filter; policy accept;
        # Containers of all sessions are here: none talks to another, and published ports are the only way in.
        iifname "{DEFAULT_BRIDGE}" oifname "{DEFAULT_BRIDGE}" drop
        oifname "{DEFAULT_BRIDGE}" ct direction original ct status ! dnat drop
        # Frames within one session pass here where bridged filtering is on; nothing else comes or goes.
        iifname "{BRIDGE_PREFIX}*" iifname . oifname != @same drop
        oifname "{BRIDGE_PREFIX}*" iifname . oifname != @same drop
    }}
    chain input {{
        type filter hook input priority filter; policy accept;
        iifname "{BRIDGE_PREFIX}*" drop
        udp dport @tunnel_ports jump tunnels
        iifname != "lo" tcp dport @ssh_ports jump logins
    }}
    chain tunnels {{
        ip saddr . ether saddr . {_VNI} @pinned4 return
        ip6 saddr . ether saddr . {_VNI} @pinned6 return
        ip saddr . iifname . {_VNI} @encrypted4 return
        ip6 saddr . iifname . {_VNI} @encrypted6 return
        ip saddr . {_VNI} @routed4 return
        ip6 saddr . {_VNI} @routed6 return
        drop
    }}
    # What is meant to be encrypted takes no other way, also while the device is away.
    chain output {{
        type filter hook output priority filter; policy accept;
        ip6 daddr {NETWORK} oifname != {{ "lo", "{DEVICE}" }} drop
    }}
    # Containers on this agent's own network: their sshds are for the agents of their session, and for nobody else.
    chain logins {{
        ip saddr . ether saddr . tcp dport @ssh_pinned4 return
        ip saddr . iifname . tcp dport @ssh_encrypted4 return
        ip saddr . tcp dport @ssh_routed4 return
        drop
    }}
"""


@dataclasses.dataclass(frozen=True)
class Isolation:
    """What one agent has to keep apart.

    ``agents`` are the IPv4 addresses and networks of agents: containers do not reach them, and nobody over IPv6.
    ``bridges`` are those of the sessions here, ``ports`` the UDP ports of their tunnels. ``senders`` are the agents
    that may send there, each under what it is known by: ``pinned4``, for one, has (address, MAC, network identifier).
    ``ssh_ports`` are those of containers on the agent's own network, and ``ssh_pinned4`` has (address, MAC, port).
    """

    agents: tuple[str, ...]
    bridges: tuple[str, ...]
    ports: tuple[int, ...]
    senders: dict[str, tuple[tuple[str, ...], ...]]
    ssh_ports: tuple[int, ...] = ()


def isolation_of(slices: Iterable[tuple[SessionPlan, str]], routed: Collection[str]) -> Isolation:
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
            known_by, *rest = _known_by(peer, plan.underlays[agent], routed)
            for prefix, door in _doors(plan, agent):
                senders.setdefault(f"{prefix}{known_by}", set()).add((peer.address, *rest, door))
    return Isolation(
        agents=tuple(one for one in collapsed(addresses) if ":" not in one),
        bridges=tuple(sorted(network.bridge for network in networks if network.bridge)),
        ports=tuple(sorted({network.port for network in networks if network.port is not None})),
        senders={known_by: tuple(sorted(found)) for known_by, found in sorted(senders.items())},
        ssh_ports=tuple(sorted(port for plan, agent in listed for port in plan.host_ports(agent))),
    )


def peers(plan: SessionPlan, agent: str) -> list[Underlay]:
    """Return the other agents of a session, which send to ``agent``; none where they have nothing to send."""
    return [underlay for name, underlay in plan.underlays.items() if name != agent]


def render(isolation: Isolation) -> str:
    """Return the text with which ``nft`` replaces the whole table in one step; it may be loaded again and again."""
    elements = {
        "agents": isolation.agents,
        "same": [f'"{bridge}" . "{bridge}"' for bridge in isolation.bridges],
        "tunnel_ports": map(str, isolation.ports),
        "ssh_ports": map(str, isolation.ssh_ports),
        **{known_by: [" . ".join(sender) for sender in found] for known_by, found in isolation.senders.items()},
    }
    sets = "".join(_set(name, kind, elements.get(name, [])) for name, kind in _SETS.items())
    return f"table inet {TABLE}\ndelete table inet {TABLE}\ntable inet {TABLE} {{\n{sets}{_CHAINS}}}\n"


def _doors(plan: SessionPlan, agent: str) -> list[tuple[str, str]]:
    """Return where peers may send to: the tunnel by its identifier, or the sshds on the agent's own network."""
    if plan.network and plan.network.vni is not None:
        return [("", str(plan.network.vni))]
    return [("ssh_", str(port)) for port in plan.host_ports(agent)]


def _known_by(peer: Underlay, own: Underlay, routed: Collection[str]) -> tuple[str, ...]:
    """Return the set that a peer belongs to, and what it is known by there beside its address and the identifier."""
    family = "6" if ":" in peer.address else "4"
    if own.public_key:
        # The tunnel under it lets a peer send from its own address only.
        return f"encrypted{family}", own.interface
    if peer.mac and peer.address not in routed:
        return f"pinned{family}", peer.mac
    return (f"routed{family}",)


def _set(name: str, kind: str, elements: Iterable[str]) -> str:
    listed = ", ".join(elements)
    return f"    set {name} {{ {kind}; {f'elements = {{ {listed} }}' if listed else ''} }}\n"
