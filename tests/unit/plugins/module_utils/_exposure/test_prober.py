"""An outsider tries all doors of a host, and sums up what it heard."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager

import pytest

from ansible_collections.backendai.cluster.plugins.module_utils._exposure import prober
from ansible_collections.backendai.cluster.plugins.module_utils._exposure.port_scan import Answer, Door, Found
from ansible_collections.backendai.cluster.plugins.module_utils._exposure.probe_routes import Way, Ways
from ansible_collections.backendai.cluster.plugins.module_utils._exposure.prober import Attempt, probe
from ansible_collections.backendai.cluster.plugins.module_utils._model.port_ranges import parse_ranges

OWN = ("192.0.2.1", "fe80::1")
ATTEMPT = Attempt(OWN, (*OWN, "172.18.0.2", "172.18.0.3"), parse_ranges("22-23"), (53,), True, 100, 0.1)
WAYS = (Way("192.0.2.1", "eth0"), Way("fe80::1", "eth0"), Way("172.18.0.2", "eth0", "192.0.2.1"))


class World:
    """What there is to hear: ``open`` doors, addresses that are ``refused`` here, and those that somebody has."""

    def __init__(self) -> None:
        self.open: set[Door] = set()
        self.refused: dict[str, str] = {}
        self.there = {"192.0.2.1"}
        self.asked: list[Door] = []
        self.hosts: set[str] = set()
        self.behind: list[str] = []

    @contextmanager
    def ways_to(self, _own: Sequence[str], behind: Sequence[str]) -> Iterator[Ways]:
        self.behind = list(behind)
        yield Ways(WAYS, {"172.18.0.3": "taken", "172.18.0.9": "not asked for"}, True)

    def scan(self, doors: Iterable[Door], hosts: Collection[str], at_once: int, seconds: float) -> Found:
        assert (at_once, seconds) == (ATTEMPT.rate, ATTEMPT.seconds)
        self.asked, self.hosts = list(doors), set(hosts)
        states = [Answer(door, "open" if door in self.open else "closed") for door in self.asked if door.port != 53]
        return Found(states, self.refused)


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    made = World()
    monkeypatch.setattr(prober, "ways_to", made.ways_to)
    monkeypatch.setattr(prober, "scan", made.scan)
    monkeypatch.setattr(prober, "is_there", lambda way: way.address in made.there)
    return made


def test_every_port_of_every_address_is_tried_and_datagrams_twice(world: World) -> None:
    probe(ATTEMPT)
    destinations = ["192.0.2.1", "fe80::1%eth0", "172.18.0.2"]
    assert sorted(door for door in world.asked if door.protocol == "tcp") == sorted(
        Door("tcp", address, port) for address in destinations for port in (22, 23)
    )
    for datagram in [Door("udp", address, 53) for address in destinations] + [
        Door("icmp", one, 0) for one in destinations
    ]:
        assert world.asked.count(datagram) == 2
    assert world.hosts == set(ATTEMPT.addresses)
    assert world.behind == ["172.18.0.2", "172.18.0.3"]


def test_what_was_heard_is_summed_up_by_address_protocol_and_state(world: World) -> None:
    world.open = {Door("tcp", "192.0.2.1", 22), Door("icmp", "172.18.0.2", 0)}
    found = probe(dataclasses.replace(ATTEMPT, addresses=("192.0.2.1", "172.18.0.2")))
    assert found["answers"] == [
        {"address": "172.18.0.2", "protocol": "icmp", "state": "open", "ports": ""},
        {"address": "172.18.0.2", "protocol": "tcp", "state": "closed", "ports": "22-23"},
        {"address": "192.0.2.1", "protocol": "icmp", "state": "closed", "ports": ""},
        {"address": "192.0.2.1", "protocol": "tcp", "state": "closed", "ports": "23"},
        {"address": "192.0.2.1", "protocol": "tcp", "state": "open", "ports": "22"},
    ]
    assert found["ways"] == {"192.0.2.1": "", "172.18.0.2": "192.0.2.1"}


def test_a_link_local_address_is_told_without_its_zone(world: World) -> None:
    world.open = {Door("tcp", "fe80::1%eth0", 22)}
    found = probe(dataclasses.replace(ATTEMPT, addresses=("fe80::1",), echo=False))
    assert {one["address"] for one in found["answers"]} == {"fe80::1"}
    assert found["ways"] == {"fe80::1": ""}
    assert {door.protocol for door in world.asked} == {"tcp", "udp"}


def test_addresses_that_could_not_be_tried_are_told_with_the_reason(world: World) -> None:
    world.refused = {"fe80::1%eth0": "Network is unreachable"}
    found = probe(ATTEMPT)
    assert found["missing"] == {"172.18.0.3": "taken", "fe80::1": "Network is unreachable"}
    assert "fe80::1" not in found["ways"]
    assert found["near"] is True


def test_an_address_of_the_segment_that_nobody_has_is_told(world: World) -> None:
    assert probe(ATTEMPT)["unseen"] == []
    world.there.clear()
    assert probe(ATTEMPT)["unseen"] == ["192.0.2.1"]
