# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the isolation of the sessions on one agent has to close, and who may send to it; input of the rules."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable

from .._model.addressing import collapse, is_ipv6
from .._model.network import Underlay
from .._model.plan import SessionPlan
from .._model.storage import StorageService
from .._network.pins import Pin
from .egress import NOTHING_CLOSED, EgressPolicy
from .policy import filter_family


@dataclasses.dataclass(frozen=True)
class IsolationPolicy:
    """Input of the isolation rules of one agent.

    ``agents`` are the IPv4 addresses and networks of agents, which containers must not reach; containers have no IPv6.
    ``bridges`` are those of the sessions here, ``ports`` the UDP ports of their tunnels. ``peers`` are the allowed
    senders by the set that matches them: ``pinned4``, for example, has (address, MAC, VNI). ``ssh_ports`` are those of
    containers in the agent's own network; ``ssh_pinned4`` has (address, MAC, port). ``pins`` are the pinned
    ports of containers on the default network. ``egress`` and ``storage`` are what these may not reach,
    ``name_servers`` what they may always ask.
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
    storage: tuple[StorageService, ...] = ()


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
