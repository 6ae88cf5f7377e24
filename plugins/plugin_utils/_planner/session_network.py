# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Chooses the network of a session's containers: driver, subnet, names and identifiers."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Mapping, Sequence

from ...module_utils._model import addressing
from ...module_utils._model.errors import ClusterError
from ...module_utils._model.facts import AgentFacts
from ...module_utils._model.network import HOST_NETWORK, Network, bridge_name, vxlan_link_name
from .._request.run_options import NetworkPools
from .._request.spec import SessionSpec


class PlanningError(ClusterError, ValueError):
    """The session can never start as requested on these agents. The message is one sentence."""


class UnfitAgentsError(PlanningError):
    """An agent that was chosen cannot hold main1, and another one may: ``problems`` has why, by agent, as phrases."""

    def __init__(self, problems: Mapping[str, str]) -> None:
        super().__init__(next(iter(problems.values())))
        self.problems = problems


def make_network(
    spec: SessionSpec, chosen: Sequence[AgentFacts], pools: NetworkPools, session_id: str
) -> Network | None:
    """Return the network of a session on the ``chosen`` agents; ``None`` for a single container."""
    if spec.cluster_size == 1:
        return None
    if spec.network_driver == HOST_NETWORK and len(chosen) > 1:
        return _make_host_network(chosen)
    subnet = _pick_subnet(spec.cluster_size, chosen, pools, session_id)
    name = f"backendai-{spec.name}"
    if len(chosen) == 1:
        bridge = bridge_name(session_id)
        return Network("bridge", name, subnet, addressing.DEFAULT_MTU, bridge)
    vni = addressing.pick_vni(pools.first_vni, pools.last_vni, [v for agent in chosen for v in agent.vnis], session_id)
    if vni is None:
        raise PlanningError(f"session_vni_pool: {pools.first_vni}-{pools.last_vni} has no network identifier left")
    mtu = addressing.vxlan_mtu(_check_underlays(chosen, "a tunnel", tunnelled=True))
    _check_vxlan_port(chosen, pools.vxlan_port)
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


def _check_vxlan_port(chosen: Iterable[AgentFacts], port: int) -> None:
    for agent in chosen:
        if port in agent.udp_ports:
            raise PlanningError(
                f"session_vxlan_port: {port} is used on {agent.name} by {agent.udp_ports[port]}; choose"
                " another one for all sessions"
            )


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
