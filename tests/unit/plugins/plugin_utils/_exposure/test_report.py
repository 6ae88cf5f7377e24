"""The exposure report, and its text, from the results of probe hosts."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest

from ansible_collections.backendai.cluster.plugins.module_utils._exposure.model import (
    InsideAnswer,
    InsideProbe,
    InsideReply,
    InsideTarget,
    ProbeBatch,
    ProbedHost,
)
from ansible_collections.backendai.cluster.plugins.module_utils._model.plain_data import from_plain, to_plain
from ansible_collections.backendai.cluster.plugins.module_utils._model.port_ranges import parse_ranges
from ansible_collections.backendai.cluster.plugins.plugin_utils._exposure.inside import InsideResults
from ansible_collections.backendai.cluster.plugins.plugin_utils._exposure.report import (
    ProbeResult,
    build_exposure_report,
    split_into_batches,
    summarize_error,
)
from ansible_collections.backendai.cluster.plugins.plugin_utils._exposure.table import render_matrix, render_report

AGENT = ProbedHost("agent1", "agent", {"192.0.2.1": "agent", "172.18.0.2": "container"}, (51820,))
GATEWAY = ProbedHost("gateway1", "gateway", {"192.0.2.9": "gateway"}, expected={443: "HTTPS", 32000: "SSH of train"})
ALL = parse_ranges("1-65535")
REFUSES = "it refuses connections, so packets are not filtered"
ANSWERS = "it answers with an ICMP error, so packets are not filtered"
WAYS = {"192.0.2.1": "", "172.18.0.2": "192.0.2.1", "192.0.2.9": ""}


def batch(target: ProbedHost, ports: str = "1-65535") -> ProbeBatch:
    (whole,) = split_into_batches([target], parse_ranges(ports), 16000)
    return whole


def probed(target: ProbedHost, *answers: dict[str, Any], **changes: Any) -> ProbeResult:
    """Return the result of user1 for a host of its segment."""
    ways = {address: WAYS[address] for address in target.addresses}
    return ProbeResult("user1", batch(target), answers, **{"next_hops": ways, "on_link": True, **changes})


def answer(address: str, protocol: str, state: str, ports: str = "") -> dict[str, Any]:
    return {"address": address, "protocol": protocol, "state": state, "ports": ports}


def report(
    *results: ProbeResult, targets: tuple[ProbedHost, ...] = (AGENT,), probe_hosts: tuple[str, ...] = ("user1",)
) -> Any:
    return build_exposure_report(targets, probe_hosts, results)


def shown(built: Any) -> list[str]:
    """Return the text of a report without its checklist."""
    return [line for line in render_report(built) if line[0] not in "✓✗?"]


def test_a_scan_is_split_into_batches_of_a_minute() -> None:
    many = ProbedHost("agent1", "agent", dict.fromkeys((f"192.0.2.{number}" for number in range(1, 13)), "agent"))
    batches = split_into_batches([many], ALL, 16000)
    assert [len(entry.addresses) for entry in batches] == [5, 5, 2]
    assert [entry.ports for entry in batches] == ["1-65535"] * 3
    assert all(entry.own == tuple(many.addresses) and entry.echo and entry.udp_ports for entry in batches)


def test_a_low_rate_also_splits_the_ports_of_an_address() -> None:
    batches = split_into_batches([AGENT], ALL, 1000)
    first = [entry for entry in batches if entry.addresses == ("192.0.2.1",)]
    assert [entry.ports for entry in first] == ["1-24000", "24001-48000", "48001-65535"]
    assert [entry.echo for entry in first] == [True, False, False]
    assert [bool(entry.udp_ports) for entry in first] == [True, False, False]
    assert len(batches) == 6


def test_tunnel_ports_are_added_to_the_default_udp_ports() -> None:
    assert batch(AGENT).udp_ports == (53, 111, 123, 161, 4789, 7946, 51820)
    assert batch(AGENT).own == ("192.0.2.1",)


def test_targets_and_batches_survive_json() -> None:
    assert from_plain(ProbedHost, json.loads(json.dumps(to_plain(GATEWAY))), "targets") == GATEWAY
    assert from_plain(ProbeBatch, json.loads(json.dumps(to_plain(batch(AGENT)))), "batches") == batch(AGENT)


def test_a_scan_without_answers_is_ok() -> None:
    built = report(probed(AGENT))
    assert built["ok"] is True
    assert (built["findings"], built["inconclusive"], summarize_error(built)) == ([], [], None)
    assert built["probed"][1] == {
        "probe_host": "user1",
        "target": "agent1",
        "address": "172.18.0.2",
        "kind": "container",
        "next_hop": "192.0.2.1",
        "ports": "1-65535",
        "udp_ports": "53,111,123,161,4789,7946,51820",
        "protocols": ["tcp", "udp", "icmp"],
    }
    assert shown(built) == [
        "from   to      address     kind       next hop   tcp ports  tcp  udp  icmp",
        "user1  agent1  192.0.2.1   agent      -          1-65535    -    -    -",
        "user1  agent1  172.18.0.2  container  192.0.2.1  1-65535    -    -    -",
        "Only the gateway answers user1, at 2 addresses.",
    ]


def test_every_answer_of_an_agent_is_a_finding() -> None:
    heard = [
        answer("192.0.2.1", "tcp", "open", "22,8080"),
        answer("192.0.2.1", "tcp", "closed", "1-21,23-8079,8081-65535"),
        answer("192.0.2.1", "udp", "closed", "53"),
        answer("192.0.2.1", "icmp", "open"),
        answer("172.18.0.2", "tcp", "answered", "1-65535"),
    ]
    built = report(probed(AGENT, *heard))
    heard_ports = [
        (entry["address"], entry["protocol"], entry["port"], entry["ports"], entry["state"])
        for entry in built["findings"]
    ]
    assert heard_ports == [
        ("192.0.2.1", "tcp", 22, "22", "open"),
        ("192.0.2.1", "tcp", 8080, "8080", "open"),
        ("192.0.2.1", "tcp", None, "1-21,23-8079,8081-65535", "closed"),
        ("192.0.2.1", "udp", 53, "53", "closed"),
        ("192.0.2.1", "icmp", None, "", "open"),
        ("172.18.0.2", "tcp", None, "1-65535", "answered"),
    ]
    assert summarize_error(built) == ("isolation check failed: probe hosts get an answer from 2 addresses of agent1.")
    assert shown(built)[1:] == [
        "user1  agent1  192.0.2.1   agent      -          1-65535    2 open, 65533 closed  1 closed  open",
        "user1  agent1  172.18.0.2  container  192.0.2.1  1-65535    65535 answered        -         -",
        "user1 -> agent1 (192.0.2.1) tcp 22 open: it accepts connections.",
        "user1 -> agent1 (192.0.2.1) tcp 8080 open: it accepts connections.",
        f"user1 -> agent1 (192.0.2.1) tcp 1-21,23-8079,8081-65535 closed: {REFUSES}.",
        f"user1 -> agent1 (192.0.2.1) udp 53 closed: {REFUSES}.",
        "user1 -> agent1 (192.0.2.1) icmp open: it answers pings.",
        f"user1 -> agent1 (172.18.0.2) tcp 1-65535 answered: {ANSWERS}.",
    ]


def test_only_unexpected_open_ports_of_a_gateway_are_findings() -> None:
    heard = [
        answer("192.0.2.9", "tcp", "open", "22,443"),
        answer("192.0.2.9", "tcp", "closed", "1-21"),
        answer("192.0.2.9", "udp", "open", "53"),
        answer("192.0.2.9", "icmp", "open"),
    ]
    built = report(probed(GATEWAY, *heard), targets=(GATEWAY,))
    assert [(entry["protocol"], entry["port"], entry["description"]) for entry in built["findings"]] == [
        ("tcp", 22, "it accepts connections"),
        ("udp", 53, "a service answers there"),
    ]
    assert built["expected"] == [
        {"target": "gateway1", "protocol": "tcp", "port": 443, "description": "HTTPS", "open": True},
        {"target": "gateway1", "protocol": "tcp", "port": 32000, "description": "SSH of train", "open": False},
    ]
    lines = shown(built)
    assert lines[1].endswith("1 open, 1 as expected  1 open  -")
    assert "gateway1 tcp 443 (HTTPS): open, as expected." in lines
    assert "gateway1 tcp 32000 (SSH of train): not open, but expected to be." in lines


def test_expected_gateway_ports_do_not_apply_to_its_bridges() -> None:
    behind = dataclasses.replace(GATEWAY, addresses={"192.0.2.9": "gateway", "172.18.0.2": "bridge"})
    built = report(probed(behind, answer("172.18.0.2", "tcp", "open", "443")), targets=(behind,))
    assert [(entry["address"], entry["port"]) for entry in built["findings"]] == [("172.18.0.2", 443)]


def test_results_of_batches_are_merged() -> None:
    parts = [
        ProbeResult(
            "user1",
            entry,
            [answer(entry.addresses[0], "tcp", "closed", entry.ports)],
            {entry.addresses[0]: ""},
            on_link=True,
        )
        for entry in split_into_batches([AGENT], ALL, 1000)
    ]
    built = report(*parts)
    assert [entry["ports"] for entry in built["findings"]] == ["1-65535"] * 2
    assert [(entry["ports"], entry["protocols"]) for entry in built["probed"]] == [
        ("1-65535", ["tcp", "udp", "icmp"])
    ] * 2


def test_an_unscanned_protocol_is_a_question_mark() -> None:
    without = dataclasses.replace(batch(AGENT), udp_ports=(), echo=False)
    built = report(dataclasses.replace(probed(AGENT), batch=without))
    assert shown(built)[1].endswith("1-65535    -    ?    ?")


def doubts(built: Any) -> list[tuple[Any, ...]]:
    return [(entry["probe_host"], entry["address"], entry["reason"]) for entry in built["inconclusive"]]


def test_an_unread_host_is_inconclusive() -> None:
    unread = dataclasses.replace(AGENT, unread="it cannot be asked")
    built = report(probed(unread), targets=(unread,))
    assert doubts(built) == [(None, None, "it cannot be asked")]
    assert (built["ok"], shown(built)[-1]) == (False, "inconclusive: agent1: it cannot be asked.")
    assert summarize_error(built) == "isolation check failed: 1 check was inconclusive."


def test_a_failed_probe_host_is_inconclusive_once() -> None:
    failed = [ProbeResult("user1", entry, failed="it is away") for entry in split_into_batches([AGENT], ALL, 1000)]
    assert doubts(report(*failed)) == [("user1", None, "it is away")]


def test_a_host_without_an_address_is_inconclusive() -> None:
    unknown = ProbedHost("agent1", "agent", {}, unread="it cannot be asked")
    assert doubts(report(targets=(unknown,))) == [
        (None, None, "it cannot be asked"),
        ("user1", None, "nothing was scanned"),
    ]
    assert render_matrix([], [], []) == []


def test_an_unresolved_address_is_inconclusive() -> None:
    built = report(probed(AGENT, unresolved=["192.0.2.1"]))
    assert doubts(built) == [("user1", "192.0.2.1", "no host on the segment has this address")]
    assert shown(built)[-1] == "inconclusive: user1 -> agent1 (192.0.2.1): no host on the segment has this address."


def test_an_address_unreachable_on_link_is_inconclusive() -> None:
    built = report(probed(AGENT, next_hops={"192.0.2.1": ""}, missing={"172.18.0.2": "taken"}))
    assert doubts(built) == [("user1", "172.18.0.2", "taken")]


def test_an_address_scanned_by_another_probe_host_is_conclusive() -> None:
    short = probed(AGENT, next_hops={"192.0.2.1": ""}, missing={"172.18.0.2": "taken"})
    other = dataclasses.replace(probed(AGENT), probe_host="user2")
    assert report(short, other, probe_hosts=("user1", "user2"))["ok"] is True


def test_behind_a_router_only_the_host_itself_must_be_scanned() -> None:
    missing = {"172.18.0.2": "no route leads there"}
    routed = probed(AGENT, next_hops={"192.0.2.1": "203.0.113.1"}, missing=missing, on_link=False)
    assert report(routed)["ok"] is True
    cut_off = probed(AGENT, next_hops={}, missing={**missing, "192.0.2.1": "no route leads there"}, on_link=False)
    assert [address for _probe_host, address, _why in doubts(report(cut_off))] == ["172.18.0.2", "192.0.2.1"]


def test_long_port_lists_are_cut_only_in_the_table() -> None:
    ports = ",".join(str(port) for port in range(1, 200, 2))
    built = report(probed(AGENT, answer("192.0.2.1", "tcp", "closed", ports)))
    assert built["findings"][0]["ports"] == ports
    line = next(line for line in shown(built) if " closed: " in line)
    assert "tcp 1,3,5," in line
    assert ",… closed: " in line
    assert len(line) < 180


def test_a_host_in_report_mode_is_not_closed_even_if_nothing_answers() -> None:
    open_agent = dataclasses.replace(AGENT, firewall_mode="report")
    built = report(probed(open_agent), targets=(open_agent,))
    assert (built["findings"], built["ok"], built["not_enforced"]) == ([], False, ["agent1"])
    assert summarize_error(built) == (
        "isolation check failed: the firewall of agent1 is in report mode and drops nothing."
    )
    assert shown(built)[-1] == (
        "agent1 is not closed: its firewall is in report mode and drops nothing. See firewall_report, then provision it"
        " with firewall_mode: enforce."
    )


@pytest.mark.parametrize("mode", ["enforce", "off", ""])
def test_other_hosts_are_judged_by_what_answers(mode: str) -> None:
    target = dataclasses.replace(AGENT, firewall_mode=mode)
    built = report(probed(target), targets=(target,))
    assert (built["ok"], built["not_enforced"]) == (True, [])


def test_a_requirement_that_is_not_met_fails_a_report_without_findings() -> None:
    public = dataclasses.replace(AGENT, addresses={**AGENT.addresses, "192.88.99.7": "agent"})
    built = report(probed(AGENT), targets=(public,))
    assert (built["findings"], built["inconclusive"], built["ok"]) == ([], [], False)
    assert summarize_error(built) == (
        "isolation check failed: requirements are not met (agents have no public address)."
    )
    assert (
        "✗ agents have no public address: agent1: it has the public address 192.88.99.7, reachable from everywhere: put"
        " agents on a private network that only managers and gateways reach from outside."
    ) in render_report(built)
    assert "? not checked: every firewall drops what is not allowed: the firewall of agent1 is not known." in (
        render_report(built)
    )


def test_answers_to_containers_are_findings_of_their_own() -> None:
    probes = InsideProbe("train", "main1", (InsideAnswer("192.0.2.9", 22, "closed"),))
    inside = InsideResults((InsideTarget("gateway1", "192.0.2.9", 22),), {"agent1": InsideReply((probes,), 0)})
    heard = probed(AGENT, answer("192.0.2.1", "tcp", "open", "22"))
    built = build_exposure_report((AGENT, GATEWAY), ("user1",), [heard, probed(GATEWAY)], inside)
    assert built["findings"][1] == {
        "probe_host": "main1 of train on agent1",
        "target": "gateway1",
        "address": "192.0.2.9",
        "protocol": "tcp",
        "port": 22,
        "ports": "22",
        "state": "closed",
        "description": REFUSES,
    }
    assert summarize_error(built) == (
        "isolation check failed: probe hosts get an answer from 1 address of agent1, and containers get an answer"
        " from 1 address of gateway1."
    )
    assert "✗ containers reach no management address: main1 of train on agent1 reaches gateway1 at 192.0.2.9." in (
        render_report(built)
    )


def test_an_agent_whose_containers_could_not_be_probed_from_is_inconclusive_once() -> None:
    inside = InsideResults(failed={"agent1": "it took more than 180 seconds"})
    built = build_exposure_report((AGENT,), ("user1",), [probed(AGENT)], inside)
    reason = "its containers could not be probed from: it took more than 180 seconds"
    assert doubts(built) == [(None, None, reason)]
    assert "✓ users reach no agent" in render_report(built)
    unread = dataclasses.replace(AGENT, unread="it cannot be asked")
    again = build_exposure_report((unread,), ("user1",), [probed(unread)], inside)
    assert doubts(again) == [(None, None, "it cannot be asked")]
