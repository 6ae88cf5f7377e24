# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A report of what is open to outsiders, for people: a table of all addresses, and a line for each thing to know."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ...module_utils._model import port_ranges
from .._report.record import render_table

_SHOWN_PORTS = 60


def render_report(report: Mapping[str, Any]) -> list[str]:
    """Return the whole report: the table, what must not be open, what has to be, what was not proven."""
    return [
        *render_matrix(report["tried"], report["findings"], report["expected"]),
        *(_finding(one) for one in report["findings"]),
        *(_expected(one) for one in report["expected"]),
        *(_inconclusive(one) for one in report["inconclusive"]),
        *([_summary(report)] if report["ok"] else []),
    ]


def render_matrix(
    tried: Iterable[Mapping[str, Any]], findings: Sequence[Mapping[str, Any]], expected: Sequence[Mapping[str, Any]]
) -> list[str]:
    """Return a table of what was tried: of each protocol, how many ports answer that must not; ``-`` for none."""
    rows = [["from", "to", "address", "kind", "next hop", "tcp ports", "tcp", "udp", "icmp"]]
    for one in tried:
        where = [one["outsider"], one["target"], one["address"], one["kind"], one["next_hop"] or "-"]
        cells = [_cell(one, protocol, findings, expected) for protocol in ("tcp", "udp", "icmp")]
        rows.append([*where, _short(one["ports"]), *cells])
    return render_table(rows) if len(rows) > 1 else []


def _cell(
    one: Mapping[str, Any],
    protocol: str,
    findings: Sequence[Mapping[str, Any]],
    expected: Sequence[Mapping[str, Any]],
) -> str:
    if protocol not in one["protocols"]:
        return "?"
    place = (one["outsider"], one["target"], one["address"], protocol)
    here = [found for found in findings if _place(found) == place]
    said = []
    for state in dict.fromkeys(found["state"] for found in here):
        ports = [found["ports"] for found in here if found["state"] == state]
        number = sum(port_ranges.count_ports(port_ranges.parse_ranges(text)) for text in ports if text)
        said.append(f"{number} {state}" if number else state)
    fine = protocol == "tcp" and one["kind"] == "gateway"
    due = sum(1 for door in expected if fine and door["target"] == one["target"] and door["open"])
    return ", ".join([*said, *([f"{due} as expected"] if due else [])]) or "-"


def _place(found: Mapping[str, Any]) -> tuple[str, str, str, str]:
    return found["outsider"], found["target"], found["address"], found["protocol"]


def _finding(found: Mapping[str, Any]) -> str:
    door = f"{found['protocol']} {_short(found['ports'])}".strip()
    return f"{found['outsider']} -> {found['target']} ({found['address']}) {door} {found['state']}: {found['description']}."


def _expected(door: Mapping[str, Any]) -> str:
    seen = "open, as it has to be" if door["open"] else "not open, though it may be"
    return f"{door['target']} {door['protocol']} {door['port']} ({door['description']}): {seen}."


def _inconclusive(one: Mapping[str, Any]) -> str:
    place = f"{one['target']} ({one['address']})" if one["address"] else one["target"]
    who = f"{one['outsider']} -> " if one["outsider"] else ""
    return f"not proven: {who}{place}: {one['why']}."


def _summary(report: Mapping[str, Any]) -> str:
    addresses = {(one["target"], one["address"]) for one in report["tried"]}
    return f"Nothing but the gateway answers {', '.join(report['outsiders'])}, at {len(addresses)} addresses."


def _short(ports: str) -> str:
    """Return a list of ports, long ones cut after the last that fits."""
    if len(ports) <= _SHOWN_PORTS:
        return ports
    return f"{ports[:_SHOWN_PORTS].rpartition(',')[0]},…"
