"""The ``firewall_*`` options: valid values, and one message for each invalid one."""

from __future__ import annotations

import ipaddress
import itertools
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.backendai.cluster.plugins.module_utils._firewall.policy import (
    AllowRule,
    Firewall,
    filter_family,
    parse_firewall,
    parse_timeout,
)
from ansible_collections.backendai.cluster.plugins.module_utils._model.plain_data import from_plain, to_plain
from ansible_collections.backendai.cluster.plugins.module_utils._model.validation import ValidationError

CONNECTION = ["203.0.113.7", "51234", "192.0.2.1", "2222"]
NO_MANAGER = (
    "firewall_ssh_sources is empty, and this connection has no client address: list the addresses of the hosts"
    " that operators use, or no login would be possible."
)
NETWORK_RULE = "must be an address or a network, such as 192.0.2.7 or 192.0.2.0/24"
HOST_BITS = "is a network with host bits: it must be the network's own address, such as 10.0.0.0/8"
PORT_RULE = "must be a whole number from 1 to 65535"
RANGE_RULE = "must be ports from 1 to 65535, ranges from low to high"

texts = st.tuples(st.sampled_from(["192.0.2.0/24", "2001:db8::/32", "198.51.100.7/32"]))
allowances = st.builds(
    AllowRule, st.sampled_from(["tcp", "udp"]), st.tuples(st.sampled_from(["22", "9100-9199"])), texts
)
firewalls = st.builds(
    Firewall,
    ssh_sources=texts,
    gateways=texts | st.just(()),
    agents=texts | st.just(()),
    ssh_ports=st.tuples(st.integers(1, 65535)),
    allow=st.lists(allowances, max_size=3).map(tuple),
    interfaces=st.sampled_from([(), ("eth0",), ("eth0", "eth1")]),
    management=texts | st.just(()),
    compute=texts | st.just(()),
)


def parsed(default_sources: tuple[str, ...] = (), connection: list[str] | None = None, **options: Any) -> Firewall:
    """Return the firewall of these options, with an SSH client at 203.0.113.7 by default."""
    return parse_firewall(options, default_sources, CONNECTION if connection is None else connection)


def refusal(**options: Any) -> str:
    """Return the error message for these options."""
    with pytest.raises(ValidationError) as refused:
        parsed(**options)
    return str(refused.value)


def allowed(**entry: Any) -> AllowRule:
    """Return the rule of one entry of ``firewall_allow``."""
    (item,) = parsed(allow=[entry]).allow
    return item


@given(firewalls)
def test_a_firewall_survives_json(firewall: Firewall) -> None:
    assert from_plain(Firewall, json.loads(json.dumps(to_plain(firewall))), "firewall") == firewall


@pytest.mark.parametrize("managers", [None, [], "", ()])
def test_default_ssh_sources_are_inventory_and_ssh_client(managers: Any) -> None:
    firewall = parsed(("198.51.100.7", "2001:db8::7"), ssh_sources=managers)
    assert firewall.ssh_sources == ("198.51.100.7/32", "203.0.113.7/32", "2001:db8::7/128")


def test_given_ssh_sources_replace_the_defaults() -> None:
    assert parsed(("198.51.100.7",), ssh_sources=["10.0.0.0/8"]).ssh_sources == ("10.0.0.0/8",)


def test_the_ssh_client_is_a_sufficient_source() -> None:
    assert parsed() == Firewall(("203.0.113.7/32",), ssh_ports=(2222,))


def test_inventory_hosts_are_sufficient_without_ssh() -> None:
    assert parsed(("198.51.100.7",), []) == Firewall(("198.51.100.7/32",))


def test_the_zone_of_a_link_local_ssh_client_is_removed() -> None:
    assert parsed(connection=["fe80::1%eth0", "51234", "fe80::2%eth0", "22"]).ssh_sources == ("fe80::1/128",)


def test_no_ssh_source_is_rejected() -> None:
    with pytest.raises(ValidationError) as refused:
        parsed((), [])
    assert str(refused.value) == NO_MANAGER


@pytest.mark.parametrize("option", ["ssh_sources", "gateways", "agents"])
def test_networks_are_merged_and_ipv4_is_first(option: str) -> None:
    value = ["2001:db8::1", "192.0.2.128/25", "192.0.2.0/25", "192.0.2.7", "10.1.0.0/16", "10.0.0.0/8", "2001:db8::1"]
    firewall = parse_firewall({option: value}, (), CONNECTION)
    assert getattr(firewall, option) == ("10.0.0.0/8", "192.0.2.0/24", "2001:db8::1/128")


@pytest.mark.parametrize(
    "value", ['["10.0.0.0/8", "192.0.2.7"]', "10.0.0.0/8, 192.0.2.7", ("10.0.0.0/8", " 192.0.2.7 ")]
)
def test_networks_can_be_json_or_comma_separated(value: Any) -> None:
    assert parsed(agents=value).agents == ("10.0.0.0/8", "192.0.2.7/32")


@pytest.mark.parametrize("option", ["ssh_sources", "gateways", "agents"])
@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        (["10.0.0.1/8"], f": '10.0.0.1/8' {HOST_BITS}."),
        (["2001:db8::1/32"], f": '2001:db8::1/32' {HOST_BITS}."),
        (["agent1"], f": 'agent1' {NETWORK_RULE}."),
        (["10.0.0.0/33"], f": '10.0.0.0/33' {NETWORK_RULE}."),
        (["10"], f": '10' {NETWORK_RULE}."),
        ([True], "[0]: True must be a line of text."),
        (["10.0.0.0/8", None], "[1] is required."),
        ({"a": 1}, ": {'a': 1} must be a list of texts."),
    ],
)
def test_an_invalid_network_is_rejected_with_its_option(option: str, value: Any, sentence: str) -> None:
    assert refusal(**{option: value}) == f"firewall_{option}{sentence}"


def test_invalid_ssh_sources_are_not_treated_as_empty() -> None:
    with pytest.raises(ValidationError) as refused:
        parsed((), [], ssh_sources=["agent1"])
    assert str(refused.value) == f"firewall_ssh_sources: 'agent1' {NETWORK_RULE}."


@pytest.mark.parametrize(
    ("ports", "connection", "taken"),
    [
        ([], CONNECTION, (2222,)),
        (None, [], (22,)),
        ([2200, 22, "2200"], CONNECTION, (22, 2200)),
        (2200, CONNECTION, (2200,)),
        ("2200", CONNECTION, (2200,)),
        ("[2200, 22]", CONNECTION, (22, 2200)),
        ("2200, 22", CONNECTION, (22, 2200)),
    ],
)
def test_ssh_ports_default_to_the_port_of_the_connection(
    ports: Any, connection: list[str], taken: tuple[int, ...]
) -> None:
    assert parsed(("192.0.2.7",), connection, ssh_ports=ports).ssh_ports == taken


@pytest.mark.parametrize(
    ("ports", "sentence"),
    [
        ([0], f"firewall_ssh_ports: '0' {PORT_RULE}."),
        ([65536], f"firewall_ssh_ports: '65536' {PORT_RULE}."),
        (["ssh"], f"firewall_ssh_ports: 'ssh' {PORT_RULE}."),
        ([True], "firewall_ssh_ports[0]: True must be a line of text."),
        (3.5, "firewall_ssh_ports: 3.5 must be a list of texts."),
    ],
)
def test_an_invalid_ssh_port_is_rejected(ports: Any, sentence: str) -> None:
    assert refusal(ssh_ports=ports) == sentence


@pytest.mark.parametrize(
    ("value", "taken"),
    [
        (["eth1", "eth0"], ("eth0", "eth1")),
        ("eth1,eth0", ("eth0", "eth1")),
        ('["eth0"]', ("eth0",)),
        (None, ()),
        (["eth1", "eth0", "eth1"], ("eth0", "eth1")),
        ("eth4,eth2,eth0,eth3,eth1,eth2", ("eth0", "eth1", "eth2", "eth3", "eth4")),
        ("eth0,eth0", ("eth0",)),
    ],
)
def test_interfaces_are_sorted_and_unique(value: Any, taken: tuple[str, ...]) -> None:
    assert parsed(interfaces=value).interfaces == taken


def test_a_non_string_interface_is_rejected() -> None:
    assert refusal(interfaces=[["eth0"]]) == "firewall_interfaces[0]: ['eth0'] must be a line of text."


def test_an_allow_rule_defaults_to_tcp_from_everywhere() -> None:
    assert allowed(ports=[9100]) == AllowRule("tcp", ("9100",), ())
    assert allowed(protocol="udp", ports="161", sources=["10.0.0.1", "10.0.0.0"]) == AllowRule(
        "udp", ("161",), ("10.0.0.0/31",)
    )


def test_an_allow_rule_of_any_protocol_needs_sources() -> None:
    assert allowed(protocol="any", sources=["10.0.0.0/8"]) == AllowRule("any", (), ("10.0.0.0/8",))


def test_allow_rules_can_be_json_and_keep_their_order() -> None:
    listed = [{"ports": ["2"]}, {"ports": ["1"]}]
    assert parsed(allow=json.dumps(listed)) == parsed(allow=listed)
    assert [item.ports for item in parsed(allow=listed).allow] == [("2",), ("1",)]


@pytest.mark.parametrize(
    ("ports", "taken"),
    [
        (["9100-9199", "9150"], ("9100-9199",)),
        (["9150-9250", "9100-9199"], ("9100-9250",)),
        (["9100-9250", "9150-9199"], ("9100-9250",)),
        (["22", "23"], ("22-23",)),
        (["24", "22"], ("22", "24")),
        (["9100-9100"], ("9100",)),
        (["1-65535"], ("1-65535",)),
        (9100, ("9100",)),
        ("9100-9199,22", ("22", "9100-9199")),
        ('["22"]', ("22",)),
        ([" 22 - 23 "], ("22-23",)),
    ],
)
def test_overlapping_or_adjacent_ports_are_merged(ports: Any, taken: tuple[str, ...]) -> None:
    assert allowed(ports=ports).ports == taken


@given(st.lists(st.tuples(st.integers(1, 60), st.integers(0, 9)), min_size=1))
def test_port_ranges_contain_exactly_the_given_ports(spans: list[tuple[int, int]]) -> None:
    firewall = allowed(ports=[f"{low}-{low + more}" for low, more in spans]).ports
    ranges = [(int(item.partition("-")[0]), int(item.rpartition("-")[2])) for item in firewall]
    ports = [port for low, high in ranges for port in range(low, high + 1)]
    assert ports == sorted({port for low, more in spans for port in range(low, low + more + 1)})
    assert all(first[1] + 1 < second[0] for first, second in itertools.pairwise(ranges))


@pytest.mark.parametrize(
    ("entry", "sentence"),
    [
        ({"ports": ["0"]}, f".ports: '0' {RANGE_RULE}."),
        ({"ports": ["65536"]}, f".ports: '65536' {RANGE_RULE}."),
        ({"ports": ["http"]}, ".ports: 'http' must be port numbers and ranges such as 22,80,8000-9000."),
        ({"ports": ["9199-9100"]}, f".ports: '9199-9100' {RANGE_RULE}."),
        ({"ports": ["9100-"]}, ".ports: '9100-' must be port numbers and ranges such as 22,80,8000-9000."),
        ({"ports": ["9100-65536"]}, f".ports: '9100-65536' {RANGE_RULE}."),
        ({"ports": [True, "22"], "sources": "10.0.0.0/8"}, ".ports[0]: True must be a line of text."),
        # A rule without a condition would allow all traffic.
        ({"ports": ","}, ".ports is required for tcp."),
        ({"protocol": "any", "sources": ","}, ": protocol any requires sources and has no ports."),
        ({"ports": ["22"], "sources": ["10.0.0.1/8"]}, f".sources: '10.0.0.1/8' {HOST_BITS}."),
        ({"ports": ["22"], "protocol": "icmp"}, ".protocol: 'icmp' must be one of tcp, udp, any."),
        ({"ports": ["22"], "protocol": None}, ".protocol is required."),
        ({}, ".ports is required for tcp."),
        ({"ports": 3.5}, ".ports: 3.5 must be a list of texts.\nfirewall_allow[1].ports is required for tcp."),
        ({"protocol": "udp", "sources": ["10.0.0.0/8"]}, ".ports is required for udp."),
        ({"protocol": "any"}, ": protocol any requires sources and has no ports."),
        (
            {"protocol": "any", "sources": ["10.0.0.0/8"], "ports": ["22"]},
            ": protocol any requires sources and has no ports.",
        ),
        ({"ports": ["22"], "port": 22}, ".port is not known; allowed are protocol, ports, sources."),
        ("22", ": '22' must be a mapping of protocol, ports, sources."),
    ],
)
def test_each_error_in_an_allow_rule_has_one_message(entry: Any, sentence: str) -> None:
    assert refusal(allow=[{"ports": ["80"]}, entry]) == f"firewall_allow[1]{sentence}"


def test_allow_rules_must_be_a_list() -> None:
    assert refusal(allow="tcp/22") == "firewall_allow: 'tcp/22' must be a list of mappings."


def test_all_problems_are_reported_at_once() -> None:
    assert refusal(ssh_sources=["x"], gateways=["y"], ssh_ports=[0], allow=[{}]).splitlines() == [
        f"firewall_ssh_sources: 'x' {NETWORK_RULE}.",
        f"firewall_ssh_ports: '0' {PORT_RULE}.",
        f"firewall_gateways: 'y' {NETWORK_RULE}.",
        "firewall_allow[0].ports is required for tcp.",
    ]


@pytest.mark.parametrize(("given_as", "seconds"), [(5, 5), ("60", 60), (3600, 3600)])
def test_the_confirm_timeout_has_limits(given_as: Any, seconds: int) -> None:
    assert parse_timeout(given_as) == seconds


@pytest.mark.parametrize("given_as", [4, 3601, -1, "soon", True, 5.5])
def test_an_invalid_confirm_timeout_is_rejected(given_as: Any) -> None:
    with pytest.raises(ValidationError) as refused:
        parse_timeout(given_as)
    assert str(refused.value) == (f"firewall_confirm_timeout: {given_as!r} must be a whole number from 5 to 3600.")


@given(st.lists(st.ip_addresses().map(str)))
def test_every_address_belongs_to_one_family(addresses: list[str]) -> None:
    four, six = filter_family(addresses, 4), filter_family(addresses, 6)
    assert sorted([*four, *six]) == sorted(addresses)
    assert {ipaddress.ip_address(item).version for item in four} <= {4}
    assert {ipaddress.ip_address(item).version for item in six} <= {6}
