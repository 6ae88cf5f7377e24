"""The host firewall as nft text: sets, rules and the final drop."""

from __future__ import annotations

import dataclasses
import re

import pytest

from ansible_collections.backendai.cluster.plugins.module_utils._firewall.host_rules import (
    FirewallRules,
    build_firewall_rules,
)
from ansible_collections.backendai.cluster.plugins.module_utils._firewall.isolation_policy import IsolationPolicy
from ansible_collections.backendai.cluster.plugins.module_utils._firewall.policy import AllowRule, Firewall
from ansible_collections.backendai.cluster.plugins.module_utils._firewall.ruleset import render

NOTHING = IsolationPolicy((), (), (), {})
MINE = Firewall(
    ssh_sources=("192.0.2.7/32", "2001:db8::7/128"),
    gateways=("198.51.100.7/32",),
    agents=("192.0.2.6/32", "2001:db8::6/128"),
    ssh_ports=(22, 2222),
)


def rules(firewall: Firewall = MINE, *wireguard: int) -> FirewallRules:
    return build_firewall_rules(firewall, wireguard)


def chain(name: str, text: str) -> list[str]:
    """Return the rules of a chain, in their order."""
    match = re.search(rf"^    chain {name} {{\n(.*?)^    }}", text, re.MULTILINE | re.DOTALL)
    assert match, f"{name} is not in the text"
    return [line.strip() for line in match[1].splitlines() if not line.strip().startswith("#")]


def allowing(*allow: AllowRule) -> list[str]:
    """Return the rules of allow rules, before everything else is dropped."""
    rendered = chain("host_firewall", rules(dataclasses.replace(MINE, allow=allow)).chain)
    usual = chain("host_firewall", rules().chain)
    assert rendered[: len(usual) - 1] == usual[:-1]
    assert rendered[-1] == usual[-1] == "goto drop_ingress"
    return rendered[len(usual) - 1 : -1]


def test_without_a_firewall_no_rules_are_added() -> None:
    assert build_firewall_rules(None, [51820]) == FirewallRules({}, {}, "", "", "")


def test_each_source_has_a_set_for_each_family() -> None:
    result = rules().elements
    assert {name: result[name] for name in ("managers4", "managers6", "peers4", "peers6")} == {
        "managers4": ["192.0.2.7/32"],
        "managers6": ["2001:db8::7/128"],
        "peers4": ["192.0.2.6/32"],
        "peers6": ["2001:db8::6/128"],
    }


def test_all_known_sources_may_ping_the_host() -> None:
    result = rules().elements
    assert (result["trusted4"], result["trusted6"]) == (["192.0.2.6/31", "198.51.100.7/32"], ["2001:db8::6/127"])


def test_ports_are_those_of_ssh_and_wireguard() -> None:
    result = rules(MINE, 51821, 51820).elements
    assert {name: ports for name, ports in result.items() if name.endswith("_ports")} == {
        "manager_ports": ["22", "2222"],
        "peer_udp_ports": ["51820", "51821"],
    }


def test_every_set_has_a_type_and_elements() -> None:
    result = rules(dataclasses.replace(MINE, interfaces=("eth1",)))
    assert result.sets.keys() == result.elements.keys()
    assert result.sets["firewall_ifaces"] == "type ifname"
    assert {result.sets[name] for name in result.sets if name.endswith("4")} == {"type ipv4_addr; flags interval"}
    assert {result.sets[name] for name in result.sets if name.endswith("6")} == {"type ipv6_addr; flags interval"}
    assert {result.sets[name] for name in result.sets if name.endswith("_ports")} == {"type inet_service"}


def test_a_firewall_applies_to_all_interfaces_by_default() -> None:
    assert rules().ingress == "        jump host_firewall\n"


def test_a_firewall_applies_to_its_interfaces() -> None:
    result = rules(dataclasses.replace(MINE, interfaces=("eth1", "eth9")))
    assert result.elements["firewall_ifaces"] == ['"eth1"', '"eth9"']
    assert result.ingress == "        iifname @firewall_ifaces jump host_firewall\n"


def test_only_published_ports_are_routed_from_outside() -> None:
    text = render(NOTHING, MINE, ["eth0"])
    assert (
        chain("forward", text)[-1]
        == "iifname @external_ifaces ct direction original ct status & dnat == 0 goto drop_routed"
    )
    assert "external_ifaces" not in render(NOTHING)


def test_transit_traffic_is_not_filtered_after_session_rules() -> None:
    forward = chain("forward", render(NOTHING, MINE, ["br0"]))
    assert forward[-2] == "iifname @external_ifaces oifname @external_ifaces return"
    assert forward[:-2] == chain("forward", render(NOTHING))
    assert not [rule for rule in forward[:-2] if rule.endswith("return")]


def test_a_host_without_external_interfaces_has_an_empty_set() -> None:
    assert "    set external_ifaces { type ifname;  }\n" in render(NOTHING, MINE)
    assert "fib saddr oifname" not in render(NOTHING, MINE)


def test_spoofed_inside_addresses_are_dropped_outside() -> None:
    arrivals = chain("ingress", render(NOTHING, None, ["eth0", "eth1"]))
    forged = arrivals.index("ct direction reply return") - 2
    mismatch = 'fib saddr oifname != { "eth0", "eth1" } goto drop_forged'
    assert arrivals[forged : forged + 2] == [
        f"iifname @external_ifaces ip saddr != 0.0.0.0 {mismatch}",
        f"iifname @external_ifaces ip6 saddr != {{ ::, fe80::/10 }} {mismatch}",
    ]


def test_tunnel_traffic_is_checked_only_by_its_chain() -> None:
    """Traffic that is routed from there is still checked: it could be for a container."""
    text = render(NOTHING, MINE, ["eth0"])
    arrivals = chain("ingress", text)
    (tunnels,) = [number for number, rule in enumerate(arrivals) if "@tunnel_ports" in rule]
    assert arrivals[tunnels] == "udp dport @tunnel_ports fib daddr type local return"
    assert "goto drop_forged" in arrivals[tunnels + 1]
    assert "udp dport @tunnel_ports jump vxlan_peers" in chain("input", text)


def test_host_firewall_rules_are_last_after_published_ports() -> None:
    text = render(NOTHING, MINE, ["eth0"])
    assert chain("ingress", text)[-3:] == [
        "ip daddr . tcp dport @published4 goto published",
        "ip6 daddr . tcp dport @published6 goto published",
        "jump host_firewall",
    ]
    without = chain("ingress", render(NOTHING, None, ["eth0"]))
    assert without == chain("ingress", text)[:-1]
    assert "chain host_firewall {" not in render(NOTHING)


@pytest.mark.parametrize(
    "rule",
    [
        "ip saddr @managers4 tcp dport @manager_ports return",
        "ip6 saddr @managers6 tcp dport @manager_ports return",
        "ip saddr @peers4 udp dport @peer_udp_ports return",
        "ip6 saddr @peers6 udp dport @peer_udp_ports return",
        "ip saddr @trusted4 icmp type echo-request return",
        "ip6 saddr @trusted6 icmpv6 type echo-request return",
        # Ports of sessions have their own chains.
        "tcp dport @ssh_ports return",
        "ip saddr . ether saddr @host_pinned4 return",
        "ip saddr . iifname @host_encrypted4 return",
        "ip saddr @host_routed4 return",
        # Required for IPv6 neighbour discovery and DHCP leases.
        "icmpv6 type { nd-router-advert, nd-neighbor-solicit, nd-neighbor-advert } ip6 hoplimit 255 return",
        "udp sport 67 udp dport 68 return",
        "ip6 saddr fe80::/10 udp sport 547 udp dport 546 return",
    ],
)
def test_allowed_traffic_is_accepted(rule: str) -> None:
    assert rule in chain("host_firewall", rules().chain)


def test_forwarded_traffic_is_left_to_its_chain() -> None:
    assert chain("host_firewall", rules().chain)[0] == "fib daddr type unicast return"


def test_all_other_traffic_is_dropped_and_none_accepted() -> None:
    rendered = chain("host_firewall", rules().chain)
    assert rendered[-1] == "goto drop_ingress"
    assert {rule.split()[-1] for rule in rendered[:-1]} == {"return"}
    # No rule returns unconditionally, which would disable the others.
    assert all(re.match(r"(ip6?|icmp(v6)?|udp|tcp|fib) ", rule) for rule in rendered[:-1])


def test_an_allow_rule_of_both_families_has_two_rules() -> None:
    both = AllowRule("tcp", ("80", "9100-9199"), ("192.0.2.0/24", "198.51.100.7/32", "2001:db8::/32"))
    assert allowing(both) == [
        "ip saddr { 192.0.2.0/24, 198.51.100.7/32 } tcp dport { 80, 9100-9199 } return",
        "ip6 saddr { 2001:db8::/32 } tcp dport { 80, 9100-9199 } return",
    ]


@pytest.mark.parametrize(
    ("allow_rule", "rule"),
    [
        (AllowRule("udp", ("161",), ("192.0.2.0/24",)), "ip saddr { 192.0.2.0/24 } udp dport { 161 } return"),
        (AllowRule("udp", ("161",), ("2001:db8::/32",)), "ip6 saddr { 2001:db8::/32 } udp dport { 161 } return"),
        (AllowRule("tcp", ("80",), ()), "tcp dport { 80 } return"),
        (AllowRule("any", (), ("192.0.2.0/24",)), "ip saddr { 192.0.2.0/24 } return"),
        (AllowRule("any", (), ("2001:db8::/32",)), "ip6 saddr { 2001:db8::/32 } return"),
    ],
    ids=["IPv4", "IPv6", "all sources", "any protocol over IPv4", "any protocol over IPv6"],
)
def test_an_allow_rule_has_a_rule_for_each_family(allow_rule: AllowRule, rule: str) -> None:
    assert allowing(allow_rule) == [rule]


def test_allow_rules_keep_their_order() -> None:
    assert allowing(AllowRule("tcp", ("2",), ()), AllowRule("tcp", ("1",), ())) == [
        "tcp dport { 2 } return",
        "tcp dport { 1 } return",
    ]


REPORTING = dataclasses.replace(MINE, mode="report", allow=(AllowRule("tcp", ("80",), ()),))


def test_report_mode_has_the_same_rules_and_drops_nothing_that_a_host_without_firewall_does_not() -> None:
    enforced = render(NOTHING, dataclasses.replace(REPORTING, mode="enforce"), ["eth0"])
    reported = render(NOTHING, REPORTING, ["eth0"])
    assert chain("reported_firewall", reported)[:-1] == chain("host_firewall", enforced)[:-1]
    assert chain("reported_firewall", reported)[-1] == "goto report_ingress"
    assert chain("forward", reported)[:-1] == chain("forward", enforced)[:-1]
    assert chain("forward", reported)[-1].endswith("ct status & dnat == 0 goto report_routed")
    assert chain("ingress", reported)[-1] == "jump reported_firewall"
    assert "host_firewall" not in reported
    without = render(NOTHING, None, ["eth0"])
    assert reported.count("goto drop_") == without.count("goto drop_")
    assert "report_" not in enforced
    assert "reported_" not in enforced


@pytest.mark.parametrize("name", ["report_ingress", "report_routed"])
def test_what_would_be_dropped_is_logged_at_a_limited_rate_counted_in_limited_sets_and_passes(name: str) -> None:
    text = render(NOTHING, REPORTING, ["eth0"])
    log, *counts, last = chain(name, text)
    assert log == f'limit rate 6/minute burst 5 packets log prefix "backendai {name}: "'
    assert last == "counter"
    for rule in counts:
        match = re.fullmatch(r"meta l4proto (!= )?{ tcp, udp } add @(\w+) { (.+) counter } return", rule)
        assert match, rule
        assert f"    set {match[2]} {{ typeof {match[3]}; size 4096; flags dynamic; counter;  }}\n" in text


APART = dataclasses.replace(MINE, management=("10.1.0.0/16", "fd01::/64"), compute=("10.2.0.0/16", "fd02::/64"))
NOT_TUNNELLED = 'iifname != "baiwg0" '


def gates(ports: str, zone: str, inside: str = "", rest: str = "drop_ingress") -> list[str]:
    """Return the rules that keep ports in a zone."""
    return [
        f"{ports} {inside}{word} daddr != @{zone}{family} fib daddr type local goto {rest}"
        for word, family in (("ip", 4), ("ip6", 6))
    ]


@pytest.mark.parametrize("mode", ["enforce", "report"])
def test_ssh_is_kept_in_management_and_what_agents_send_in_compute_before_anybody_is_let_in(mode: str) -> None:
    text = render(NOTHING, dataclasses.replace(APART, mode=mode), ["eth0"])
    last, rest = ("host_firewall", "drop_ingress") if mode == "enforce" else ("reported_firewall", "report_ingress")
    assert chain("ingress", text)[-1] == "jump zones"
    assert chain("zones", text) == [
        *gates("tcp dport @manager_ports", "management", rest=rest),
        *gates("tcp dport @ssh_ports", "compute", NOT_TUNNELLED, rest),
        *gates("udp dport @peer_udp_ports", "compute", NOT_TUNNELLED, rest),
        f"goto {last}",
    ]


def test_tunnels_are_kept_in_compute_before_their_datagrams_pass() -> None:
    arrivals = chain("ingress", render(NOTHING, APART, ["eth0"]))
    passing = arrivals.index("udp dport @tunnel_ports fib daddr type local return")
    assert arrivals[passing - 2 : passing] == gates("udp dport @tunnel_ports", "compute", NOT_TUNNELLED)


def test_peers_on_host_networks_are_let_in_at_addresses_of_compute() -> None:
    rendered = chain("host_firewall", rules(APART).chain)
    assert "ip daddr @compute4 ip saddr . ether saddr @host_pinned4 return" in rendered
    assert "ip daddr @compute4 ip saddr @host_routed4 return" in rendered
    assert not [rule for rule in rendered if rule.startswith(("ip saddr . ether saddr @host", "ip saddr @host"))]


def test_zones_have_sets_of_both_families() -> None:
    result = rules(dataclasses.replace(APART, compute=("10.2.0.0/16",), interfaces=("eth1",)))
    assert result.sets.keys() == result.elements.keys()
    assert {name: result.elements[name] for name in ("management4", "management6", "compute4", "compute6")} == {
        "management4": ["10.1.0.0/16"],
        "management6": ["fd01::/64"],
        "compute4": ["10.2.0.0/16"],
        "compute6": [],
    }


def test_zones_are_kept_on_all_interfaces_also_if_the_firewall_is_not() -> None:
    text = render(NOTHING, dataclasses.replace(APART, interfaces=("eth1",)), ["eth0", "eth1"])
    assert chain("ingress", text)[-1] == "jump zones"
    assert chain("zones", text)[-1] == "iifname @firewall_ifaces goto host_firewall"


@pytest.mark.parametrize(
    "half", [dataclasses.replace(APART, management=()), dataclasses.replace(APART, compute=())], ids=["compute", "mgmt"]
)
def test_without_both_zones_the_rules_are_the_usual_ones(half: Firewall) -> None:
    assert render(NOTHING, half, ["eth0"]) == render(NOTHING, MINE, ["eth0"])
