# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Validates the ``firewall_*`` variables: which hosts may open connections to a host."""

from __future__ import annotations

import dataclasses
import ipaddress
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from .._model.addressing import collapse, is_ipv6
from .._model.port_ranges import format_ranges, parse_ranges
from .._model.validation import ValidationError, ValidationErrors, choice, integer, list_of_mappings, string_list

ENFORCE, REPORT = "enforce", "report"
MODES = (ENFORCE, REPORT)

MANAGEMENT, COMPUTE = "agent_management_networks", "agent_compute_networks"
"""The variables that declare the networks of an agent for SSH, and those for sessions."""


@dataclasses.dataclass(frozen=True)
class AllowRule:
    """Additional allowed traffic. ``sources`` are networks, empty for all; ``ports`` are like ``22`` or ``9100-9199``.

    Protocol ``any`` allows all traffic of the sources, and has no ports.
    """

    protocol: str
    ports: tuple[str, ...]
    sources: tuple[str, ...]

    def opens(self, protocol: str, port: int) -> bool:
        """Return whether somebody may connect to a port."""
        ranges = parse_ranges(",".join(self.ports)) if self.protocol == protocol else ()
        return self.protocol == "any" or any(first <= port <= last for first, last in ranges)


@dataclasses.dataclass(frozen=True)
class Firewall:
    """Sources that may open connections to a host, as networks of both families without overlaps.

    ``ssh_sources`` reach its ``ssh_ports``, ``gateways`` the published ports of sessions, ``agents`` that of
    WireGuard. ``interfaces`` are those that it applies to, empty for all of them. In the ``mode`` ``report`` it
    counts and logs what it would drop, and drops nothing. Where ``management`` and ``compute`` are declared, SSH is
    accepted only at addresses of the former, tunnels and host networks of sessions only at those of the latter.
    """

    ssh_sources: tuple[str, ...]
    gateways: tuple[str, ...] = ()
    agents: tuple[str, ...] = ()
    ssh_ports: tuple[int, ...] = (22,)
    allow: tuple[AllowRule, ...] = ()
    interfaces: tuple[str, ...] = ()
    mode: str = ENFORCE
    management: tuple[str, ...] = ()
    compute: tuple[str, ...] = ()


def filter_family(addresses: Iterable[str], family: int) -> list[str]:
    """Return the addresses and networks of IPv4 (4) or IPv6 (6)."""
    return [address for address in addresses if is_ipv6(address) == (family == 6)]


PROTOCOLS = ("tcp", "udp", "any")

# Limits of firewall_confirm_timeout, in seconds.
MIN_CONFIRM_SECONDS, MAX_CONFIRM_SECONDS = 5, 3600


def parse_firewall(options: Mapping[str, Any], default_sources: Sequence[str], connection: Sequence[str]) -> Firewall:
    """Return the firewall that ``firewall_*`` variables (by their names without the prefix) describe.

    Without ``ssh_sources``, they are ``default_sources`` and the client of the SSH ``connection`` (client address,
    client port, own address, own port; empty if Ansible does not use SSH). Raises :class:`ValidationError` with a
    sentence for each problem.
    """
    problems = ValidationErrors()
    ssh_sources = parse_networks(problems, "firewall_ssh_sources", options.get("ssh_sources") or ())
    if not ssh_sources:
        ssh_sources = parse_networks(problems, "firewall_ssh_sources", [*default_sources, *connection[:1]])
    if not ssh_sources and not problems:
        problems.add(
            "firewall_ssh_sources is empty, and this connection has no client address: list the addresses of the hosts"
            " that operators use, or no login would be possible"
        )
    ports = _parse_ports(problems, "firewall_ssh_ports", options.get("ssh_ports") or ())
    firewall = Firewall(
        ssh_sources=ssh_sources,
        gateways=parse_networks(problems, "firewall_gateways", options.get("gateways") or ()),
        agents=parse_networks(problems, "firewall_agents", options.get("agents") or ()),
        ssh_ports=ports or tuple(int(port) for port in connection[3:4]) or (22,),
        allow=_parse_allow_rules(problems, options.get("allow") or ()),
        interfaces=tuple(sorted({*string_list(problems, "firewall_interfaces", options.get("interfaces") or ())})),
        mode=choice(problems, "firewall_mode", options.get("mode") or ENFORCE, MODES),
        management=parse_networks(problems, MANAGEMENT, options.get("management") or ()),
        compute=parse_networks(problems, COMPUTE, options.get("compute") or ()),
    )
    if problems:
        raise ValidationError(str(problems))
    return firewall


def check_firewall(firewall: Firewall) -> None:
    """Raise :class:`ValidationError` for a stored firewall that :func:`parse_firewall` would not have returned."""
    parse_firewall(dataclasses.asdict(firewall), (), ())


def parse_timeout(value: Any) -> int:
    """Return ``firewall_confirm_timeout``, in seconds; raises :class:`ValidationError`."""
    problems = ValidationErrors()
    seconds = integer(problems, "firewall_confirm_timeout", value, MIN_CONFIRM_SECONDS, MAX_CONFIRM_SECONDS)
    if problems:
        raise ValidationError(str(problems))
    return seconds


def parse_networks(problems: ValidationErrors, option: str, value: Any) -> tuple[str, ...]:
    """Return addresses and networks as networks without overlaps, IPv4 first."""
    parsed = [_parse_network(problems, option, entry) for entry in string_list(problems, option, value) if entry]
    return collapse(str(network) for network in parsed if network is not None)


def _parse_network(
    problems: ValidationErrors, option: str, value: str
) -> ipaddress.IPv4Network | ipaddress.IPv6Network | None:
    try:
        return ipaddress.ip_network(value)
    except ValueError as error:
        problems.add_invalid(option, value, _WITH_HOST_BITS if "host bits" in str(error) else _NO_NETWORK)
        return None


_WITH_HOST_BITS = "is a network with host bits: it must be the network's own address, such as 10.0.0.0/8"
_NO_NETWORK = "must be an address or a network, such as 192.0.2.7 or 192.0.2.0/24"


def _parse_allow_rules(problems: ValidationErrors, value: Any) -> tuple[AllowRule, ...]:
    rules = []
    for where, entry in list_of_mappings(problems, "firewall_allow", value, ("protocol", "ports", "sources")):
        protocol = choice(problems, f"{where}.protocol", entry.get("protocol", "tcp"), PROTOCOLS)
        ports = parse_port_ranges(problems, f"{where}.ports", entry.get("ports") or ())
        sources = parse_networks(problems, f"{where}.sources", entry.get("sources") or ())
        if protocol == "any" and (ports or not sources):
            problems.add(f"{where}: protocol any requires sources and has no ports")
        if protocol != "any" and not ports:
            problems.add(f"{where}.ports is required for {protocol}")
        rules.append(AllowRule(protocol, ports, sources))
    return tuple(rules)


def _parse_ports(problems: ValidationErrors, option: str, value: Any) -> tuple[int, ...]:
    listed = string_list(problems, option, [value] if isinstance(value, int) else value)
    return tuple(sorted({integer(problems, option, port, 1, 65535) for port in listed if port}))


def parse_port_ranges(problems: ValidationErrors, option: str, value: Any) -> tuple[str, ...]:
    """Return ports and port ranges without overlaps, such as ``22`` and ``9100-9199``."""
    listed = ",".join(filter(None, string_list(problems, option, [value] if isinstance(value, int) else value)))
    try:
        return tuple(format_ranges([bounds]) for bounds in parse_ranges(listed)) if listed else ()
    except ValueError as error:
        problems.add_invalid(option, listed, str(error))
        return (listed,)
