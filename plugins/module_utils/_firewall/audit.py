# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Checks the network of an agent: for exposure that its rules cannot prevent, and whether its zones are apart."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from ipaddress import ip_address, ip_network
from typing import Any, NamedTuple

from .._model.addressing import bracketed
from .policy import COMPUTE, MANAGEMENT

# TCP ports of the engine's that a host in a Docker Swarm has, protected by the certificates of the swarm.
SWARM_PORTS = (2377, 7946)


class NetworkExposure(NamedTuple):
    """Facts about an agent's network that the audit needs.

    ``addresses`` are its own, of both families, without those of the engine's bridges; ``networks`` are those that its
    underlay's interface is directly in. ``engine`` is where its Docker engine accepts TCP connections (address, port).
    ``local_ipv6`` are the interfaces with an IPv6 address of any scope, and ``filtered6`` is whether some rule drops
    unsolicited incoming IPv6.
    """

    addresses: tuple[str, ...]
    networks: tuple[str, ...]
    engine: tuple[tuple[str, int], ...]
    local_ipv6: tuple[str, ...]
    filtered6: bool


class Zones(NamedTuple):
    """Management and compute of an agent: the networks that are declared, and the agent's own addresses.

    ``ssh_address`` is where this connection reaches it, empty without SSH; ``underlay_address`` is the one for peers,
    empty if no interface has it. ``interfaces`` are the addresses of each interface.
    """

    management: tuple[str, ...]
    compute: tuple[str, ...]
    ssh_address: str
    underlay_address: str
    interfaces: Mapping[str, tuple[str, ...]]


@dataclasses.dataclass(frozen=True)
class Finding:
    """One exposure of an agent; ``message`` is a sentence without its full stop."""

    kind: str
    message: str


def audit(around: NetworkExposure, others: Mapping[str, Mapping[str, str]]) -> list[Finding]:
    """Return the exposures of an agent. ``others`` are addresses by host, for ``managers`` and ``users``."""
    return [
        *audit_public_addresses(around.addresses),
        *_audit_shared_networks(around.networks, others),
        *(_audit_docker_socket(address, port) for address, port in around.engine if port not in SWARM_PORTS),
        *_audit_ipv6(around),
    ]


def audit_zones(zones: Zones) -> list[Finding]:
    """Return why management and compute of an agent are not apart; nothing where neither is declared."""
    if not zones.management and not zones.compute:
        return []
    if not zones.management or not zones.compute:
        missing, given = (MANAGEMENT, COMPUTE) if zones.compute else (COMPUTE, MANAGEMENT)
        return [
            Finding("half_declared", f"{given} needs {missing} beside it, which is empty: declare both, or neither")
        ]
    management, compute = ([ip_network(text) for text in texts] for texts in (zones.management, zones.compute))
    return _audit_overlap(management, compute) or [
        *_audit_ssh(zones.ssh_address, management),
        *_audit_underlay(zones.underlay_address, compute),
        *_audit_interfaces(zones.interfaces, management, compute),
    ]


def _audit_overlap(management: Sequence[Any], compute: Sequence[Any]) -> list[Finding]:
    pairs = [
        f"{one} and {other}"
        for one in management
        for other in compute
        if one.version == other.version and one.overlaps(other)
    ]
    problem = f"{MANAGEMENT} and {COMPUTE} overlap: {', '.join(pairs)}"
    return [Finding("overlap", f"{problem}; give management and compute networks of their own")] if pairs else []


def _audit_ssh(address: str, management: Sequence[Any]) -> list[Finding]:
    if not address or _is_in_any(address, management):
        return []
    problem = f"SSH reaches it at {address}, which is not in {MANAGEMENT} ({', '.join(map(str, management))})"
    return [Finding("ssh_address", f"{problem}: set ansible_host to its address there")]


def _audit_underlay(address: str, compute: Sequence[Any]) -> list[Finding]:
    if address and _is_in_any(address, compute):
        return []
    problem = f"its underlay address ({address or 'none'}) is not in {COMPUTE} ({', '.join(map(str, compute))})"
    return [Finding("underlay_address", f"{problem}: set agent_underlay_address to its address there")]


def _audit_interfaces(
    interfaces: Mapping[str, tuple[str, ...]], management: Sequence[Any], compute: Sequence[Any]
) -> list[Finding]:
    findings = []
    for name, addresses in interfaces.items():
        both = [[address for address in addresses if _is_in_any(address, ranges)] for ranges in (management, compute)]
        if all(both):
            problem = f"{name} has addresses of management ({', '.join(both[0])}) and of compute ({', '.join(both[1])})"
            findings.append(Finding("shared_interface", f"{problem}: give each an interface or a VLAN of its own"))
    return findings


def audit_public_addresses(addresses: Iterable[str]) -> list[Finding]:
    """Return the public addresses of an agent as one finding."""
    public = [address for address in addresses if ip_address(address).is_global]
    if not public:
        return []
    problem = f"it has the public address {', '.join(public)}, reachable from everywhere: put agents on a private"
    return [Finding("public_address", f"{problem} network that only managers and gateways reach from outside")]


def _audit_shared_networks(networks: Sequence[str], others: Mapping[str, Mapping[str, str]]) -> list[Finding]:
    ranges = [ip_network(network) for network in networks]
    hosts_by_group = {
        group: [f"{host} ({address})" for host, address in hosts.items() if _is_in_any(address, ranges)]
        for group, hosts in others.items()
    }
    sharing = " and ".join(f"{group} {', '.join(hosts)}" for group, hosts in hosts_by_group.items() if hosts)
    if not sharing:
        return []
    where = f"the agents' own network {', '.join(networks)}"
    advice = "hosts there can forge agents' addresses, so give agents a network of their own"
    return [Finding("shared_network", f"{sharing} share {where}: {advice}")]


def _audit_docker_socket(address: str, port: int) -> Finding:
    place = f"{bracketed(address)}:{port}"
    if ip_address(address).is_loopback:
        consequence = "every user of this host, and every container that shares its network, can become root there"
        return Finding("engine_socket", f"the Docker engine listens at {place}, on this host alone: {consequence}")
    consequence = "unless it requires certificates, every client is root on this agent"
    return Finding(
        "engine_socket", f"the Docker engine listens at {place}: {consequence}; remove that -H or hosts entry"
    )


def _audit_ipv6(around: NetworkExposure) -> list[Finding]:
    if around.filtered6 or not around.local_ipv6:
        return []
    problem = f"IPv6 is up on {', '.join(around.local_ipv6)} and no rule drops incoming IPv6"
    return [Finding("ipv6", f"{problem}: filter it, or disable it (net.ipv6.conf.all.disable_ipv6)")]


def _is_in_any(address: str, ranges: Iterable[Any]) -> bool:
    return any(ip_address(address) in network for network in ranges)


def filters_ipv6(ruleset: Mapping[str, Any], table: str, chain: str) -> bool:
    """Return whether a ruleset in the format of ``nft -j list ruleset`` drops unsolicited incoming IPv6.

    It has our ``chain`` in our ``table``, or a chain of the hook ``input`` with a policy or last rule that drops
    everything else.
    """
    entries = ruleset.get("nftables", [])
    chains = [entry["chain"] for entry in entries if "chain" in entry and entry["chain"]["family"] in ("inet", "ip6")]
    rules = [entry["rule"] for entry in entries if "rule" in entry]
    return any(
        (listed_chain["table"], listed_chain["name"]) == (table, chain)
        or (
            listed_chain.get("hook") == "input"
            and (listed_chain.get("policy") == "drop" or _ends_with_drop(listed_chain, rules))
        )
        for listed_chain in chains
    )


def _ends_with_drop(chain: Mapping[str, Any], rules: Iterable[Mapping[str, Any]]) -> bool:
    """Return whether the last rule of a chain drops or rejects every packet."""
    place = (chain["family"], chain["table"], chain["name"])
    mine = [rule for rule in rules if (rule["family"], rule["table"], rule["chain"]) == place]
    statements = mine[-1]["expr"] if mine else []
    return any("drop" in statement or "reject" in statement for statement in statements) and not any(
        "match" in statement for statement in statements
    )
