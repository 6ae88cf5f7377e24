"""Who may open a connection to a host, as operators say it: taken, or refused with one sentence."""

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
)


def parsed(known: tuple[str, ...] = (), connection: list[str] | None = None, **options: Any) -> Firewall:
    """Return what these options say, where Ansible came in from 203.0.113.7 unless told."""
    return parse_firewall(options, known, CONNECTION if connection is None else connection)


def refusal(**options: Any) -> str:
    """Return why these options are refused."""
    with pytest.raises(ValidationError) as refused:
        parsed(**options)
    return str(refused.value)


def allowed(**entry: Any) -> AllowRule:
    """Return the one allowance that an entry of ``firewall_allow`` makes."""
    (one,) = parsed(allow=[entry]).allow
    return one


@given(firewalls)
def test_a_firewall_comes_back_from_json(made: Firewall) -> None:
    assert from_plain(Firewall, json.loads(json.dumps(to_plain(made))), "firewall") == made


@pytest.mark.parametrize("managers", [None, [], "", ()])
def test_managers_are_those_of_the_inventory_and_whoever_runs_ansible(managers: Any) -> None:
    made = parsed(("198.51.100.7", "2001:db8::7"), ssh_sources=managers)
    assert made.ssh_sources == ("198.51.100.7/32", "203.0.113.7/32", "2001:db8::7/128")


def test_managers_that_are_named_are_all_the_managers() -> None:
    assert parsed(("198.51.100.7",), ssh_sources=["10.0.0.0/8"]).ssh_sources == ("10.0.0.0/8",)


def test_whoever_runs_ansible_is_enough() -> None:
    assert parsed() == Firewall(("203.0.113.7/32",), ssh_ports=(2222,))


def test_hosts_of_the_inventory_are_enough_where_ansible_came_in_another_way() -> None:
    assert parsed(("198.51.100.7",), []) == Firewall(("198.51.100.7/32",))


def test_a_neighbour_that_runs_ansible_is_known_without_its_interface() -> None:
    assert parsed(connection=["fe80::1%eth0", "51234", "fe80::2%eth0", "22"]).ssh_sources == ("fe80::1/128",)


def test_nobody_who_could_log_in_is_refused() -> None:
    with pytest.raises(ValidationError) as refused:
        parsed((), [])
    assert str(refused.value) == NO_MANAGER


@pytest.mark.parametrize("option", ["ssh_sources", "gateways", "agents"])
def test_networks_do_not_overlap_and_those_of_ipv4_come_first(option: str) -> None:
    named = ["2001:db8::1", "192.0.2.128/25", "192.0.2.0/25", "192.0.2.7", "10.1.0.0/16", "10.0.0.0/8", "2001:db8::1"]
    made = parse_firewall({option: named}, (), CONNECTION)
    assert getattr(made, option) == ("10.0.0.0/8", "192.0.2.0/24", "2001:db8::1/128")


@pytest.mark.parametrize(
    "named", ['["10.0.0.0/8", "192.0.2.7"]', "10.0.0.0/8, 192.0.2.7", ("10.0.0.0/8", " 192.0.2.7 ")]
)
def test_networks_may_be_json_text_or_separated_by_commas(named: Any) -> None:
    assert parsed(agents=named).agents == ("10.0.0.0/8", "192.0.2.7/32")


@pytest.mark.parametrize("option", ["ssh_sources", "gateways", "agents"])
@pytest.mark.parametrize(
    ("named", "sentence"),
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
def test_what_is_no_network_is_refused_by_its_option(option: str, named: Any, sentence: str) -> None:
    assert refusal(**{option: named}) == f"firewall_{option}{sentence}"


def test_managers_that_are_no_networks_are_not_taken_for_none() -> None:
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
def test_ports_of_ssh_are_those_that_are_named_or_the_one_of_this_connection(
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
def test_a_port_of_ssh_that_is_none_is_refused(ports: Any, sentence: str) -> None:
    assert refusal(ssh_ports=ports) == sentence


@pytest.mark.parametrize(
    ("named", "taken"),
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
def test_interfaces_are_taken_in_one_order_and_each_once(named: Any, taken: tuple[str, ...]) -> None:
    assert parsed(interfaces=named).interfaces == taken


def test_an_interface_that_is_no_text_is_refused() -> None:
    assert refusal(interfaces=[["eth0"]]) == "firewall_interfaces[0]: ['eth0'] must be a line of text."


def test_an_allowance_is_tcp_from_anybody_unless_it_says_otherwise() -> None:
    assert allowed(ports=[9100]) == AllowRule("tcp", ("9100",), ())
    assert allowed(protocol="udp", ports="161", sources=["10.0.0.1", "10.0.0.0"]) == AllowRule(
        "udp", ("161",), ("10.0.0.0/31",)
    )


def test_an_allowance_of_any_protocol_is_for_its_sources() -> None:
    assert allowed(protocol="any", sources=["10.0.0.0/8"]) == AllowRule("any", (), ("10.0.0.0/8",))


def test_allowances_may_be_json_text_and_stay_in_their_order() -> None:
    listed = [{"ports": ["2"]}, {"ports": ["1"]}]
    assert parsed(allow=json.dumps(listed)) == parsed(allow=listed)
    assert [one.ports for one in parsed(allow=listed).allow] == [("2",), ("1",)]


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
def test_ports_that_overlap_or_touch_become_one_range(ports: Any, taken: tuple[str, ...]) -> None:
    assert allowed(ports=ports).ports == taken


@given(st.lists(st.tuples(st.integers(1, 60), st.integers(0, 9)), min_size=1))
def test_ranges_of_ports_hold_exactly_what_was_named(spans: list[tuple[int, int]]) -> None:
    made = allowed(ports=[f"{low}-{low + more}" for low, more in spans]).ports
    ranges = [(int(one.partition("-")[0]), int(one.rpartition("-")[2])) for one in made]
    held = [port for low, high in ranges for port in range(low, high + 1)]
    assert held == sorted({port for low, more in spans for port in range(low, low + more + 1)})
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
        # A rule of nothing but its verdict would let in everybody.
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
def test_each_mistake_in_an_allowance_gets_one_sentence(entry: Any, sentence: str) -> None:
    assert refusal(allow=[{"ports": ["80"]}, entry]) == f"firewall_allow[1]{sentence}"


def test_allowances_that_are_no_list_are_refused() -> None:
    assert refusal(allow="tcp/22") == "firewall_allow: 'tcp/22' must be a list of mappings."


def test_all_that_is_wrong_is_said_at_once() -> None:
    assert refusal(ssh_sources=["x"], gateways=["y"], ssh_ports=[0], allow=[{}]).splitlines() == [
        f"firewall_ssh_sources: 'x' {NETWORK_RULE}.",
        f"firewall_ssh_ports: '0' {PORT_RULE}.",
        f"firewall_gateways: 'y' {NETWORK_RULE}.",
        "firewall_allow[0].ports is required for tcp.",
    ]


@pytest.mark.parametrize(("given_as", "seconds"), [(5, 5), ("60", 60), (3600, 3600)])
def test_a_trial_lasts_some_seconds_to_an_hour(given_as: Any, seconds: int) -> None:
    assert parse_timeout(given_as) == seconds


@pytest.mark.parametrize("given_as", [4, 3601, -1, "soon", True, 5.5])
def test_a_trial_that_nobody_could_confirm_or_would_wait_for_is_refused(given_as: Any) -> None:
    with pytest.raises(ValidationError) as refused:
        parse_timeout(given_as)
    assert str(refused.value) == (f"firewall_confirm_timeout: {given_as!r} must be a whole number from 5 to 3600.")


@given(st.lists(st.ip_addresses().map(str)))
def test_every_address_is_of_one_family(addresses: list[str]) -> None:
    four, six = filter_family(addresses, 4), filter_family(addresses, 6)
    assert sorted([*four, *six]) == sorted(addresses)
    assert {ipaddress.ip_address(one).version for one in four} <= {4}
    assert {ipaddress.ip_address(one).version for one in six} <= {6}
