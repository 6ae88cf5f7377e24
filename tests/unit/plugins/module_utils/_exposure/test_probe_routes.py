"""Temporary routes to a host and to addresses behind it."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.backendai.cluster.plugins.module_utils._exposure import probe_routes
from ansible_collections.backendai.cluster.plugins.module_utils._exposure.probe_routes import (
    NO_ROUTE,
    OWN_NETWORK,
    NextHop,
    is_resolved,
)
from ansible_collections.backendai.cluster.plugins.module_utils._network.iproute import LinkOperation, NetworkError

Route = dict[str, Any]
SEGMENT = {"dst": "192.0.2.0/24", "dev": "eth0"}
DEFAULT = {"dst": "0.0.0.0/0", "dev": "eth0", "gateway": "192.0.2.254"}


class Routes:
    """The routes of a host: those with ``proto`` are ours; the longest prefix wins."""

    def __init__(self, *routes: Route) -> None:
        self.routes = list(routes)
        self.lines: list[str] = []
        self.fails = False

    def show(self, *command: str) -> list[Route]:
        if "proto" in command:
            six = "-6" in command
            return [route for route in self.routes if "proto" in route and (":" in route["dst"]) == six]
        if "neigh" in command:
            return [route for route in self.routes if route.get("neighbour") == command[5]]
        address = ipaddress.ip_address(command[-1])
        fits = [route for route in self.routes if "dst" in route and address in ipaddress.ip_network(route["dst"])]
        if not fits:
            raise NetworkError("ip route get: Network is unreachable")
        return [max(fits, key=lambda route: ipaddress.ip_network(route["dst"]).prefixlen)]

    def apply(self, steps: Iterable[LinkOperation]) -> None:
        for line in [line for step in steps for line in step.ip]:
            words = line.split()
            if self.fails and words[1] == "add":
                raise NetworkError("ip -batch: File exists")
            self.lines.append(line)
            if words[1] == "add":
                self.routes.append({"dst": words[2], "gateway": words[4], "dev": words[6], "proto": words[8]})
            else:
                self.routes = [route for route in self.routes if route.get("dst") != words[2]]


@pytest.fixture
def routes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Routes:
    """Return the routes of a host with one network and a default route."""
    fake_routes = Routes(SEGMENT, DEFAULT)
    monkeypatch.setattr(probe_routes, "show", fake_routes.show)
    monkeypatch.setattr(probe_routes, "apply_operations", fake_routes.apply)
    monkeypatch.setattr(probe_routes, "LOCK", tmp_path / "lock")
    return fake_routes


@pytest.mark.usefixtures("routes")
def test_another_probe_that_does_not_end_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe_routes, "LOCK_SECONDS", 0.05)
    hold = probe_routes.temporary_routes([], [])
    with hold, pytest.raises(NetworkError) as raised, probe_routes.temporary_routes([], []):
        pass
    held = f" has held the lock {probe_routes.LOCK} for more than 0.05 seconds; end it first."
    assert str(raised.value).endswith(held)


def test_addresses_behind_a_host_get_a_temporary_route(routes: Routes) -> None:
    with probe_routes.temporary_routes(["192.0.2.1", "fe80::1"], ["172.18.0.2"]) as next_hops:
        assert next_hops.next_hops == (
            NextHop("192.0.2.1", "eth0"),
            NextHop("fe80::1", "eth0"),
            NextHop("172.18.0.2", "eth0", "192.0.2.1"),
        )
        assert [way.destination for way in next_hops.next_hops] == ["192.0.2.1", "fe80::1%eth0", "172.18.0.2"]
        assert (next_hops.missing, next_hops.on_link) == ({}, True)
        assert routes.lines == ["route add 172.18.0.2/32 via 192.0.2.1 dev eth0 proto 186"]
    assert routes.lines[1:] == ["route del 172.18.0.2/32 via 192.0.2.1 dev eth0 proto 186"]
    assert routes.routes == [SEGMENT, DEFAULT]


def test_other_addresses_of_the_host_are_routed_through_it(routes: Routes) -> None:
    with probe_routes.temporary_routes(["192.0.2.1", "203.0.113.1", "fe80::1", "fd00::1"], []) as next_hops:
        assert next_hops.next_hops[2:] == (
            NextHop("203.0.113.1", "eth0", "192.0.2.1"),
            NextHop("fd00::1", "eth0", "fe80::1"),
        )
        assert "route add fd00::1/128 via fe80::1 dev eth0 proto 186" in routes.lines


def test_an_existing_route_is_used_and_kept(routes: Routes) -> None:
    mine = {"dst": "172.18.0.0/16", "dev": "eth0", "gateway": "192.0.2.1"}
    routes.routes.append(mine)
    with probe_routes.temporary_routes(["192.0.2.1"], ["172.18.0.2"]) as next_hops:
        assert next_hops.next_hops[1] == NextHop("172.18.0.2", "eth0", "192.0.2.1")
    assert routes.lines == []
    assert mine in routes.routes


def test_an_address_in_a_local_network_is_not_the_target(routes: Routes) -> None:
    # The kernel prefers local addresses to routes: max() returns the first of two equal matches.
    routes.routes.append({"dst": "172.17.0.1/32", "dev": "lo", "type": "local"})
    with probe_routes.temporary_routes(["192.0.2.1"], ["172.17.0.1"]) as next_hops:
        assert next_hops.missing == {"172.17.0.1": OWN_NETWORK}
        assert next_hops.next_hops == (NextHop("192.0.2.1", "eth0"),)


def test_behind_a_router_existing_routes_are_used(routes: Routes) -> None:
    routes.routes.append({"dst": "172.18.0.0/16", "dev": "docker0"})
    with probe_routes.temporary_routes(["198.51.100.1", "fe80::1", "fd00::1"], ["172.18.0.2", "10.1.0.2"]) as next_hops:
        assert next_hops.next_hops == (
            NextHop("198.51.100.1", "eth0", "192.0.2.254"),
            NextHop("10.1.0.2", "eth0", "192.0.2.254"),
        )
        assert next_hops.missing == {"fd00::1": NO_ROUTE, "172.18.0.2": OWN_NETWORK}
        assert next_hops.on_link is False
    assert routes.lines == []


def test_a_next_hop_of_the_other_family_is_read(routes: Routes) -> None:
    routes.routes.append({"dst": "198.51.100.0/24", "dev": "eth0", "via": {"family": "inet6", "host": "fe80::9"}})
    with probe_routes.temporary_routes(["198.51.100.1"], []) as next_hops:
        assert next_hops.next_hops == (NextHop("198.51.100.1", "eth0", "fe80::9"),)


def test_routes_of_a_killed_run_are_removed_first(routes: Routes) -> None:
    for address, gateway in (("10.9.0.1", "192.0.2.7"), ("fd00::9", "fe80::7")):
        routes.routes.append({"dst": address, "gateway": gateway, "dev": "eth0", "proto": "186"})
    with probe_routes.temporary_routes(["192.0.2.1"], []):
        assert routes.lines == [
            "route del 10.9.0.1 via 192.0.2.7 dev eth0 proto 186",
            "route del fd00::9 via fe80::7 dev eth0 proto 186",
        ]


def test_routes_are_removed_after_an_error(routes: Routes) -> None:
    with pytest.raises(KeyError), probe_routes.temporary_routes(["192.0.2.1"], ["172.18.0.2"]):
        raise KeyError
    assert routes.routes == [SEGMENT, DEFAULT]


def test_a_route_that_cannot_be_added_removes_the_others(routes: Routes) -> None:
    routes.fails = True
    with pytest.raises(NetworkError, match="File exists"), probe_routes.temporary_routes(["192.0.2.1"], ["172.18.0.2"]):
        raise AssertionError("it is not tried")
    assert routes.routes == [SEGMENT, DEFAULT]


@pytest.mark.parametrize(
    ("neighbour", "resolved"), [({"lladdr": "02:00:00:00:00:01"}, True), ({"state": ["FAILED"]}, False)]
)
def test_a_host_is_resolved_with_a_hardware_address(routes: Routes, neighbour: dict[str, Any], resolved: bool) -> None:
    routes.routes.append({"neighbour": "192.0.2.1", **neighbour})
    assert is_resolved(NextHop("192.0.2.1", "eth0")) == resolved
    assert is_resolved(NextHop("192.0.2.2", "eth0")) is False
