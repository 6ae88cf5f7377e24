# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What is open to outsiders: what is tried, and one report of what came of it."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ...module_utils._exposure.model import (
    CLOSED,
    GATEWAY,
    ICMP_ERROR,
    OPEN,
    PROBE_TIMEOUT,
    STINT_SECONDS,
    ProbeBatch,
    ProbedHost,
)
from ...module_utils._model import port_ranges

# UDP ports that are tried everywhere: those of tunnels and of Docker Swarm, and of services that many hosts have.
DEFAULT_UDP_PORTS = (53, 111, 123, 161, 4789, 7946)


# Why silence proves nothing.
NOBODY = "nobody on the segment has this address"

# What each state of a door means, for people.
STATE_DESCRIPTIONS = {
    OPEN: "it takes connections",
    CLOSED: "it refuses, so nothing filters what is sent there",
    ICMP_ERROR: "it answers with an ICMP error, so not everything is filtered",
}


def split_into_batches(targets: Iterable[ProbedHost], ports: port_ranges.Ranges, rate: int) -> list[ProbeBatch]:
    """Return what is tried, in parts that each take about a minute where nothing answers.

    ``rate`` is how many connections are being opened at one moment.
    """
    most = max(1, int(rate * STINT_SECONDS / PROBE_TIMEOUT))
    parts = port_ranges.chunks(ports, most)
    together = max(1, most // max(1, port_ranges.count_ports(ports)))
    stints = []
    for target in targets:
        listed = list(target.addresses)
        own_addresses = tuple(address for address in listed if target.addresses[address] == target.kind)
        udp = tuple(sorted({*DEFAULT_UDP_PORTS, *target.udp_ports}))
        for start in range(0, len(listed), together):
            addresses = tuple(listed[start : start + together])
            for number, part in enumerate(parts):
                text = port_ranges.format_ranges(part)
                stints.append(ProbeBatch(target.name, own_addresses, addresses, text, () if number else udp, not number))
    return stints


@dataclasses.dataclass(frozen=True)
class ProbeResult:
    """What one outsider found out in one stint.

    ``answers`` have ``address``, ``protocol``, ``state`` and ``ports`` as text. ``ways`` are the next hops by address,
    empty on the same segment; ``missing`` is why addresses could not be tried, ``unseen`` those that nobody owns there.
    ``failed`` is why nothing of it could be tried.
    """

    outsider: str
    stint: ProbeBatch
    answers: Sequence[Mapping[str, Any]] = ()
    next_hops: Mapping[str, str] = dataclasses.field(default_factory=dict)
    missing: Mapping[str, str] = dataclasses.field(default_factory=dict)
    unresolved: Sequence[str] = ()
    on_link: bool = False
    failed: str = ""


def build_exposure_report(
    targets: Sequence[ProbedHost], outsiders: Sequence[str], probed: Sequence[ProbeResult]
) -> dict[str, Any]:
    """Return the report as plain data. ``well``: all was tried, and nothing is open but what has to be."""
    by_name = {target.name: target for target in targets}
    heard = _merge_answers(probed)
    findings = [finding for key, ports in heard.items() for finding in _findings(by_name[key[1]], key, ports)]
    not_proven = _inconclusive(targets, outsiders, probed)
    return {
        "ok": not findings and not not_proven,
        "outsiders": list(outsiders),
        "tried": _coverage(by_name, probed),
        "findings": findings,
        "expected": [port for target in targets for port in _expected(target, heard)],
        "inconclusive": not_proven,
    }


def error_of(report: Mapping[str, Any]) -> str | None:
    """Return one sentence that says what is wrong; ``None`` when all is well."""
    if report["ok"]:
        return None
    messages = []
    if report["findings"]:
        answering = {(finding["target"], finding["address"]) for finding in report["findings"]}
        hosts = ", ".join(dict.fromkeys(finding["target"] for finding in report["findings"]))
        messages.append(f"outsiders get an answer from {_format_count(len(answering), 'address', 'addresses')} of {hosts}")
    if report["inconclusive"]:
        messages.append(f"{_format_count(len(report['inconclusive']), 'thing was', 'things were')} not proven")
    return f"the gateway is not shown to be the only way in: {', and '.join(messages)}."


# Outsider, target, address, protocol, state.
Key = tuple[str, str, str, str, str]


def _merge_answers(probed: Iterable[ProbeResult]) -> dict[Key, port_ranges.Ranges]:
    """Return the ports of each state, those of several stints joined; ICMP has none."""
    texts: dict[Key, list[str]] = {}
    for result in probed:
        for answer in result.answers:
            key = (result.outsider, result.stint.target, answer["address"], answer["protocol"], answer["state"])
            texts.setdefault(key, []).append(answer["ports"])
    return {
        key: port_ranges.parse_ranges(",".join(filter(None, lists))) if any(lists) else () for key, lists in texts.items()
    }


def _findings(target: ProbedHost, key: Key, ports: port_ranges.Ranges) -> list[dict[str, Any]]:
    """Return what must not be: whatever answers of an agent, whatever is open beyond the expected of a gateway.

    Each open port is a finding of its own; ports of another state are one finding for each address.
    """
    outsider, name, address, protocol, state = key
    if target.kind == GATEWAY and (state != OPEN or protocol == "icmp"):
        return []
    finding = {"outsider": outsider, "target": name, "address": address, "protocol": protocol}
    if protocol == "icmp":
        return [{**finding, "port": None, "ports": "", "state": state, "description": "it answers pings"}]
    if state == OPEN:
        fine = target.expected if protocol == "tcp" and target.addresses.get(address) == GATEWAY else {}
        means = STATE_DESCRIPTIONS[state] if protocol == "tcp" else "something answers there"
        return [
            {**finding, "port": port, "ports": str(port), "state": state, "description": means}
            for port in port_ranges.iter_ports(ports)
            if port not in fine
        ]
    single = ports[0][0] if port_ranges.count_ports(ports) == 1 else None
    return [
        {
            **finding,
            "port": single,
            "ports": port_ranges.format_ranges(ports),
            "state": state,
            "description": STATE_DESCRIPTIONS[state],
        }
    ]


def _coverage(targets: Mapping[str, ProbedHost], probed: Iterable[ProbeResult]) -> list[dict[str, Any]]:
    """Return each address that an outsider has tried, with all ports and protocols."""
    entries: dict[tuple[str, str, str], dict[str, Any]] = {}
    for result in probed:
        target, batch = targets[result.stint.target], result.stint
        for address in (address for address in batch.addresses if address in result.next_hops):
            key = (result.outsider, target.name, address)
            kind, via = target.addresses[address], result.next_hops[address] or None
            new = {"outsider": result.outsider, "target": target.name, "address": address, "kind": kind, "next_hop": via}
            entry = entries.setdefault(key, {**new, "ports": "", "udp_ports": "", "protocols": []})
            entry["ports"] = _merge_ranges(entry["ports"], batch.ports)
            entry["udp_ports"] = _merge_ranges(entry["udp_ports"], ",".join(map(str, batch.udp_ports)))
            protocols = {"tcp": batch.ports, "udp": batch.udp_ports, "icmp": batch.echo}
            entry["protocols"] += [name for name, has in protocols.items() if has and name not in entry["protocols"]]
    return list(entries.values())


def _merge_ranges(first: str, second: str) -> str:
    texts = [text for text in (first, second) if text]
    return port_ranges.format_ranges(port_ranges.parse_ranges(",".join(texts))) if texts else ""


def _expected(target: ProbedHost, heard: Mapping[Key, port_ranges.Ranges]) -> list[dict[str, Any]]:
    """Return the doors that may be open, and whether an outsider found them so."""
    open_ports = {
        port
        for (_outsider, name, _address, protocol, state), ports in heard.items()
        if (name, protocol, state) == (target.name, "tcp", OPEN)
        for port in port_ranges.iter_ports(ports)
    }
    return [
        {"target": target.name, "protocol": "tcp", "port": port, "description": means, "open": port in open_ports}
        for port, means in sorted(target.expected.items())
    ]


def _inconclusive(
    targets: Iterable[ProbedHost], outsiders: Sequence[str], probed: Sequence[ProbeResult]
) -> list[dict[str, Any]]:
    """Return what could not be asked, and what was not tried although somebody on the spot could have."""
    entries = []
    for target in targets:
        results = [result for result in probed if result.stint.target == target.name]
        idle = [name for name in outsiders if not any(result.outsider == name for result in results)]
        entries += [_inconclusive_entry(target, target.unread)] if target.unread else []
        entries += [_inconclusive_entry(target, "nothing was tried", outsider=name) for name in idle]
        entries += [_inconclusive_entry(target, result.failed, outsider=result.outsider) for result in results if result.failed]
        entries += [
            _inconclusive_entry(target, NOBODY, address, result.outsider) for result in results for address in result.unresolved
        ]
        tried = {address for result in results for address in result.next_hops}
        # From behind a router not every address can be tried, but the host itself has to be.
        strict = any(result.on_link for result in results) or not any(target.addresses[one] == target.kind for one in tried)
        missing = [(result.outsider, address, reason) for result in results if strict for address, reason in result.missing.items()]
        entries += [
            _inconclusive_entry(target, reason, address, name) for name, address, reason in missing if address not in tried
        ]
    return list({tuple(entry.values()): entry for entry in entries}.values())


def _inconclusive_entry(
    target: ProbedHost, reason: str, address: str | None = None, outsider: str | None = None
) -> dict[str, Any]:
    return {"outsider": outsider, "target": target.name, "address": address, "why": reason}


def _format_count(number: int, singular: str, plural: str) -> str:
    return f"{number} {singular if number == 1 else plural}"
