"""The isolation rules for the sessions of an agent."""

from __future__ import annotations

import dataclasses
import re

import pytest

from ansible_collections.backendai.cluster.plugins.module_utils._firewall.isolation_policy import (
    IsolationPolicy,
    build_isolation_policy,
)
from ansible_collections.backendai.cluster.plugins.module_utils._firewall.policy import Firewall
from ansible_collections.backendai.cluster.plugins.module_utils._firewall.ruleset import LOG_RATE, render
from ansible_collections.backendai.cluster.plugins.module_utils._model.facts import AgentFacts
from ansible_collections.backendai.cluster.plugins.module_utils._model.network import Network
from ansible_collections.backendai.cluster.plugins.module_utils._model.plan import SessionPlan
from ansible_collections.backendai.cluster.plugins.module_utils._model.session import PublishedPort
from ansible_collections.backendai.cluster.plugins.module_utils._network.pins import Pin
from tests.unit.builders import agent_facts, encrypted_underlay, plan

NOTHING = IsolationPolicy((), (), (), {})
COUNTS = {"agent1": 1, "agent2": 1, "agent3": 1}


def agent(number: int, **underlay: object) -> AgentFacts:
    """Return the facts of an agent with the underlay address 192.0.2.<number>, and these changes."""
    mac = f"02:00:00:00:00:0{number}"
    ordinary = {"address": f"192.0.2.{number}", "interface": "eth0", "mtu": 1500, "mac": mac}
    return agent_facts(f"agent{number}", underlay={**ordinary, **underlay})


def across(**underlay: object) -> SessionPlan:
    """Return the plan of a session over three agents with underlays that differ only in their numbers."""
    return plan(COUNTS, [agent(number, **underlay) for number in (1, 2, 3)])


def network_of(of: SessionPlan) -> Network:
    assert of.network is not None
    return of.network


def bridge_of(of: SessionPlan) -> str:
    bridge = network_of(of).bridge
    assert bridge is not None
    return bridge


def elements(text: str, name: str) -> list[str]:
    """Return the elements of a set in a ruleset."""
    result = re.search(rf"set {name} {{[^{{}}]*(?:{{ ([^{{}}]*) }})? }}", text)
    assert result, f"{name} is not in the text"
    return result[1].split(", ") if result[1] else []


def test_peers_on_the_segment_match_address_mac_and_vni() -> None:
    made_plan = across()
    vni = str(network_of(made_plan).vni)
    assert build_isolation_policy([(made_plan, "agent2")], routed=()) == IsolationPolicy(
        agents=("192.0.2.1/32", "192.0.2.2/31"),
        bridges=(),
        ports=(4789,),
        peers={"pinned4": (("192.0.2.1", "02:00:00:00:00:01", vni), ("192.0.2.3", "02:00:00:00:00:03", vni))},
    )


def test_a_peer_behind_a_router_matches_by_address() -> None:
    made_plan = across()
    vni = str(network_of(made_plan).vni)
    assert build_isolation_policy([(made_plan, "agent2")], routed={"192.0.2.3"}).peers == {
        "pinned4": (("192.0.2.1", "02:00:00:00:00:01", vni),),
        "routed4": (("192.0.2.3", vni),),
    }


def test_a_peer_without_mac_matches_by_address() -> None:
    made_plan = across(mac="")
    vni = str(network_of(made_plan).vni)
    result = build_isolation_policy([(made_plan, "agent2")], routed=())
    assert result.peers == {"routed4": (("192.0.2.1", vni), ("192.0.2.3", vni))}


def test_an_encrypted_peer_matches_by_address_and_interface() -> None:
    underlays = {number: encrypted_underlay(number) for number in (1, 2, 3)}
    made_plan = plan(COUNTS, [agent_facts(f"agent{number}", underlay=each) for number, each in underlays.items()])
    vni = str(network_of(made_plan).vni)
    assert build_isolation_policy([(made_plan, "agent2")], routed=()).peers == {
        "encrypted6": tuple(sorted((underlays[number].address, "baiwg0", vni) for number in (1, 3)))
    }


@pytest.mark.parametrize(
    ("underlay", "routed", "known_by", "beside"),
    [
        ({}, (), "pinned6", ("02:00:00:00:00:01",)),
        ({}, ("2001:db8::1",), "routed6", ()),
    ],
    ids=["on link", "behind a router"],
)
def test_ipv6_underlays_have_their_own_sets(
    underlay: dict[str, str], routed: tuple[str, ...], known_by: str, beside: tuple[str, ...]
) -> None:
    agents = [agent(number, address=f"2001:db8::{number}", **underlay) for number in (1, 2)]
    made_plan = plan({"agent1": 1, "agent2": 1}, agents)
    sender = ("2001:db8::1", *beside, str(network_of(made_plan).vni))
    assert build_isolation_policy([(made_plan, "agent2")], routed).peers == {known_by: (sender,)}


def test_a_session_on_one_agent_has_a_bridge_and_no_peers() -> None:
    made_plan = plan({"agent1": 2})
    result = build_isolation_policy([(made_plan, "agent1")], routed=())
    assert (result.bridges, result.ports, result.peers) == ((bridge_of(made_plan),), (), {})


def test_a_single_container_session_has_only_agent_addresses() -> None:
    assert build_isolation_policy([(plan({"agent1": 1}), "agent1")], routed=()) == IsolationPolicy(
        ("192.0.2.1/32",), (), (), {}
    )


def test_host_network_sshds_are_open_to_agents_of_the_session() -> None:
    made_plan = plan({"agent1": 2, "agent2": 1}, [agent(1), agent(2)], network_driver="host")
    ports = made_plan.host_ports("agent1")
    assert len(ports) == 2
    peer = ("192.0.2.2", "02:00:00:00:00:02")
    pinned = tuple(sorted((*peer, str(port)) for port in ports))
    senders = {"host_pinned4": (peer,), "ssh_pinned4": pinned}
    assert build_isolation_policy([(made_plan, "agent1")], routed=()) == IsolationPolicy(
        ("192.0.2.1/32", "192.0.2.2/32"), (), (), senders, tuple(sorted(ports))
    )


def test_an_agent_without_containers_has_no_peers() -> None:
    made_plan = plan({"agent1": 1, "agent2": 1}, [agent(1), agent(2)], network_driver="host")
    empty = dataclasses.replace(made_plan, kernels=made_plan.kernels[:1])
    assert build_isolation_policy([(empty, "agent2")], routed=()).peers == {}


def test_ssh_peers_match_like_tunnel_peers() -> None:
    made_plan = plan({"agent1": 1, "agent2": 1}, [agent(1), agent(2)], network_driver="host")
    (port,) = made_plan.host_ports("agent1")
    assert build_isolation_policy([(made_plan, "agent1")], ["192.0.2.2"]).peers == {
        "host_routed4": (("192.0.2.2",),),
        "ssh_routed4": (("192.0.2.2", str(port)),),
    }


def published(*ways: tuple[str, int], on: str = "agent1", gateways: tuple[str, ...] = ()) -> SessionPlan:
    """Return the plan of a session with main1 on that agent and these published addresses and ports."""
    ports = tuple(PublishedPort("app", "tcp", 80, address, port) for address, port in ways)
    made_plan = plan({on: 1, "agent9": 1}, [agent(int(on[-1])), agent(9)])
    return dataclasses.replace(made_plan, published=ports, gateways=gateways)


def test_an_agent_publishes_ports_of_its_own_main1_containers() -> None:
    first = published(("192.0.2.1", 30009), ("2001:db8::1", 30001), gateways=("198.51.100.7", "198.51.100.6"))
    second = published(("192.0.2.1", 30002), gateways=("198.51.100.6", "2001:db8::9"))
    result = build_isolation_policy([(first, "agent1"), (second, "agent1")], routed=())
    assert result.published == (("192.0.2.1", "30002"), ("192.0.2.1", "30009"), ("2001:db8::1", "30001"))
    assert result.gateways == ("198.51.100.6/31", "2001:db8::9/128")
    assert build_isolation_policy([(first, "agent9")], routed=()).published == ()


def test_wireguard_ports_come_from_the_agents_endpoints() -> None:
    moved = dataclasses.replace(encrypted_underlay(2), endpoint="[2001:db8::2]:51999")
    agents = [agent_facts("agent1", underlay=encrypted_underlay(1)), agent_facts("agent2", underlay=moved)]
    made_plan = plan({"agent1": 1, "agent2": 1}, agents)
    assert build_isolation_policy([(made_plan, "agent1")], routed=()).wireguard_ports == (51820,)
    assert build_isolation_policy([(made_plan, "agent2"), (made_plan, "agent2")], routed=()).wireguard_ports == (51999,)
    assert build_isolation_policy([(across(), "agent1")], routed=()).wireguard_ports == ()


def test_a_vni_is_open_only_to_agents_of_its_session() -> None:
    first = across()
    other = dataclasses.replace(network_of(first), vni=77, bridge="bai-other")
    second = dataclasses.replace(plan({"agent1": 1, "agent2": 1}, [agent(1), agent(2)]), network=other)
    result = build_isolation_policy([(first, "agent1"), (second, "agent1")], routed=())
    assert [sender for sender in result.peers["pinned4"] if sender[-1] == "77"] == [
        ("192.0.2.2", "02:00:00:00:00:02", "77")
    ]
    assert len(result.peers["pinned4"]) == 3
    assert result.bridges == ("bai-other",)
    assert result.ports == (4789,)


def test_peers_of_a_session_count_as_agents() -> None:
    made_plan = dataclasses.replace(across(), agent_addresses=("10.0.0.0/24", "10.0.0.9", "2001:db8::1"))
    assert build_isolation_policy([(made_plan, "agent1")], routed=()).agents == (
        "10.0.0.0/24",
        "192.0.2.1/32",
        "192.0.2.2/31",
    )


def test_the_ruleset_does_not_depend_on_the_session_order() -> None:
    first, two = (across(), "agent1"), (plan({"agent1": 2}), "agent1")
    assert render(build_isolation_policy([first, two], ())) == render(build_isolation_policy([two, first], ()))


def test_the_ruleset_replaces_only_its_own_tables() -> None:
    text = render(NOTHING)
    assert text.startswith("table inet backendai\ndelete table inet backendai\ntable inet backendai {\n")
    assert re.findall(r"^\s*(?:add |delete |flush )?table (.*?)(?: {)?$", text, re.MULTILINE) == [
        *["inet backendai"] * 3,
        *["bridge backendai"] * 3,
    ]
    assert "flush" not in text
    assert "DOCKER" not in text


FULL = Firewall(("192.0.2.7/32",), interfaces=("eth0",))
PEERS = dataclasses.replace(
    NOTHING,
    peers={
        "pinned4": (("192.0.2.1", "02:00:00:00:00:01", "4711"),),
        "encrypted6": (("2001:db8::1", "wg0", "4711"),),
        "routed4": (("192.0.2.3", "12"),),
    },
)
TEXTS = pytest.mark.parametrize(
    "text",
    [
        render(NOTHING),
        render(PEERS),
        render(NOTHING, FULL),
        render(NOTHING, Firewall(("192.0.2.7/32",)), ["eth0"]),
        render(NOTHING, Firewall(("192.0.2.7/32",), mode="report"), ["eth0"]),
    ],
)
ENDS = {
    "drop_ipv6",
    "drop_forged",
    "drop_tunnel",
    "drop_agent",
    "drop_metadata",
    "drop_closed",
    "drop_default_network",
    "drop_session",
    "drop_routed",
    "drop_unencrypted",
    "drop_sshd",
    "drop_published",
    "drop_ingress",
    "drop_frame",
}


REPORTS = {"report_ingress", "report_routed"}


def chains(text: str) -> dict[str, list[str]]:
    """Return the rules of each chain, in their order."""
    result = re.findall(r"^    chain (\w+) {\n(.*?)^    }", text, re.MULTILINE | re.DOTALL)
    return {
        name: [line.strip() for line in body.splitlines() if not line.strip().startswith("#")] for name, body in result
    }


@TEXTS
def test_the_ruleset_never_accepts(text: str) -> None:
    rules = [rule for listed in chains(text).values() for rule in listed]
    hooks = [rule for rule in rules if rule.startswith("type filter hook")]
    assert len(hooks) == 10
    assert all(hook.endswith("policy accept;") for hook in hooks)
    assert [rule for rule in rules if "accept" in rule and rule not in hooks] == []
    verdicts = {rule.split()[-1] for rule in rules if rule not in hooks and " packets log " not in rule}
    # The last one is the size of segments.
    limits = {"mtu"}
    jumps = {"vxlan_peers", "session_sshd", "host_firewall", "reported_firewall", "published", *ENDS, *REPORTS}
    # The last one is the end of a list of networks and their chains.
    assert verdicts <= {"return", "drop", "notrack", "counter", "}", *jumps, *limits}


@TEXTS
def test_connections_of_containers_agree_on_segments_that_fit_their_route(text: str) -> None:
    limit = "tcp flags & (syn | rst) == syn tcp option maxseg size set rt mtu"
    assert chains(text)["forward"][1:3] == [f'iifname "backendai0" {limit}', f'oifname "backendai0" {limit}']


@TEXTS
def test_drop_chains_count_and_log_with_a_limit(text: str) -> None:
    result = chains(text)
    assert {name for name in result if name.startswith("drop_")} == ENDS
    for name in ENDS:
        log = f'limit rate {LOG_RATE} burst 5 packets log prefix "backendai {name}: "'
        assert result[name] == [log, "counter drop"]
    # The kernel accepts no longer prefix.
    assert max(len(f"backendai {name}: ") for name in ENDS) < 128
    elsewhere = [rule for name, rules in result.items() if name not in ENDS for rule in rules]
    assert [rule for rule in elsewhere if rule.endswith(" drop")] == []


@TEXTS
def test_every_jump_has_a_chain_and_every_chain_is_used(text: str) -> None:
    result = chains(text)
    rules = [rule for listed in result.values() for rule in listed]
    led = {name for rule in rules for name in re.findall(r"\b(?:goto|jump) (\w+)", rule)}
    based = {name for name, rules in result.items() if rules[0].startswith("type filter hook")}
    assert {"drop_ingress", *led, *based} == set(result)


def test_only_the_host_firewall_drops_incoming_traffic() -> None:
    assert "goto drop_ingress" not in render(NOTHING)
    assert "goto drop_ingress" in render(NOTHING, FULL)


def test_encrypted_traffic_uses_only_the_wireguard_device() -> None:
    rule = 'ip6 daddr fd62:6169::/48 oifname != { "lo", "baiwg0" } goto drop_unencrypted'
    assert chains(render(NOTHING))["output"][1:] == [rule]


def test_published_ports_allow_gateways_and_host_network_agents() -> None:
    result = chains(render(NOTHING))
    assert result["published"] == [
        "ip saddr @gateways4 return",
        "ip6 saddr @gateways6 return",
        "ip saddr . ether saddr @host_pinned4 return",
        "ip saddr . iifname @host_encrypted4 return",
        "ip saddr @host_routed4 return",
        "goto drop_published",
    ]
    assert result["session_sshd"] == [
        "ip saddr . ether saddr . tcp dport @ssh_pinned4 return",
        "ip saddr . iifname . tcp dport @ssh_encrypted4 return",
        "ip saddr . tcp dport @ssh_routed4 return",
        "ip daddr . tcp dport @published4 ip saddr @gateways4 return",
        "goto drop_sshd",
    ]


PUBLISHED = dataclasses.replace(
    NOTHING,
    published=(("192.0.2.1", "30001"), ("192.0.2.1", "30002"), ("2001:db8::1", "30001")),
    gateways=("198.51.100.6/31", "2001:db8::9/128"),
)


def test_without_a_firewall_gateways_come_from_sessions() -> None:
    text = render(PUBLISHED)
    assert elements(text, "published4") == ["192.0.2.1 . 30001", "192.0.2.1 . 30002"]
    assert elements(text, "published6") == ["2001:db8::1 . 30001"]
    assert elements(text, "gateways4") == ["198.51.100.6/31"]
    assert elements(text, "gateways6") == ["2001:db8::9/128"]


def test_with_a_firewall_its_gateways_are_added() -> None:
    text = render(PUBLISHED, Firewall(("192.0.2.7/32",), gateways=("203.0.113.0/24", "2001:db8:1::/48")))
    assert elements(text, "gateways4") == ["198.51.100.6/31", "203.0.113.0/24"]
    assert elements(text, "gateways6") == ["2001:db8::9/128", "2001:db8:1::/48"]


def test_a_firewall_opens_wireguard_ports_to_peers() -> None:
    text = render(dataclasses.replace(NOTHING, wireguard_ports=(51820,)), FULL)
    assert elements(text, "peer_udp_ports") == ["51820"]


def test_a_tunnel_datagram_is_judged_by_the_senders_of_its_network() -> None:
    result = chains(render(PEERS))
    assert result["vxlan_peers"] == ["@th,96,24 vmap { 12 : goto vni_12, 4711 : goto vni_4711 }", "goto drop_tunnel"]
    assert result["vni_4711"] == [
        "ip saddr . ether saddr @pinned4_4711 return",
        "ip6 saddr . iifname @encrypted6_4711 return",
        "goto drop_tunnel",
    ]
    assert result["vni_12"] == ["ip saddr @routed4_12 return", "goto drop_tunnel"]
    assert chains(render(NOTHING))["vxlan_peers"] == ["goto drop_tunnel"]


@TEXTS
def test_old_versions_of_nft_read_the_rules(text: str) -> None:
    # 1.0.2 takes no raw payload in concatenations; 0.9.8 has no "!", and crashes at counters of elements alone.
    assert re.findall(r"\. @th|@th\S* \.|status !", text) == []
    assert [line for line in text.splitlines() if "flags dynamic" in line and "counter;" not in line] == []


@TEXTS
def test_every_set_is_used_by_a_rule(text: str) -> None:
    rules = " ".join(rule for listed in chains(text).values() for rule in listed)
    # The only other name is an offset into a packet.
    assert {*re.findall(r"@(\w+)", rules)} - {"th"} == set(re.findall(r"set (\w+) {", text))


def test_set_elements_have_the_format_of_nft() -> None:
    text = render(
        IsolationPolicy(
            agents=("192.0.2.1/32", "192.0.2.2/31"),
            bridges=("bai-1", "bai-2"),
            ports=(4789, 4790),
            peers={
                "pinned4": (("192.0.2.1", "02:00:00:00:00:01", "4711"),),
                "encrypted6": (("2001:db8::1", "wg0", "4711"),),
                "routed4": (("192.0.2.3", "4711"), ("192.0.2.3", "4712")),
                "ssh_routed4": (("192.0.2.3", "30000"),),
                "host_pinned4": (("192.0.2.1", "02:00:00:00:00:01"),),
                "host_routed4": (("192.0.2.3",),),
            },
            ssh_ports=(30000, 30001),
            pins=(
                Pin("veth1", "02:42:ac:12:00:02", "172.18.0.2"),
                Pin("veth2", "02:42:ac:12:00:03", "172.18.0.3"),
            ),
        )
    )
    assert {name: elements(text, name) for name in re.findall(r"set (\w+) {", text)} == {
        "agents": ["192.0.2.1/32", "192.0.2.2/31"],
        "containers": ["172.18.0.2 . 02:42:ac:12:00:02", "172.18.0.3 . 02:42:ac:12:00:03"],
        "container_addresses": ["172.18.0.2", "172.18.0.3"],
        "closed_networks": [],
        "name_servers": [],
        "session_bridges": ['"bai-1" . "bai-1"', '"bai-2" . "bai-2"'],
        "tunnel_ports": ["4789", "4790"],
        "pinned4_4711": ["192.0.2.1 . 02:00:00:00:00:01"],
        "encrypted6_4711": ["2001:db8::1 . wg0"],
        "routed4_4711": ["192.0.2.3"],
        "routed4_4712": ["192.0.2.3"],
        "ssh_ports": ["30000", "30001"],
        "ssh_pinned4": [],
        "ssh_encrypted4": [],
        "ssh_routed4": ["192.0.2.3 . 30000"],
        "host_pinned4": ["192.0.2.1 . 02:00:00:00:00:01"],
        "host_encrypted4": [],
        "host_routed4": ["192.0.2.3"],
        "published4": [],
        "published6": [],
        "gateways4": [],
        "gateways6": [],
        "ports": ['"veth1"', '"veth2"'],
        "port_macs": ["02:42:ac:12:00:02", "02:42:ac:12:00:03"],
        "senders": [
            '"veth1" . 02:42:ac:12:00:02 . 172.18.0.2',
            '"veth2" . 02:42:ac:12:00:03 . 172.18.0.3',
        ],
    }


def test_containers_reach_name_servers_that_an_agent_says_are_its_own_on_port_53_alone() -> None:
    rules = chains(render(NOTHING))["from_containers"]
    open_rule = "ip daddr @name_servers meta l4proto { tcp, udp } th dport 53 return"
    assert [rule for rule in rules if "@name_servers" in rule] == [open_rule]
    order = [
        "ip saddr . ether saddr != @containers goto drop_forged",
        "fib daddr type != unicast goto drop_agent",
        "ip daddr 169.254.0.0/16 goto drop_metadata",
        open_rule,
        "ip daddr @agents goto drop_agent",
        "ip daddr @closed_networks goto drop_closed",
    ]
    assert sorted(order, key=rules.index) == order


def test_an_empty_set_has_no_elements_statement() -> None:
    assert "elements" not in render(NOTHING)
    assert "{  }" not in render(NOTHING, FULL)
    assert elements(render(NOTHING, FULL), "peers4") == []


def test_forged_replies_and_errors_are_dropped_before_replies_pass() -> None:
    rules = chains(render(NOTHING))["from_containers"]
    replies = rules.index("ct direction reply return")
    for rule in (
        "ip saddr @container_addresses ip saddr . ether saddr != @containers goto drop_forged",
        "icmp type { redirect, time-exceeded, parameter-problem } goto drop_agent",
        "icmp type destination-unreachable icmp code != port-unreachable goto drop_agent",
        "icmp type destination-unreachable ip daddr @agents goto drop_agent",
    ):
        assert rules.index(rule) < replies
