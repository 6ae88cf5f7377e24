# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The report of firewalls in report mode: what they would have dropped, and what would allow it."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from ipaddress import ip_address
from typing import Any

from ...module_utils._firewall.policy import ENFORCE, REPORT
from ...module_utils._model.plain_data import to_plain
from ...module_utils._model.port_ranges import format_ranges, ranges_of
from ...module_utils._model.reported_traffic import ReportedTraffic
from ...module_utils._model.storage import OPENED_BY
from .._report.record import render_table

_SHOWN_PORTS = 60


@dataclasses.dataclass(frozen=True)
class HostTraffic:
    """What the firewall of a host would have dropped; ``unlisted`` packets are in none of the entries.

    ``mode`` is what it does with such packets, ``error`` why nothing is known of the host. ``storage`` is what it has
    dropped in any mode, on the way from containers to storage services that are closed to them.
    """

    name: str
    mode: str | None = None
    traffic: tuple[ReportedTraffic, ...] = ()
    unlisted: int = 0
    error: str | None = None
    storage: tuple[ReportedTraffic, ...] = ()


def build_traffic_report(hosts: Iterable[HostTraffic]) -> dict[str, Any]:
    """Return the report as plain data; ``allow`` are the entries of ``firewall_allow`` for programs that listen."""
    return {
        "hosts": [
            {**to_plain(host), "allow": _allow_rules(host.traffic), "allow_all": _allow_all_rules(host.traffic)}
            for host in hosts
        ]
    }


def _allow_rules(traffic: Iterable[ReportedTraffic]) -> list[dict[str, Any]]:
    """Return rules for the ports at which a program listens, one for all ports of the same sources."""
    sources: dict[tuple[str, int], set[str]] = {}
    programs: dict[tuple[str, int], str] = {}
    for entry in traffic:
        if entry.program is not None and entry.port is not None:
            sources.setdefault((entry.protocol, entry.port), set()).add(entry.source)
            programs[entry.protocol, entry.port] = entry.program
    ports: dict[tuple[str, tuple[str, ...]], list[int]] = {}
    for (protocol, port), clients in sorted(sources.items()):
        ports.setdefault((protocol, tuple(sorted(clients))), []).append(port)
    return [
        {
            "protocol": protocol,
            "ports": _compact(listed),
            "sources": list(clients),
            "programs": sorted({programs[protocol, port] for port in listed}),
        }
        for (protocol, clients), listed in ports.items()
    ]


def _allow_all_rules(traffic: Iterable[ReportedTraffic]) -> list[dict[str, Any]]:
    """Return the sources of protocols without ports, by protocol: they can only be allowed with everything else."""
    sources: dict[str, set[str]] = {}
    for entry in traffic:
        if entry.port is None and not ip_address(entry.source).is_unspecified:
            sources.setdefault(entry.protocol, set()).add(entry.source)
    return [{"protocol": protocol, "sources": sorted(sources[protocol])} for protocol in sorted(sources)]


def _compact(ports: Iterable[int]) -> list[str]:
    return format_ranges(ranges_of(ports)).split(",")


def render_traffic(report: Mapping[str, Any]) -> list[str]:
    """Return the report as lines: a table of what would be dropped, what would allow it, and the state of each host."""
    rows = [row for host in report["hosts"] for row in _rows(host)]
    table = render_table([("HOST", "SOURCE", "PORT", "PROTOCOL", "PROGRAM", "PACKETS"), *rows]) if rows else []
    closed = [_storage_line(host, entry) for host in report["hosts"] for entry in host["storage"]]
    return [*table, *_inventory_lines(report["hosts"]), *closed, *(_state(host) for host in report["hosts"])]


def _storage_line(host: Mapping[str, Any], entry: Mapping[str, Any]) -> str:
    service = f" ({entry['program']})" if entry["program"] else ""
    return (
        f"{host['name']}: {entry['packets']} packets of the container {entry['source']} to {entry['destination']},"
        f" {entry['protocol']} {entry['port']}{service}, were dropped: {OPENED_BY} opens it."
    )


def _rows(host: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """Return the rows of a host; the ports at which nothing listens share one for each source."""
    rows: dict[tuple[str, str, str, int | None], list[Mapping[str, Any]]] = {}
    for entry in host["traffic"]:
        program, port = _describe_program(entry), entry["port"]
        listens = entry["program"] is not None or port is None
        rows.setdefault((entry["source"], entry["protocol"], program, port if listens else None), []).append(entry)
    return [
        (
            host["name"],
            source,
            _format_ports(entry["port"] for entry in entries),
            protocol,
            program,
            str(sum(entry["packets"] for entry in entries)),
        )
        for (source, protocol, program, _port), entries in rows.items()
    ]


def _describe_program(entry: Mapping[str, Any]) -> str:
    if entry["destination"] is not None:
        return f"routed to {entry['destination']}"
    return str(entry["program"] or ("nothing listens" if entry["port"] is not None else "-"))


def _format_ports(ports: Iterable[int | None]) -> str:
    listed = [port for port in ports if port is not None]
    text = ",".join(_compact(listed)) if listed else "-"
    return text if len(text) <= _SHOWN_PORTS else f"{len(listed)} ports"


def _inventory_lines(hosts: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return the lines of inventory that would allow the traffic, once for all hosts that need the same."""
    names: dict[tuple[str, ...], list[str]] = {}
    for host in hosts:
        rules = (*map(_rule_line, host["allow"]), *map(_allow_all_line, host["allow_all"]))
        names.setdefault(rules, []).append(host["name"])
    return [
        line
        for rules, listed in names.items()
        if rules
        for line in (f"What would allow it, in the inventory at {', '.join(listed)}:", "firewall_allow:", *rules)
    ]


def _rule_line(rule: Mapping[str, Any]) -> str:
    ports, programs = ", ".join(rule["ports"]), ", ".join(rule["programs"])
    rest = f"ports: [{ports}], sources: {_yaml(rule['sources'])}"
    return f"  - {{protocol: {rule['protocol']}, {rest}}}  # {programs}"


def _allow_all_line(rule: Mapping[str, Any]) -> str:
    return f"  # - {{protocol: any, sources: {_yaml(rule['sources'])}}}  # {rule['protocol']}, and everything else"


def _yaml(addresses: Sequence[str]) -> str:
    """Return addresses as a list of YAML, in which some of IPv6 would be numbers."""
    return f"[{', '.join(repr(address) if ':' in address else address for address in addresses)}]"


def _state(host: Mapping[str, Any]) -> str:
    name = host["name"]
    if host["error"]:
        return f"{name}: unknown: {host['error']}."
    if host["mode"] == ENFORCE:
        return f"{name} is closed: firewall_mode is enforce, and the kernel log has what is dropped."
    if host["mode"] != REPORT:
        return f"{name} is open: it has no firewall."
    packets = sum(entry["packets"] for entry in host["traffic"]) + host["unlisted"]
    unlisted = f", {host['unlisted']} of them not listed" if host["unlisted"] else ""
    return f"{name} is open: firewall_mode is report; {packets} packets would have been dropped{unlisted}."
