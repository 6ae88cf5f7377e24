# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whether an agent is set apart from the rest of the world, by the network around it: what no rule of its own mends."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from ipaddress import ip_address, ip_network
from typing import Any

from .._model.addressing import bracketed

# TCP ports at which the engine meets other nodes of a Docker Swarm, with certificates of the swarm's own.
SWARM_PORTS = (2377, 7946)


@dataclasses.dataclass(frozen=True)
class NetworkExposure:
    """What an agent has around it.

    ``addresses`` are its own, of both families, without those of the engine's bridges; ``networks`` are those that its
    underlay's interface is directly in. ``engine`` is where its Docker engine takes TCP connections (address, port).
    ``local_ipv6`` are the interfaces with an IPv6 address of whatever scope, and ``filtered6`` says whether a rule of
    some sort drops what comes in over IPv6 unasked.
    """

    addresses: tuple[str, ...]
    networks: tuple[str, ...]
    engine: tuple[tuple[str, int], ...]
    local_ipv6: tuple[str, ...]
    filtered6: bool


@dataclasses.dataclass(frozen=True)
class Finding:
    """One thing that leaves an agent open; ``message`` is a sentence without its full stop."""

    kind: str
    message: str


def audit(around: NetworkExposure, others: Mapping[str, Mapping[str, str]]) -> list[Finding]:
    """Return what leaves the agent open. ``others`` are addresses by host, for ``managers`` and ``users``."""
    return [
        *_public(around.addresses),
        *_shared(around.networks, others),
        *(_engine(address, port) for address, port in around.engine if port not in SWARM_PORTS),
        *_unfiltered(around),
    ]


def _public(addresses: Iterable[str]) -> list[Finding]:
    public = [address for address in addresses if ip_address(address).is_global]
    if not public:
        return []
    said = (
        f"it has the public address {', '.join(public)}, at which the whole world can try it: put agents on a private"
    )
    return [Finding("public_address", f"{said} network that only managers and gateways reach from elsewhere")]


def _shared(networks: Sequence[str], others: Mapping[str, Mapping[str, str]]) -> list[Finding]:
    ranges = [ip_network(network) for network in networks]
    found = {
        group: [f"{host} ({address})" for host, address in hosts.items() if _in_any(address, ranges)]
        for group, hosts in others.items()
    }
    said = " and ".join(f"{group} {', '.join(hosts)}" for group, hosts in found.items() if hosts)
    if not said:
        return []
    where = f"the agents' own network {', '.join(networks)}"
    advice = "hosts there can forge agents' addresses, so give agents a network of their own"
    return [Finding("shared_network", f"{said} share {where}: {advice}")]


def _engine(address: str, port: int) -> Finding:
    place = f"{bracketed(address)}:{port}"
    if ip_address(address).is_loopback:
        who = "every user of this host, and every container that shares its network, is root here who connects there"
        return Finding("engine_socket", f"the Docker engine listens at {place}, on this host alone: {who}")
    who = "unless it asks for certificates, whoever connects there is root of this agent"
    return Finding("engine_socket", f"the Docker engine listens at {place}: {who}; take that -H or hosts away")


def _unfiltered(around: NetworkExposure) -> list[Finding]:
    if around.filtered6 or not around.local_ipv6:
        return []
    said = f"IPv6 is up on {', '.join(around.local_ipv6)} and no rule drops what comes in over it"
    return [Finding("ipv6", f"{said}: filter it, or switch it off (net.ipv6.conf.all.disable_ipv6)")]


def _in_any(address: str, ranges: Iterable[Any]) -> bool:
    return any(ip_address(address) in one for one in ranges)


def filters_ipv6(ruleset: Mapping[str, Any], table: str, chain: str) -> bool:
    """Return whether a ruleset, as ``nft -j list ruleset`` has it, drops what comes in over IPv6 unasked.

    It does when it has our ``chain`` in our ``table``, or a chain of the hook ``input`` that drops by its policy or
    ends with a rule for everything else.
    """
    entries = ruleset.get("nftables", [])
    chains = [one["chain"] for one in entries if "chain" in one and one["chain"]["family"] in ("inet", "ip6")]
    rules = [one["rule"] for one in entries if "rule" in one]
    return any(
        (one["table"], one["name"]) == (table, chain)
        or (one.get("hook") == "input" and (one.get("policy") == "drop" or _ends_with_drop(one, rules)))
        for one in chains
    )


def _ends_with_drop(chain: Mapping[str, Any], rules: Iterable[Mapping[str, Any]]) -> bool:
    """Return whether the last rule of a chain drops or refuses whatever comes to it."""
    place = (chain["family"], chain["table"], chain["name"])
    mine = [rule for rule in rules if (rule["family"], rule["table"], rule["chain"]) == place]
    said = mine[-1]["expr"] if mine else []
    return any("drop" in one or "reject" in one for one in said) and not any("match" in one for one in said)
