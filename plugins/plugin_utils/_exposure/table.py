# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Renders the exposure report as text: a table of all addresses, and a line for each finding."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ...module_utils._model import port_ranges
from .._report.record import render_table

_SHOWN_PORTS = 60


def render_report(report: Mapping[str, Any]) -> list[str]:
    """Return the whole report: table, findings, expected ports, inconclusive checks, checklist."""
    return [
        *render_matrix(report["probed"], report["findings"], report["expected"]),
        *(_format_finding(finding) for finding in report["findings"]),
        *(_format_expected(port) for port in report["expected"]),
        *(_format_inconclusive(entry) for entry in report["inconclusive"]),
        *(_format_not_enforced(host) for host in report["not_enforced"]),
        *(_format_requirement(entry) for entry in report["checklist"]),
        *([_format_summary(report)] if report["ok"] else []),
    ]


def render_matrix(
    probed: Iterable[Mapping[str, Any]], findings: Sequence[Mapping[str, Any]], expected: Sequence[Mapping[str, Any]]
) -> list[str]:
    """Return a table of scanned addresses: for each protocol, the number of findings; ``-`` for none."""
    rows = [["from", "to", "address", "kind", "next hop", "tcp ports", "tcp", "udp", "icmp"]]
    for entry in probed:
        where = [entry["probe_host"], entry["target"], entry["address"], entry["kind"], entry["next_hop"] or "-"]
        cells = [_format_cell(entry, protocol, findings, expected) for protocol in ("tcp", "udp", "icmp")]
        rows.append([*where, _shorten(entry["ports"]), *cells])
    return render_table(rows) if len(rows) > 1 else []


def _format_cell(
    entry: Mapping[str, Any],
    protocol: str,
    findings: Sequence[Mapping[str, Any]],
    expected: Sequence[Mapping[str, Any]],
) -> str:
    if protocol not in entry["protocols"]:
        return "?"
    place = (entry["probe_host"], entry["target"], entry["address"], protocol)
    matching = [finding for finding in findings if _finding_key(finding) == place]
    cells = []
    for state in dict.fromkeys(finding["state"] for finding in matching):
        ports = [finding["ports"] for finding in matching if finding["state"] == state]
        number = sum(port_ranges.count_ports(port_ranges.parse_ranges(text)) for text in ports if text)
        cells.append(f"{number} {state}" if number else state)
    fine = protocol == "tcp" and entry["kind"] == "gateway"
    due = sum(1 for port in expected if fine and port["target"] == entry["target"] and port["open"])
    return ", ".join([*cells, *([f"{due} as expected"] if due else [])]) or "-"


def _finding_key(finding: Mapping[str, Any]) -> tuple[str, str, str, str]:
    return finding["probe_host"], finding["target"], finding["address"], finding["protocol"]


def _format_finding(finding: Mapping[str, Any]) -> str:
    port = f"{finding['protocol']} {_shorten(finding['ports'])}".strip()
    place = f"{finding['probe_host']} -> {finding['target']} ({finding['address']})"
    return f"{place} {port} {finding['state']}: {finding['description']}."


def _format_expected(port: Mapping[str, Any]) -> str:
    state = "open, as expected" if port["open"] else "not open, but expected to be"
    return f"{port['target']} {port['protocol']} {port['port']} ({port['description']}): {state}."


def _format_inconclusive(entry: Mapping[str, Any]) -> str:
    place = f"{entry['target']} ({entry['address']})" if entry["address"] else entry["target"]
    source = f"{entry['probe_host']} -> " if entry["probe_host"] else ""
    return f"inconclusive: {source}{place}: {entry['reason']}."


def _format_not_enforced(host: str) -> str:
    return (
        f"{host} is not closed: its firewall is in report mode and drops nothing. See firewall_report, then provision"
        " it with firewall_mode: enforce."
    )


def _format_requirement(entry: Mapping[str, Any]) -> str:
    mark = {True: "✓", False: "✗", None: "? not checked:"}[entry["ok"]]
    return f"{mark} {entry['requirement']}" + (f": {entry['reason']}." if entry["reason"] else "")


def _format_summary(report: Mapping[str, Any]) -> str:
    addresses = {(entry["target"], entry["address"]) for entry in report["probed"]}
    return f"Only the gateway answers {', '.join(report['probe_hosts'])}, at {len(addresses)} addresses."


def _shorten(ports: str) -> str:
    """Return a list of ports, cut after the last that fits."""
    if len(ports) <= _SHOWN_PORTS:
        return ports
    return f"{ports[:_SHOWN_PORTS].rpartition(',')[0]},…"
