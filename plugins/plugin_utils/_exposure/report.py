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
        own = tuple(address for address in listed if target.addresses[address] == target.kind)
        udp = tuple(sorted({*DEFAULT_UDP_PORTS, *target.udp_ports}))
        for start in range(0, len(listed), together):
            some = tuple(listed[start : start + together])
            for number, part in enumerate(parts):
                text = port_ranges.format_ranges(part)
                stints.append(ProbeBatch(target.name, own, some, text, () if number else udp, not number))
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
    findings = [one for key, ports in heard.items() for one in _findings(by_name[key[1]], key, ports)]
    not_proven = _inconclusive(targets, outsiders, probed)
    return {
        "ok": not findings and not not_proven,
        "outsiders": list(outsiders),
        "tried": _coverage(by_name, probed),
        "findings": findings,
        "expected": [one for target in targets for one in _expected(target, heard)],
        "inconclusive": not_proven,
    }


def error_of(report: Mapping[str, Any]) -> str | None:
    """Return one sentence that says what is wrong; ``None`` when all is well."""
    if report["ok"]:
        return None
    said = []
    if report["findings"]:
        opened = {(one["target"], one["address"]) for one in report["findings"]}
        hosts = ", ".join(dict.fromkeys(one["target"] for one in report["findings"]))
        said.append(f"outsiders get an answer from {_counted(len(opened), 'address', 'addresses')} of {hosts}")
    if report["inconclusive"]:
        said.append(f"{_counted(len(report['inconclusive']), 'thing was', 'things were')} not proven")
    return f"the gateway is not shown to be the only way in: {', and '.join(said)}."


# Outsider, target, address, protocol, state.
Key = tuple[str, str, str, str, str]


def _merge_answers(probed: Iterable[ProbeResult]) -> dict[Key, port_ranges.Ranges]:
    """Return the ports of each state, those of several stints joined; ICMP has none."""
    texts: dict[Key, list[str]] = {}
    for one in probed:
        for answer in one.answers:
            key = (one.outsider, one.stint.target, answer["address"], answer["protocol"], answer["state"])
            texts.setdefault(key, []).append(answer["ports"])
    return {
        key: port_ranges.parse_ranges(",".join(filter(None, said))) if any(said) else () for key, said in texts.items()
    }


def _findings(target: ProbedHost, key: Key, ports: port_ranges.Ranges) -> list[dict[str, Any]]:
    """Return what must not be: whatever answers of an agent, whatever is open beyond the expected of a gateway.

    Each open port is a finding of its own; ports of another state are one finding for each address.
    """
    outsider, name, address, protocol, state = key
    if target.kind == GATEWAY and (state != OPEN or protocol == "icmp"):
        return []
    found = {"outsider": outsider, "target": name, "address": address, "protocol": protocol}
    if protocol == "icmp":
        return [{**found, "port": None, "ports": "", "state": state, "description": "it answers pings"}]
    if state == OPEN:
        fine = target.expected if protocol == "tcp" and target.addresses.get(address) == GATEWAY else {}
        means = STATE_DESCRIPTIONS[state] if protocol == "tcp" else "something answers there"
        return [
            {**found, "port": port, "ports": str(port), "state": state, "description": means}
            for port in port_ranges.iter_ports(ports)
            if port not in fine
        ]
    single = ports[0][0] if port_ranges.count_ports(ports) == 1 else None
    return [
        {
            **found,
            "port": single,
            "ports": port_ranges.format_ranges(ports),
            "state": state,
            "description": STATE_DESCRIPTIONS[state],
        }
    ]


def _coverage(targets: Mapping[str, ProbedHost], probed: Iterable[ProbeResult]) -> list[dict[str, Any]]:
    """Return each address that an outsider has tried, with all ports and protocols."""
    found: dict[tuple[str, str, str], dict[str, Any]] = {}
    for one in probed:
        target, stint = targets[one.stint.target], one.stint
        for address in (address for address in stint.addresses if address in one.next_hops):
            key = (one.outsider, target.name, address)
            kind, via = target.addresses[address], one.next_hops[address] or None
            new = {"outsider": one.outsider, "target": target.name, "address": address, "kind": kind, "next_hop": via}
            entry = found.setdefault(key, {**new, "ports": "", "udp_ports": "", "protocols": []})
            entry["ports"] = _joined(entry["ports"], stint.ports)
            entry["udp_ports"] = _joined(entry["udp_ports"], ",".join(map(str, stint.udp_ports)))
            protocols = {"tcp": stint.ports, "udp": stint.udp_ports, "icmp": stint.echo}
            entry["protocols"] += [name for name, has in protocols.items() if has and name not in entry["protocols"]]
    return list(found.values())


def _joined(one: str, other: str) -> str:
    texts = [text for text in (one, other) if text]
    return port_ranges.format_ranges(port_ranges.parse_ranges(",".join(texts))) if texts else ""


def _expected(target: ProbedHost, heard: Mapping[Key, port_ranges.Ranges]) -> list[dict[str, Any]]:
    """Return the doors that may be open, and whether an outsider found them so."""
    seen = {
        port
        for (_outsider, name, _address, protocol, state), ports in heard.items()
        if (name, protocol, state) == (target.name, "tcp", OPEN)
        for port in port_ranges.iter_ports(ports)
    }
    return [
        {"target": target.name, "protocol": "tcp", "port": port, "description": means, "open": port in seen}
        for port, means in sorted(target.expected.items())
    ]


def _inconclusive(
    targets: Iterable[ProbedHost], outsiders: Sequence[str], probed: Sequence[ProbeResult]
) -> list[dict[str, Any]]:
    """Return what could not be asked, and what was not tried although somebody on the spot could have."""
    found = []
    for target in targets:
        mine = [one for one in probed if one.stint.target == target.name]
        idle = [name for name in outsiders if not any(one.outsider == name for one in mine)]
        found += [_inconclusive_entry(target, target.unread)] if target.unread else []
        found += [_inconclusive_entry(target, "nothing was tried", outsider=name) for name in idle]
        found += [_inconclusive_entry(target, one.failed, outsider=one.outsider) for one in mine if one.failed]
        found += [
            _inconclusive_entry(target, NOBODY, address, one.outsider) for one in mine for address in one.unresolved
        ]
        tried = {address for one in mine for address in one.next_hops}
        # From behind a router not every address can be tried, but the host itself has to be.
        strict = any(one.on_link for one in mine) or not any(target.addresses[one] == target.kind for one in tried)
        missing = [(one.outsider, address, why) for one in mine if strict for address, why in one.missing.items()]
        found += [
            _inconclusive_entry(target, why, address, name) for name, address, why in missing if address not in tried
        ]
    return list({tuple(one.values()): one for one in found}.values())


def _inconclusive_entry(
    target: ProbedHost, why: str, address: str | None = None, outsider: str | None = None
) -> dict[str, Any]:
    return {"outsider": outsider, "target": target.name, "address": address, "why": why}


def _counted(number: int, one: str, many: str) -> str:
    return f"{number} {one if number == 1 else many}"
