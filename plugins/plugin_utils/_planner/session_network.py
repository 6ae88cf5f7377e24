# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Chooses the network of a session's containers: driver, subnet, names and identifiers."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Sequence

from ...module_utils._model import addressing
from ...module_utils._model.errors import ClusterError
from ...module_utils._model.facts import DEFAULT_DATA_PATH_PORT, AgentFacts
from ...module_utils._model.network import HOST_NETWORK, SWARM, Network, bridge_name, vxlan_link_name
from .._request.run_options import NetworkPools
from .._request.spec import SessionSpec


class PlanningError(ClusterError, ValueError):
    """The session can never start as requested on these agents. The message is one sentence."""


def make_network(
    spec: SessionSpec, chosen: Sequence[AgentFacts], agents: Sequence[AgentFacts], pools: NetworkPools, session_id: str
) -> Network | None:
    """Return the network of a session on the ``chosen`` of all ``agents``; ``None`` for a single container."""
    if spec.cluster_size == 1:
        return None
    if spec.network_driver == HOST_NETWORK and len(chosen) > 1:
        return _make_host_network(chosen)
    if spec.network_driver == SWARM and len(chosen) > 1:
        return _make_overlay(spec, chosen, agents, pools, session_id)
    subnet = _pick_subnet(spec.cluster_size, chosen, pools, session_id)
    name = f"backendai-{spec.name}"
    if len(chosen) == 1:
        bridge = bridge_name(session_id)
        return Network("bridge", name, subnet, addressing.DEFAULT_MTU, bridge)
    vni = addressing.pick_vni(pools.first_vni, pools.last_vni, [v for agent in chosen for v in agent.vnis], session_id)
    if vni is None:
        raise PlanningError(f"session_vni_pool: {pools.first_vni}-{pools.last_vni} has no network identifier left")
    mtu = addressing.vxlan_mtu(_check_underlays(chosen, "a tunnel", tunnelled=True))
    _check_vxlan_port(chosen, agents, pools.vxlan_port)
    return Network("vxlan", name, subnet, mtu, None, vni, pools.vxlan_port, vxlan_link_name(session_id))


def _pick_subnet(containers: int, agents: Sequence[AgentFacts], pools: NetworkPools, session_id: str) -> str:
    """Return a subnet for that many containers that none of the agents uses."""
    used = [network for agent in agents for network in agent.networks]
    subnet = addressing.pick_subnet(pools.network, containers, used, session_id)
    if subnet is None:
        overlap = _describe_overlap(pools.network, agents)
        raise PlanningError(
            f"session_network_pool: {pools.network} has no subnet left for {containers} containers{overlap}"
        )
    return subnet


def _make_overlay(
    spec: SessionSpec, chosen: Sequence[AgentFacts], agents: Sequence[AgentFacts], pools: NetworkPools, session_id: str
) -> Network:
    """Return the overlay network that one of the agents creates as a manager of their swarm.

    Swarm needs an address of its own on every node: it uses the upper half of the subnet, the containers the lower one.
    """
    managing = find_swarm_managers(agents)
    (name,) = {managing[agent.name] for agent in chosen}
    manager = next(agent for agent in agents if agent.name == name)
    if obstacle := find_swarm_obstacle(chosen, manager):
        raise PlanningError(obstacle)
    mtu = addressing.vxlan_mtu(_check_underlays(chosen, "an overlay", tunnelled=True))
    subnet = _pick_subnet(2 * spec.cluster_size + 1, [*chosen, manager], pools, session_id)
    return Network(SWARM, f"backendai-{spec.name}", subnet, mtu, None, swarm_manager=name)


def _make_host_network(chosen: Sequence[AgentFacts]) -> Network:
    """Return the network of the agents themselves, which containers share."""
    underlays = _check_underlays(chosen, "the network driver host", tunnelled=False)
    for agent, (address, _mtu) in zip(chosen, underlays, strict=True):
        if addressing.is_ipv6(address):
            raise PlanningError(
                f"agent_underlay_address: {agent.name} has {address}, the network driver host needs IPv4"
            )
    return Network(HOST_NETWORK, HOST_NETWORK, None, min(mtu for _address, mtu in underlays), None)


def _describe_overlap(pool: str, chosen: Iterable[AgentFacts]) -> str:
    """Return a phrase for the first agent with a network that covers the whole pool; empty if there is none."""
    for agent in chosen:
        for text in agent.networks:
            network = ipaddress.ip_network(text, strict=False)
            if network.version == 4 and network.prefixlen and ipaddress.IPv4Network(pool).subnet_of(network):
                return f": {agent.name} uses {text}"
    return ""


def _check_vxlan_port(chosen: Iterable[AgentFacts], agents: Sequence[AgentFacts], port: int) -> None:
    swarms = _swarm_ports(agents)
    for agent in chosen:
        users = {**swarms.get(agent.name, {}), **agent.udp_ports}
        if port in users:
            raise PlanningError(
                f"session_vxlan_port: {port} is used on {agent.name} by {users[port]}; choose"
                " another one for all sessions"
            )


def _swarm_ports(agents: Sequence[AgentFacts]) -> dict[str, dict[int, str]]:
    """Return the data path port of each agent in a swarm: as its manager reports, else Docker's default."""
    manager_of, by_name = find_swarm_managers(agents), {agent.name: agent for agent in agents}
    ports = {}
    for agent in agents:
        if agent.swarm:
            manager = by_name[manager_of.get(agent.name, agent.name)].swarm
            ports[agent.name] = {(manager and manager.port) or DEFAULT_DATA_PATH_PORT: "Docker Swarm"}
    return ports


def _check_underlays(chosen: Sequence[AgentFacts], purpose: str, *, tunnelled: bool) -> list[tuple[str, int]]:
    """Return (address, MTU) of every agent; raise an error if one is missing, too small, or differs in kind.

    ``purpose`` names in messages what needs the addresses.
    """
    underlays = []
    for agent in chosen:
        if agent.underlay is None:
            raise PlanningError(
                f"agent_underlay_address: no address of {agent.name} is known that its peers could reach"
            )
        least = addressing.MIN_MTU + (addressing.overhead(agent.underlay.address) if tunnelled else 0)
        if agent.underlay.mtu < least:
            actual = f"{agent.underlay.interface} of {agent.name} has an MTU of {agent.underlay.mtu}"
            raise PlanningError(f"agent_underlay_address: {actual}, {purpose} needs at least {least}")
        underlays.append((agent.name, agent.underlay.address, agent.underlay.mtu))
    encrypted = [agent.name for agent in chosen if agent.underlay and agent.underlay.public_key]
    if encrypted and len(encrypted) < len(underlays):
        plain = ", ".join(name for name, _address, _mtu in underlays if name not in encrypted)
        raise PlanningError(
            f"agent_underlay_encryption: {', '.join(encrypted)} has wireguard and {plain} has none;"
            f" {purpose} needs it on both"
        )
    name, address, _mtu = underlays[0]
    for other, peer, _mtu in underlays:
        if addressing.is_ipv6(peer) != addressing.is_ipv6(address):
            both = f"{name} has {address} and {other} has {peer}"
            raise PlanningError(f"agent_underlay_address: {both}, {purpose} needs addresses of one kind")
    return [(address, mtu) for _name, address, mtu in underlays]


_REQUESTED = "session_network_driver: swarm was requested"


def find_swarm_managers(agents: Iterable[AgentFacts]) -> dict[str, str]:
    """Return, for each agent that is a ready node of a swarm, the agent that manages it: the first one by name.

    Agents with the same manager are in the same swarm. A swarm that none of the agents manages is ignored.
    """
    listed = sorted(agents, key=lambda agent: agent.name)
    managers: dict[str, str] = {}
    for manager in (candidate for candidate in listed if candidate.swarm):
        for agent in listed:
            if agent.swarm and manager.swarm and agent.swarm.node in manager.swarm.nodes:
                managers.setdefault(agent.name, manager.name)
    return managers


def describe_missing_swarm(agents: Sequence[AgentFacts]) -> str:
    """Return one sentence for why none of the agents, which have no swarm manager, can use a swarm."""
    outside = [agent.name for agent in agents if agent.swarm is None]
    inside = ", ".join(agent.name for agent in agents if agent.swarm)
    reasons = [f"{', '.join(outside)} {'are' if len(outside) > 1 else 'is'} in no swarm"] if outside else []
    reasons += [f"no agent that can be used manages the swarm of {inside}"] if inside else []
    return f"{_REQUESTED}, and {' and '.join(reasons)}; make them nodes of one swarm, or choose vxlan"


def find_swarm_obstacle(chosen: Iterable[AgentFacts], manager: AgentFacts) -> str:
    """Return one sentence for why the agents cannot use an overlay of the manager's swarm; empty if they can."""
    port = manager.swarm.port if manager.swarm else 0
    for agent in chosen:
        if port in agent.tunnel_ports:
            return (
                f"{_REQUESTED}, its UDP port is {port}, and sessions with a VXLAN at that port run on {agent.name}: end"
                " them first, or choose vxlan"
            )
        if agent.underlay and agent.underlay.public_key:
            return (
                f"{_REQUESTED}, and {agent.name} has agent_underlay_encryption, which an overlay does not use:"
                " choose vxlan"
            )
    return ""
