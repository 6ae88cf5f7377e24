# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Splits the exposure scan into batches and builds one report from its results."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ...module_utils._exposure.model import (
    BATCH_SECONDS,
    CLOSED,
    GATEWAY,
    ICMP_ERROR,
    OPEN,
    PROBE_TIMEOUT,
    ProbeBatch,
    ProbedHost,
)
from ...module_utils._firewall.policy import REPORT
from ...module_utils._model import port_ranges
from .checklist import build_checklist
from .inside import InsideResults
from .policy_folders import FolderResults

# UDP ports that are scanned on every host: tunnels, Docker Swarm and common services.
DEFAULT_UDP_PORTS = (53, 111, 123, 161, 4789, 7946)

# The reason why silence is inconclusive.
UNRESOLVED = "no host on the segment has this address"

# Description of each port state in the report.
STATE_DESCRIPTIONS = {
    OPEN: "it accepts connections",
    CLOSED: "it refuses connections, so packets are not filtered",
    ICMP_ERROR: "it answers with an ICMP error, so packets are not filtered",
}


def split_into_batches(targets: Iterable[ProbedHost], ports: port_ranges.Ranges, rate: int) -> list[ProbeBatch]:
    """Return the scan in batches that each take about a minute if no host answers.

    ``rate`` is the number of concurrent probes.
    """
    probes_per_batch = max(1, int(rate * BATCH_SECONDS / PROBE_TIMEOUT))
    parts = port_ranges.chunks(ports, probes_per_batch)
    addresses_per_batch = max(1, probes_per_batch // max(1, port_ranges.count_ports(ports)))
    batches = []
    for target in targets:
        listed = list(target.addresses)
        own_addresses = tuple(address for address in listed if target.addresses[address] == target.kind)
        udp = tuple(sorted({*DEFAULT_UDP_PORTS, *target.udp_ports}))
        for start in range(0, len(listed), addresses_per_batch):
            addresses = tuple(listed[start : start + addresses_per_batch])
            for number, part in enumerate(parts):
                text = port_ranges.format_ranges(part)
                batches.append(
                    ProbeBatch(target.name, own_addresses, addresses, text, () if number else udp, not number)
                )
    return batches


@dataclasses.dataclass(frozen=True)
class ProbeResult:
    """Result of one batch on one probe host.

    ``answers`` have ``address``, ``protocol``, ``state`` and ``ports`` as text. ``next_hops`` are by address, empty on
    the same segment; ``missing`` is why addresses were not scanned, ``unresolved`` are those that no host there has.
    ``failed`` is why the batch was not scanned at all.
    """

    probe_host: str
    batch: ProbeBatch
    answers: Sequence[Mapping[str, Any]] = ()
    next_hops: Mapping[str, str] = dataclasses.field(default_factory=dict)
    missing: Mapping[str, str] = dataclasses.field(default_factory=dict)
    unresolved: Sequence[str] = ()
    on_link: bool = False
    failed: str = ""


def build_exposure_report(
    targets: Sequence[ProbedHost],
    probe_hosts: Sequence[str],
    probed: Sequence[ProbeResult],
    inside: InsideResults | None = None,
    folders: FolderResults | None = None,
) -> dict[str, Any]:
    """Return the report as plain data; ``inside`` are the probes from containers, ``folders`` the checks of folders.

    ``ok``: the scan is complete, only expected ports are open, every firewall is enforced, and no requirement of the
    ``checklist`` is missed. ``not_enforced`` are the hosts in report mode: that nothing answered there is no proof.
    """
    inside = inside or InsideResults()
    by_name = {target.name: target for target in targets}
    answers_by_key = _merge_answers(probed)
    outside = [
        finding for key, ports in answers_by_key.items() for finding in _build_findings(by_name[key[1]], key, ports)
    ]
    within = _build_inside_findings(inside)
    findings = [*outside, *within]
    inconclusive = _build_inconclusive(targets, probe_hosts, probed)
    checklist = build_checklist(targets, outside, within, inconclusive, inside, folders or FolderResults())
    inconclusive += [
        _inconclusive_entry(by_name[agent], f"its containers could not be probed from: {reason}")
        for agent, reason in inside.failed.items()
        if not by_name[agent].unread
    ]
    not_enforced = [target.name for target in targets if target.firewall_mode == REPORT]
    missed = [entry for entry in checklist if entry["ok"] is False]
    return {
        "ok": not findings and not inconclusive and not not_enforced and not missed,
        "probe_hosts": list(probe_hosts),
        "probed": _build_coverage(by_name, probed),
        "findings": findings,
        "expected": [port for target in targets for port in _build_expected(target, answers_by_key)],
        "inconclusive": inconclusive,
        "not_enforced": not_enforced,
        "checklist": checklist,
    }


def summarize_error(report: Mapping[str, Any]) -> str | None:
    """Return one sentence about the findings; ``None`` if the report is ok."""
    if report["ok"]:
        return None
    messages = []
    outside = [finding for finding in report["findings"] if finding["probe_host"] in report["probe_hosts"]]
    within = [finding for finding in report["findings"] if finding not in outside]
    for who, findings in (("probe hosts get", outside), ("containers get", within)):
        if findings:
            answering = {(finding["target"], finding["address"]) for finding in findings}
            hosts = ", ".join(dict.fromkeys(finding["target"] for finding in findings))
            messages.append(f"{who} an answer from {_format_count(len(answering), 'address', 'addresses')} of {hosts}")
    if report["not_enforced"]:
        messages.append(f"the firewall of {', '.join(report['not_enforced'])} is in report mode and drops nothing")
    if report["inconclusive"]:
        messages.append(f"{_format_count(len(report['inconclusive']), 'check was', 'checks were')} inconclusive")
    missed = [entry["requirement"] for entry in report["checklist"] if entry["ok"] is False]
    if not messages:
        messages.append(f"requirements are not met ({'; '.join(missed)})")
    return f"isolation check failed: {', and '.join(messages)}."


# Probe host, target, address, protocol, state.
Key = tuple[str, str, str, str, str]


def _merge_answers(probed: Iterable[ProbeResult]) -> dict[Key, port_ranges.Ranges]:
    """Return the ports of each state, merged from all batches; ICMP has none."""
    texts: dict[Key, list[str]] = {}
    for result in probed:
        for answer in result.answers:
            key = (result.probe_host, result.batch.target, answer["address"], answer["protocol"], answer["state"])
            texts.setdefault(key, []).append(answer["ports"])
    return {
        key: port_ranges.parse_ranges(",".join(filter(None, lists))) if any(lists) else ()
        for key, lists in texts.items()
    }


def _build_findings(target: ProbedHost, key: Key, ports: port_ranges.Ranges) -> list[dict[str, Any]]:
    """Return the findings: every answer of an agent, and every open port of a gateway that is not expected.

    Each open port is a separate finding; ports of another state are one finding for each address.
    """
    probe_host, name, address, protocol, state = key
    if target.kind == GATEWAY and (state != OPEN or protocol == "icmp"):
        return []
    finding = {"probe_host": probe_host, "target": name, "address": address, "protocol": protocol}
    if protocol == "icmp":
        return [{**finding, "port": None, "ports": "", "state": state, "description": "it answers pings"}]
    if state == OPEN:
        fine = target.expected if protocol == "tcp" and target.addresses.get(address) == GATEWAY else {}
        means = STATE_DESCRIPTIONS[state] if protocol == "tcp" else "a service answers there"
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


def _build_inside_findings(inside: InsideResults) -> list[dict[str, Any]]:
    """Return a finding for each target that answered a container."""
    hosts = {(target.address, target.port): target.host for target in inside.targets}
    return [
        {
            "probe_host": f"{probe.container} of {probe.session} on {agent}",
            "target": hosts[answer.address, answer.port],
            "address": answer.address,
            "protocol": "tcp",
            "port": answer.port,
            "ports": str(answer.port),
            "state": answer.state,
            "description": STATE_DESCRIPTIONS[answer.state],
        }
        for agent, reply in inside.replies.items()
        for probe in reply.probes
        for answer in probe.answers
    ]


def _build_coverage(targets: Mapping[str, ProbedHost], probed: Iterable[ProbeResult]) -> list[dict[str, Any]]:
    """Return each scanned address of each probe host, with all ports and protocols."""
    entries: dict[tuple[str, str, str], dict[str, Any]] = {}
    for result in probed:
        target, batch = targets[result.batch.target], result.batch
        for address in (address for address in batch.addresses if address in result.next_hops):
            key = (result.probe_host, target.name, address)
            kind, via = target.addresses[address], result.next_hops[address] or None
            new = {
                "probe_host": result.probe_host,
                "target": target.name,
                "address": address,
                "kind": kind,
                "next_hop": via,
            }
            entry = entries.setdefault(key, {**new, "ports": "", "udp_ports": "", "protocols": []})
            entry["ports"] = _merge_ranges(entry["ports"], batch.ports)
            entry["udp_ports"] = _merge_ranges(entry["udp_ports"], ",".join(map(str, batch.udp_ports)))
            protocols = {"tcp": batch.ports, "udp": batch.udp_ports, "icmp": batch.echo}
            entry["protocols"] += [name for name, has in protocols.items() if has and name not in entry["protocols"]]
    return list(entries.values())


def _merge_ranges(first: str, second: str) -> str:
    texts = [text for text in (first, second) if text]
    return port_ranges.format_ranges(port_ranges.parse_ranges(",".join(texts))) if texts else ""


def _build_expected(target: ProbedHost, answers_by_key: Mapping[Key, port_ranges.Ranges]) -> list[dict[str, Any]]:
    """Return the ports that may be open, and whether a probe host found them open."""
    open_ports = {
        port
        for (_probe_host, name, _address, protocol, state), ports in answers_by_key.items()
        if (name, protocol, state) == (target.name, "tcp", OPEN)
        for port in port_ranges.iter_ports(ports)
    }
    return [
        {"target": target.name, "protocol": "tcp", "port": port, "description": means, "open": port in open_ports}
        for port, means in sorted(target.expected.items())
    ]


def _build_inconclusive(
    targets: Iterable[ProbedHost], probe_hosts: Sequence[str], probed: Sequence[ProbeResult]
) -> list[dict[str, Any]]:
    """Return the checks without a result, and addresses that were not scanned although they were reachable."""
    entries = []
    for target in targets:
        results = [result for result in probed if result.batch.target == target.name]
        idle = [name for name in probe_hosts if not any(result.probe_host == name for result in results)]
        entries += [_inconclusive_entry(target, target.unread)] if target.unread else []
        entries += [_inconclusive_entry(target, "nothing was scanned", probe_host=name) for name in idle]
        entries += [
            _inconclusive_entry(target, result.failed, probe_host=result.probe_host)
            for result in results
            if result.failed
        ]
        entries += [
            _inconclusive_entry(target, UNRESOLVED, address, result.probe_host)
            for result in results
            for address in result.unresolved
        ]
        tried = {address for result in results for address in result.next_hops}
        # Behind a router not every address can be scanned, but the host itself must be.
        strict = any(result.on_link for result in results) or not any(
            target.addresses[address] == target.kind for address in tried
        )
        missing = [
            (result.probe_host, address, reason)
            for result in results
            if strict
            for address, reason in result.missing.items()
        ]
        entries += [
            _inconclusive_entry(target, reason, address, name)
            for name, address, reason in missing
            if address not in tried
        ]
    return list({tuple(entry.values()): entry for entry in entries}.values())


def _inconclusive_entry(
    target: ProbedHost, reason: str, address: str | None = None, probe_host: str | None = None
) -> dict[str, Any]:
    return {"probe_host": probe_host, "target": target.name, "address": address, "reason": reason}


def _format_count(number: int, singular: str, plural: str) -> str:
    return f"{number} {singular if number == 1 else plural}"
