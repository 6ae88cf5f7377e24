"""What firewalld and ufw have to let in, and what they do, as the programs themselves list it."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.backendai.cluster.plugins.module_utils._firewall.openings import (
    Opening,
    Rule,
    Zone,
    deciding,
    openings_of_rules,
    openings_of_session,
    parse_ufw,
    parse_zones,
    rich_rule,
    ufw_rule,
    zone_of,
    zones_of,
)
from tests.unit.builders import encrypted_underlay, plan

RECORDED = Path(__file__).with_name("recorded")
FIREWALLD = sorted(RECORDED.glob("firewalld-*.txt"))
UFW = (RECORDED / "ufw-0.36.2.txt").read_text()
PEER = Opening("udp", "4789", "10.0.0.2/32")
USERS = Opening("tcp", "31001-32000")
INSIDE = Opening("udp", "4789", "fd62:6169::/48")


def open_in(rules: Iterable[Rule], opening: Opening) -> bool | None:
    """Return whether rules let packets in or deny them before ours; ``None`` if one of ours would be the first."""
    rule = deciding(opening, rules)
    return rule and rule.accepts


def open_in_ufw(opening: Opening) -> bool | None:
    return open_in(parse_ufw(UFW), opening)


def udp(source: str) -> Opening:
    return Opening("udp", "4789", source)


def test_openings_are_of_each_source_and_range_for_itself() -> None:
    rules: list[dict[str, Any]] = [
        {"protocol": "tcp", "ports": [443, "31001-32000,32500"]},
        {"protocol": "udp", "ports": ["4789"], "sources": ["10.0.0.2", "10.0.0.3", "fd62:6169::/48"]},
    ]
    users = [Opening("tcp", "443"), USERS, Opening("tcp", "32500")]
    assert openings_of_rules(rules) == [*users, PEER, udp("10.0.0.3/32"), INSIDE]


def test_a_source_that_is_no_network_is_refused() -> None:
    with pytest.raises(ValueError, match="'agent1' does not appear to be an IPv4 or IPv6 network"):
        openings_of_rules([{"protocol": "udp", "ports": [4789], "sources": ["agent1"]}])


def test_a_session_needs_its_tunnel_from_each_peer() -> None:
    session = plan({"agent1": 1, "agent2": 1, "agent3": 1})
    port = session.network and session.network.port
    assert openings_of_session(session, "agent1") == [
        Opening("udp", str(port), f"{session.underlays[name].address}/32") for name in ("agent2", "agent3")
    ]


def test_an_encrypted_session_needs_the_encryption_and_the_tunnel_within() -> None:
    session = plan()
    peer = encrypted_underlay(2, "2001:db8::2")
    encrypted = dataclasses.replace(session, underlays={"agent1": encrypted_underlay(1), "agent2": peer})
    assert session.network
    assert openings_of_session(encrypted, "agent1") == [
        Opening("udp", "51820", "2001:db8::2/128"),
        Opening("udp", str(session.network.port), f"{peer.address}/128"),
    ]


def test_a_session_on_one_agent_needs_nothing_from_outside() -> None:
    assert openings_of_session(plan({"agent1": 2}), "agent1") == []


@pytest.mark.parametrize(
    ("rule", "opening", "covered"),
    [
        (Opening("", "1-65535", "10.0.0.0/8"), PEER, True),
        (Opening("udp", "4000-5000"), PEER, True),
        (Opening("udp", "4789"), INSIDE, True),
        (PEER, Opening("udp", "4789"), False),
        (Opening("tcp", "4789"), PEER, False),
        (Opening("udp", "4790"), PEER, False),
        (Opening("udp", "4789", "10.0.0.2"), PEER, True),
        (Opening("udp", "4789", "10.0.0.2"), udp("10.0.0.0/24"), False),
        (Opening("udp", "4789", "0.0.0.0/0"), INSIDE, False),
        (Opening("udp", "4789", "00:11:22:33:44:55"), PEER, False),
        (Opening("tcp", "31001-31500"), USERS, False),
    ],
)
def test_a_rule_covers_what_it_lets_in_in_any_form(rule: Opening, opening: Opening, covered: bool) -> None:
    assert rule.covers(opening) == covered


def test_recordings_of_two_versions_of_firewalld_are_there() -> None:
    assert [path.name for path in FIREWALLD] == ["firewalld-1.3.3.txt", "firewalld-2.3.1.txt"]


@pytest.mark.parametrize("path", FIREWALLD, ids=lambda path: path.stem)
def test_zones_are_read_as_firewalld_lists_them(path: Path) -> None:
    zones = parse_zones(path.read_text())
    assert {"block", "docker", "drop", "internal", "public", "trusted"} <= zones.keys()
    assert zone_of("backendai0", zones) == "docker"
    assert zone_of("eth0", zones) == ""
    assert zones["internal"].sources == ("10.0.7.0/24",)
    public = zones["public"]
    assert rich_rule(PEER) in public.rich
    assert rich_rule(USERS) in public.rich
    assert rich_rule(INSIDE).replace(' priority="4789"', "") in public.rich
    # The last one with a log.
    opened = (PEER, USERS, INSIDE, udp("10.0.0.3/32"), udp("10.0.0.68/32"))
    assert [open_in(public.rules, each) for each in opened] == [True] * 5
    # Denied; all but these; unknown.
    others = ("10.0.0.66/32", "10.0.0.67/32", "10.0.0.9/32")
    assert [open_in(public.rules, udp(source)) for source in others] == [False, None, None]
    assert open_in(zones["trusted"].rules, PEER)
    assert open_in(zones["drop"].rules, PEER) is None


RICH = 'rule{} family="ipv4" source address="10.0.0.2" port port="4789" protocol="udp"{} {}'


@pytest.mark.parametrize(
    ("target", "rules", "opened"),
    [
        ("default", [RICH.format("", "", "accept"), 'rule family="ipv4" source address="10.0.0.0/24" drop'], False),
        ("default", [RICH.format(' priority="-1"', "", "accept"), RICH.format("", "", "drop")], True),
        (
            "default",
            [RICH.format(' priority="4789"', "", "accept"), RICH.format(' priority="4788"', "", "drop")],
            False,
        ),
        ("default", [RICH.format(' priority="4789"', "", "accept"), RICH.format(' priority="5000"', "", "drop")], True),
        ("ACCEPT", [], True),
        ("ACCEPT", [RICH.format("", "", 'reject type="icmp-port-unreachable"')], False),
        ("ACCEPT", [RICH.format("", ' log prefix="x" level="info" limit value="3/m" audit', "drop")], False),
        ("ACCEPT", ['rule family="ipv4" port port="4000-5000" protocol="udp" drop'], False),
        ("ACCEPT", ['rule family="ipv6" port port="4000-5000" protocol="udp" drop'], True),
        ("ACCEPT", ['rule port port="4789" protocol="tcp" drop'], True),
        ("default", [RICH.format(' priority="5000"', "", "drop")], None),
    ],
)
def test_the_first_rule_of_a_zone_that_covers_packets_decides(
    target: str, rules: list[str], opened: bool | None
) -> None:
    listing = f"lan\n  target: {target}\n  ports: \n  rich rules: " + "".join(f"\n\t{rule}" for rule in rules)
    assert open_in(parse_zones(listing)["lan"].rules, PEER) is opened


def test_a_rule_that_denies_goes_before_an_open_port_of_the_zone() -> None:
    listing = f"lan\n  target: default\n  ports: 4789/udp\n  rich rules: \n\t{RICH.format('', '', 'drop')}\n"
    assert [open_in(parse_zones(listing)["lan"].rules, udp(f"10.0.0.{host}/32")) for host in (2, 3)] == [False, True]


@pytest.mark.parametrize(
    ("rules", "opened"),
    [
        (["allow 4789/udp", "deny from 10.0.0.2"], True),
        (["deny from 10.0.0.0/24", "allow 4789/udp"], False),
        (["reject 4000:5000/udp", "allow 4789"], False),
        (["limit log 4789/udp", "allow 4789"], False),
        (["deny to any proto udp", "allow 4789"], False),
        (["deny from 10.0.0.2 port 1234", "deny from 10.0.0.2 app OpenSSH", "allow 4789"], True),
        (["deny 4789/tcp", "deny from 10.0.0.3", "deny out 4789", "route deny 4789/udp"], None),
    ],
)
def test_the_first_rule_of_ufw_that_covers_packets_decides(rules: list[str], opened: bool | None) -> None:
    assert open_in(parse_ufw("\n".join(["Added user rules:", *(f"ufw {rule}" for rule in rules)])), PEER) is opened


def test_ports_that_are_named_count_as_closed_and_all_numbers_are_read() -> None:
    listing = (
        "public\n  ports: ssh/udp tftp-4789/udp 0-4789/udp\n  rich rules: \n"
        '\trule port port="4789-https" protocol="tcp" accept\n\trule port port="ssh" protocol="tcp" accept\n'
    )
    public = parse_zones(listing)["public"]
    assert len(public.rich) == 2
    asked = (("udp", "4789"), ("udp", "4790"), ("tcp", "4789"), ("tcp", "22"))
    assert [open_in(public.rules, Opening(*each)) for each in asked] == [True, None, None, None]


def test_packets_take_the_zone_of_their_source_then_of_their_interface_then_the_default() -> None:
    zones = {
        "lan": Zone(("eth1", "bond+"), (), (), ()),
        "peers": Zone((), ("10.0.0.0/24", "ipset:some"), (), ()),
        "public": Zone((), (), (), ()),
    }
    assert zones_of(PEER, zones, "public", ["eth1"]) == ["peers"]
    assert zones_of(udp("10.1.0.2/32"), zones, "public", ["eth1"]) == ["lan"]
    assert zones_of(udp("10.1.0.2/32"), zones, "public", ["eth0"]) == ["public"]
    assert zones_of(udp("10.1.0.2/32"), zones, "public", []) == ["public"]
    assert zones_of(USERS, zones, "public", ["eth0", "eth1", "bond0"]) == ["public", "lan"]


def test_names_that_begin_alike_are_of_one_zone() -> None:
    assert zone_of("bai-0123456789", {"docker": Zone(("bai-+",), (), (), ())}) == "docker"
    assert zone_of("bai-+", {"docker": Zone(("bai-+",), (), (), ())}) == "docker"
    assert zone_of("bai", {"docker": Zone(("bai-+",), (), (), ())}) == ""


def test_a_name_of_its_own_goes_before_one_that_begins_alike() -> None:
    zones = {"wild": Zone(("eth+",), (), (), ()), "wilder": Zone(("eth1+",), (), (), ())}
    exact = {**zones, "lan": Zone(("eth10",), (), (), ())}
    assert [zone_of("eth10", exact), zone_of("eth10", zones), zone_of("eth2", exact)] == ["lan", "wilder", "wild"]


def test_rules_of_ufw_are_read_as_it_lists_them() -> None:
    there = UFW.replace(" comment 'backendai.cluster'", "").splitlines()
    assert {f"ufw allow {ufw_rule(each)}" for each in (PEER, USERS, INSIDE)} <= {*there}
    opened = ("10.0.0.2/32", "10.0.0.3/32", "10.1.7.7/32", "10.2.0.0/16", "fd62:6169::7/128")
    assert [open_in_ufw(udp(source)) for source in opened] == [True] * len(opened)
    # Denied; on one interface; to one address; from one port; unknown.
    closed = ("10.0.0.4/32", "10.0.0.6/32", "10.0.0.9/32", "10.0.0.10/32", "10.0.0.200/32")
    assert [open_in_ufw(udp(source)) for source in closed] == [False, None, None, None, None]
    ports = [Opening("tcp", port) for port in ("22", "80", "8005", "443", "31500", "4790", "53", "81")]
    assert [open_in_ufw(opening) for opening in ports] == [True] * 6 + [None] * 2
    assert open_in_ufw(Opening("udp", "4790"))


def test_nothing_is_read_from_an_ufw_without_rules() -> None:
    assert parse_ufw("Added user rules (see 'ufw status' for running firewall):\n(None)\n") == []
