"""Tests for subnets, VNIs, ports, addresses, MACs and MTUs."""

from __future__ import annotations

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.backendai.cluster.plugins.module_utils._model.addressing import (
    address_of,
    bracketed,
    free_ports,
    is_address,
    is_ipv6,
    mac_of,
    overhead,
    pick_subnet,
    pick_vni,
    vxlan_mtu,
)

POOL = "10.9.8.0/25"


@st.composite
def networks_in_use(draw: st.DrawFn) -> list[str]:
    """Generate networks within and around the small pool, some nested, some of a single address."""
    values = draw(st.lists(st.tuples(st.integers(0, 511), st.integers(24, 32)), max_size=12))
    first = int(ipaddress.IPv4Address("10.9.7.0"))
    return [f"{ipaddress.IPv4Address(first + offset)}/{prefix}" for offset, prefix in values]


def overlaps_any(network: ipaddress.IPv4Network, used: list[str]) -> bool:
    return any(network.overlaps(ipaddress.IPv4Network(text, strict=False)) for text in used)


@given(st.integers(1, 130), networks_in_use(), st.text(max_size=4))
def test_subnet_is_found_if_the_pool_has_a_free_one(containers: int, used: list[str], seed: str) -> None:
    pool = ipaddress.IPv4Network(POOL)
    smallest = next(prefix for prefix in range(32, 0, -1) if 1 << (32 - prefix) >= containers + 3)
    free = (
        {str(subnet) for subnet in pool.subnets(new_prefix=smallest) if not overlaps_any(subnet, used)}
        if smallest >= 25
        else set()
    )
    subnet = pick_subnet(POOL, containers, used, seed)
    assert subnet in free if free else subnet is None


@pytest.mark.parametrize("seed", ["one", "two", "three", "four"])
@pytest.mark.parametrize(
    ("used", "free"),
    [
        ("10.9.8.0", "10.9.8.8/29"),
        ("10.9.8.7", "10.9.8.8/29"),
        ("10.9.8.8", "10.9.8.0/29"),
        ("10.9.8.15", "10.9.8.0/29"),
    ],
)
def test_used_address_at_the_edge_blocks_its_whole_subnet(used: str, free: str, seed: str) -> None:
    assert pick_subnet("10.9.8.0/28", 4, [used], seed) == free


@pytest.mark.parametrize(
    ("containers", "prefix"),
    [(1, 30), (2, 29), (4, 29), (5, 29), (6, 28), (13, 28), (14, 27), (29, 27), (30, 26), (1024, 21)],
)
def test_subnet_is_the_smallest_that_fits_the_containers(containers: int, prefix: int) -> None:
    subnet = ipaddress.IPv4Network(pick_subnet("10.128.0.0/9", containers, [], "seed") or "")
    assert subnet.prefixlen == prefix
    assert ipaddress.IPv4Address(address_of(str(subnet), containers - 1)) in list(subnet.hosts())


@pytest.mark.parametrize(
    "used", [["0.0.0.0/0"], ["fd00::/8", "::/0"], ["10.127.255.255/32"], ["11.0.0.0/8"], ["192.0.2.7"]], ids=" ".join
)
def test_networks_outside_the_pool_are_ignored(used: list[str]) -> None:
    assert pick_subnet("10.128.0.0/9", 4, used, "seed") == pick_subnet("10.128.0.0/9", 4, [], "seed")


@pytest.mark.parametrize("used", [["10.0.0.0/8"], ["10.128.0.0/9"], ["10.128.0.0/10", "10.192.0.1/10"]], ids=" ".join)
def test_pool_inside_a_used_network_is_exhausted(used: list[str]) -> None:
    assert pick_subnet("10.128.0.0/9", 4, used, "seed") is None


def test_concurrent_runs_rarely_select_the_same_subnet() -> None:
    subnets = {pick_subnet("10.128.0.0/9", 4, [], f"session {number}") for number in range(100)}
    assert len(subnets) == 100


@given(st.integers(1, 20), st.integers(0, 12), st.sets(st.integers(0, 40)), st.text(max_size=4))
def test_vni_is_found_if_there_is_a_free_one(first: int, more: int, used: set[int], seed: str) -> None:
    free = set(range(first, first + more + 1)) - used
    vni = pick_vni(first, first + more, used, seed)
    assert vni in free if free else vni is None


@given(st.integers(1024, 1040), st.integers(0, 12), st.sets(st.integers(1020, 1060)), st.text(max_size=4))
def test_every_free_port_is_yielded_once(first: int, more: int, used: set[int], seed: str) -> None:
    ports = list(free_ports(first, first + more, used, seed))
    assert sorted(ports) == sorted(set(range(first, first + more + 1)) - used)


def test_concurrent_runs_rarely_select_the_same_port() -> None:
    assert len({next(free_ports(30000, 32767, (), str(seed))) for seed in range(20)}) > 15


@pytest.mark.parametrize(
    ("subnet", "rank", "address"),
    [
        ("10.128.3.0/29", 0, "10.128.3.2"),
        ("10.128.3.0/29", 3, "10.128.3.5"),
        ("10.128.3.8/29", 0, "10.128.3.10"),
        ("10.128.0.0/23", 254, "10.128.1.0"),
    ],
)
def test_addresses_follow_the_rank_after_the_gateway(subnet: str, rank: int, address: str) -> None:
    assert address_of(subnet, rank) == address


@pytest.mark.parametrize(
    ("address", "mac"),
    [
        ("10.128.3.2", "02:ba:0a:80:03:02"),
        ("255.255.255.255", "02:ba:ff:ff:ff:ff"),
        ("0.0.0.1", "02:ba:00:00:00:01"),
    ],
)
def test_mac_contains_the_address_and_is_locally_administered(address: str, mac: str) -> None:
    assert mac_of(address) == mac
    assert int(mac[:2], 16) & 0b11 == 0b10


@pytest.mark.parametrize(
    ("underlays", "mtu"),
    [
        ([("192.0.2.1", 1500)], 1450),
        ([("192.0.2.1", 1500), ("192.0.2.2", 1450)], 1400),
        ([("192.0.2.1", 9000), ("192.0.2.2", 9000)], 8950),
        ([("fd00::1", 1500)], 1430),
        ([("192.0.2.1", 1500), ("fd00::1", 1500)], 1430),
        ([("192.0.2.1", 1400), ("fd00::1", 1500)], 1350),
    ],
)
def test_vxlan_mtu_is_the_smallest_underlay_mtu_minus_overhead(underlays: list[tuple[str, int]], mtu: int) -> None:
    assert vxlan_mtu(underlays) == mtu


@pytest.mark.parametrize(("address", "added"), [("192.0.2.1", 14 + 20 + 8 + 8), ("fd00::1", 14 + 40 + 8 + 8)])
def test_vxlan_overhead_depends_on_the_address_family(address: str, added: int) -> None:
    assert overhead(address) == added


@pytest.mark.parametrize(
    ("text", "expected"),
    [("192.0.2.1", True), ("fd00::1", True), ("fe80::1%eth0", False), ("agent1", False), ("", False)],
)
def test_addresses_are_distinguished_from_names(text: str, expected: bool) -> None:
    assert is_address(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2001:db8::1", True),
        ("fe80::1%eth0", True),
        ("fd00::/8", True),
        ("192.0.2.7", False),
        ("192.0.2.0/24", False),
        ("main1", False),
        ("10:20", False),
        ("", False),
    ],
)
def test_ipv6_addresses_and_networks_are_recognized(text: str, expected: bool) -> None:
    assert is_ipv6(text) == expected


@pytest.mark.parametrize(
    ("host", "written"), [("2001:db8::1", "[2001:db8::1]"), ("192.0.2.7", "192.0.2.7"), ("main1", "main1")]
)
def test_only_ipv6_addresses_are_put_in_brackets(host: str, written: str) -> None:
    assert bracketed(host) == written
