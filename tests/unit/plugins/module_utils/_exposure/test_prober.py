"""A probe host scans all ports of a host and groups the answers."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager

import pytest

from ansible_collections.backendai.cluster.plugins.module_utils._exposure import prober
from ansible_collections.backendai.cluster.plugins.module_utils._exposure.port_scan import (
    Answer,
    ScanResult,
    ScanTarget,
)
from ansible_collections.backendai.cluster.plugins.module_utils._exposure.probe_routes import NextHop, NextHops
from ansible_collections.backendai.cluster.plugins.module_utils._exposure.prober import ProbeRequest, probe_host
from ansible_collections.backendai.cluster.plugins.module_utils._model.port_ranges import parse_ranges

OWN = ("192.0.2.1", "fe80::1")
REQUEST = ProbeRequest(OWN, (*OWN, "172.18.0.2", "172.18.0.3"), parse_ranges("22-23"), (53,), True, 100, 0.1)
WAYS = (NextHop("192.0.2.1", "eth0"), NextHop("fe80::1", "eth0"), NextHop("172.18.0.2", "eth0", "192.0.2.1"))


class World:
    """Simulated network: ``open`` ports, addresses that are ``refused`` here, and resolved addresses."""

    def __init__(self) -> None:
        self.open: set[ScanTarget] = set()
        self.refused: dict[str, str] = {}
        self.there = {"192.0.2.1"}
        self.scanned: list[ScanTarget] = []
        self.hosts: set[str] = set()
        self.behind: list[str] = []

    @contextmanager
    def ways_to(self, _own: Sequence[str], behind: Sequence[str]) -> Iterator[NextHops]:
        self.behind = list(behind)
        yield NextHops(WAYS, {"172.18.0.3": "taken", "172.18.0.9": "not asked for"}, True)

    def scan(self, targets: Iterable[ScanTarget], hosts: Collection[str], at_once: int, seconds: float) -> ScanResult:
        assert (at_once, seconds) == (REQUEST.rate, REQUEST.seconds)
        self.scanned, self.hosts = list(targets), set(hosts)
        states = [
            Answer(target, "open" if target in self.open else "closed") for target in self.scanned if target.port != 53
        ]
        return ScanResult(states, self.refused)


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    world = World()
    monkeypatch.setattr(prober, "temporary_routes", world.ways_to)
    monkeypatch.setattr(prober, "scan", world.scan)
    monkeypatch.setattr(prober, "is_resolved", lambda way: way.address in world.there)
    return world


def test_all_ports_are_probed_and_datagrams_sent_twice(world: World) -> None:
    probe_host(REQUEST)
    destinations = ["192.0.2.1", "fe80::1%eth0", "172.18.0.2"]
    assert sorted(target for target in world.scanned if target.protocol == "tcp") == sorted(
        ScanTarget("tcp", address, port) for address in destinations for port in (22, 23)
    )
    for datagram in [ScanTarget("udp", address, 53) for address in destinations] + [
        ScanTarget("icmp", item, 0) for item in destinations
    ]:
        assert world.scanned.count(datagram) == 2
    assert world.hosts == set(REQUEST.addresses)
    assert world.behind == ["172.18.0.2", "172.18.0.3"]


def test_answers_are_grouped_by_address_protocol_and_state(world: World) -> None:
    world.open = {ScanTarget("tcp", "192.0.2.1", 22), ScanTarget("icmp", "172.18.0.2", 0)}
    result = probe_host(dataclasses.replace(REQUEST, addresses=("192.0.2.1", "172.18.0.2")))
    assert result["answers"] == [
        {"address": "172.18.0.2", "protocol": "icmp", "state": "open", "ports": ""},
        {"address": "172.18.0.2", "protocol": "tcp", "state": "closed", "ports": "22-23"},
        {"address": "192.0.2.1", "protocol": "icmp", "state": "closed", "ports": ""},
        {"address": "192.0.2.1", "protocol": "tcp", "state": "closed", "ports": "23"},
        {"address": "192.0.2.1", "protocol": "tcp", "state": "open", "ports": "22"},
    ]
    assert result["next_hops"] == {"192.0.2.1": "", "172.18.0.2": "192.0.2.1"}


def test_a_link_local_address_is_returned_without_its_zone(world: World) -> None:
    world.open = {ScanTarget("tcp", "fe80::1%eth0", 22)}
    result = probe_host(dataclasses.replace(REQUEST, addresses=("fe80::1",), echo=False))
    assert {item["address"] for item in result["answers"]} == {"fe80::1"}
    assert result["next_hops"] == {"fe80::1": ""}
    assert {target.protocol for target in world.scanned} == {"tcp", "udp"}


def test_unreachable_addresses_are_returned_with_a_reason(world: World) -> None:
    world.refused = {"fe80::1%eth0": "Network is unreachable"}
    result = probe_host(REQUEST)
    assert result["missing"] == {"172.18.0.3": "taken", "fe80::1": "Network is unreachable"}
    assert "fe80::1" not in result["next_hops"]
    assert result["on_link"] is True


def test_an_unresolved_address_is_returned(world: World) -> None:
    assert probe_host(REQUEST)["unresolved"] == []
    world.there.clear()
    assert probe_host(REQUEST)["unresolved"] == ["192.0.2.1"]
