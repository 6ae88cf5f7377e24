"""From the sessions that an agent holds to the rules that keep them apart."""

from __future__ import annotations

import dataclasses
import re

import pytest

from ansible_collections.backendai.cluster.plugins.module_utils._core.facts import AgentFacts
from ansible_collections.backendai.cluster.plugins.module_utils._core.isolation import (
    Isolation,
    isolation_of,
    render,
)
from ansible_collections.backendai.cluster.plugins.module_utils._core.network import Network
from ansible_collections.backendai.cluster.plugins.module_utils._core.plan import SessionPlan
from tests.unit.builders import agent_facts, plan

NOTHING = Isolation((), (), (), {})
COUNTS = {"agent1": 1, "agent2": 1, "agent3": 1}


def agent(number: int, **underlay: object) -> AgentFacts:
    """Return the facts of an agent that meets its peers at 192.0.2.<number>, or as told."""
    mac = f"02:00:00:00:00:0{number}"
    ordinary = {"address": f"192.0.2.{number}", "interface": "eth0", "mtu": 1500, "mac": mac}
    return agent_facts(f"agent{number}", underlay={**ordinary, **underlay})


def across(**underlay: object) -> SessionPlan:
    """Return the plan of a session over three agents whose underlays are alike but for their numbers."""
    return plan(COUNTS, [agent(number, **underlay) for number in (1, 2, 3)])


def network_of(of: SessionPlan) -> Network:
    assert of.network is not None
    return of.network


def bridge_of(of: SessionPlan) -> str:
    bridge = network_of(of).bridge
    assert bridge is not None
    return bridge


def elements(text: str, name: str) -> list[str]:
    """Return the elements that a text gives to a set."""
    found = re.search(rf"set {name} {{[^{{}}]*(?:{{ ([^{{}}]*) }})? }}", text)
    assert found, f"{name} is not in the text"
    return found[1].split(", ") if found[1] else []


def test_peers_on_the_same_segment_are_known_by_address_mac_and_identifier() -> None:
    made = across()
    vni = str(network_of(made).vni)
    assert isolation_of([(made, "agent2")], routed=()) == Isolation(
        agents=("192.0.2.1/32", "192.0.2.2/31"),
        bridges=(bridge_of(made),),
        ports=(4789,),
        senders={"pinned4": (("192.0.2.1", "02:00:00:00:00:01", vni), ("192.0.2.3", "02:00:00:00:00:03", vni))},
    )


def test_a_peer_behind_a_router_is_known_by_its_address() -> None:
    made = across()
    vni = str(network_of(made).vni)
    assert isolation_of([(made, "agent2")], routed={"192.0.2.3"}).senders == {
        "pinned4": (("192.0.2.1", "02:00:00:00:00:01", vni),),
        "routed4": (("192.0.2.3", vni),),
    }


def test_a_peer_whose_interface_has_no_mac_is_known_by_its_address() -> None:
    made = across(mac="")
    vni = str(network_of(made).vni)
    found = isolation_of([(made, "agent2")], routed=())
    assert found.senders == {"routed4": (("192.0.2.1", vni), ("192.0.2.3", vni))}


def test_a_peer_in_the_encrypted_underlay_is_known_by_address_and_interface() -> None:
    made = across(interface="backendai-wg", mac="", public_key="KEY")
    vni = str(network_of(made).vni)
    assert isolation_of([(made, "agent2")], routed=()).senders == {
        "encrypted4": (("192.0.2.1", "backendai-wg", vni), ("192.0.2.3", "backendai-wg", vni))
    }


@pytest.mark.parametrize(
    ("underlay", "routed", "known_by", "beside"),
    [
        ({}, (), "pinned6", ("02:00:00:00:00:01",)),
        ({}, ("2001:db8::1",), "routed6", ()),
        ({"public_key": "KEY", "interface": "wg0"}, (), "encrypted6", ("wg0",)),
    ],
    ids=["on link", "behind a router", "encrypted"],
)
def test_ipv6_underlays_have_sets_of_their_own(
    underlay: dict[str, str], routed: tuple[str, ...], known_by: str, beside: tuple[str, ...]
) -> None:
    agents = [agent(number, address=f"2001:db8::{number}", **underlay) for number in (1, 2)]
    made = plan({"agent1": 1, "agent2": 1}, agents)
    sender = ("2001:db8::1", *beside, str(network_of(made).vni))
    assert isolation_of([(made, "agent2")], routed).senders == {known_by: (sender,)}


def test_a_session_on_one_agent_has_a_bridge_and_nobody_who_sends() -> None:
    made = plan({"agent1": 2})
    found = isolation_of([(made, "agent1")], routed=())
    assert (found.bridges, found.ports, found.senders) == ((bridge_of(made),), (), {})


def test_a_session_of_one_has_the_addresses_of_agents_only() -> None:
    assert isolation_of([(plan({"agent1": 1}), "agent1")], routed=()) == Isolation(("192.0.2.1/32",), (), (), {})


def test_on_the_agents_own_network_each_sshd_is_open_to_the_agents_of_its_session() -> None:
    made = plan({"agent1": 2, "agent2": 1}, [agent(1), agent(2)], network_driver="host")
    ports = made.host_ports("agent1")
    assert len(ports) == 2
    pinned = tuple(sorted(("192.0.2.2", "02:00:00:00:00:02", str(port)) for port in ports))
    assert isolation_of([(made, "agent1")], routed=()) == Isolation(
        ("192.0.2.1/32", "192.0.2.2/32"), (), (), {"ssh_pinned4": pinned}, tuple(sorted(ports))
    )


@pytest.mark.parametrize(
    ("underlay", "routed", "sender"),
    [
        ({}, ["192.0.2.2"], ("ssh_routed4", "192.0.2.2")),
        ({"interface": "wg0", "public_key": "k", "endpoint": "e"}, [], ("ssh_encrypted4", "192.0.2.2", "wg0")),
    ],
    ids=["routed", "encrypted"],
)
def test_who_logs_in_is_known_as_whoever_sends_into_a_tunnel(
    underlay: dict[str, str], routed: list[str], sender: tuple[str, ...]
) -> None:
    made = plan({"agent1": 1, "agent2": 1}, [agent(1, **underlay), agent(2, **underlay)], network_driver="host")
    known_by, *rest = sender
    (port,) = made.host_ports("agent1")
    assert isolation_of([(made, "agent1")], routed).senders == {known_by: ((*rest, str(port)),)}


def test_an_identifier_is_open_to_the_agents_of_its_own_session_only() -> None:
    first = across()
    other = dataclasses.replace(network_of(first), vni=77, bridge="bai-other")
    second = dataclasses.replace(plan({"agent1": 1, "agent2": 1}, [agent(1), agent(2)]), network=other)
    found = isolation_of([(first, "agent1"), (second, "agent1")], routed=())
    assert [sender for sender in found.senders["pinned4"] if sender[-1] == "77"] == [
        ("192.0.2.2", "02:00:00:00:00:02", "77")
    ]
    assert len(found.senders["pinned4"]) == 3
    assert found.bridges == tuple(sorted((bridge_of(first), "bai-other")))
    assert found.ports == (4789,)


def test_the_peers_of_a_session_count_as_agents_whatever_its_plan_knows_of_them() -> None:
    made = dataclasses.replace(across(), agent_addresses=("10.0.0.0/24", "10.0.0.9", "2001:db8::1"))
    assert isolation_of([(made, "agent1")], routed=()).agents == ("10.0.0.0/24", "192.0.2.1/32", "192.0.2.2/31")


def test_the_same_sessions_give_the_same_text_in_any_order() -> None:
    one, two = (across(), "agent1"), (plan({"agent1": 2}), "agent1")
    assert render(isolation_of([one, two], ())) == render(isolation_of([two, one], ()))


def test_the_text_replaces_the_table_and_touches_no_other() -> None:
    text = render(NOTHING)
    assert text.startswith("table inet backendai\ndelete table inet backendai\ntable inet backendai {\n")
    assert re.findall(r"^\s*(?:add |delete |flush )?table (.*?)(?: {)?$", text, re.MULTILINE) == ["inet backendai"] * 3
    assert "flush" not in text
    assert "DOCKER" not in text


def test_the_text_only_ever_drops() -> None:
    rules = [line.strip() for line in render(NOTHING).splitlines() if not line.strip().startswith("#")]
    assert [rule for rule in rules if "accept" in rule and not rule.startswith("type filter hook")] == []
    assert {
        rule.split()[-1] for rule in rules if rule.startswith(("ip", "iif", "oif", "fib", "ct", "meta", "udp"))
    } == {
        "return",
        "drop",
        "tunnels",
        "logins",
    }


def test_what_is_meant_to_be_encrypted_leaves_by_no_other_interface() -> None:
    assert 'ip6 daddr fd62:6169::/48 oifname != { "lo", "baiwg0" } drop' in render(NOTHING)


def test_every_set_is_asked_by_a_rule() -> None:
    text = render(NOTHING)
    assert sorted(re.findall(r"set (\w+) {", text)) == sorted(set(re.findall(r"@(\w+) ", text)) | {"tunnel_ports"})


def test_sets_have_their_elements_as_nft_writes_them() -> None:
    text = render(
        Isolation(
            agents=("192.0.2.1/32", "192.0.2.2/31"),
            bridges=("bai-1", "bai-2"),
            ports=(4789, 4790),
            senders={
                "pinned4": (("192.0.2.1", "02:00:00:00:00:01", "4711"),),
                "encrypted6": (("2001:db8::1", "wg0", "4711"),),
                "routed4": (("192.0.2.3", "4711"), ("192.0.2.3", "4712")),
                "ssh_routed4": (("192.0.2.3", "30000"),),
            },
            ssh_ports=(30000, 30001),
        )
    )
    assert {name: elements(text, name) for name in re.findall(r"set (\w+) {", text)} == {
        "agents": ["192.0.2.1/32", "192.0.2.2/31"],
        "same": ['"bai-1" . "bai-1"', '"bai-2" . "bai-2"'],
        "tunnel_ports": ["4789", "4790"],
        "pinned4": ["192.0.2.1 . 02:00:00:00:00:01 . 4711"],
        "pinned6": [],
        "encrypted4": [],
        "encrypted6": ["2001:db8::1 . wg0 . 4711"],
        "routed4": ["192.0.2.3 . 4711", "192.0.2.3 . 4712"],
        "routed6": [],
        "ssh_ports": ["30000", "30001"],
        "ssh_pinned4": [],
        "ssh_encrypted4": [],
        "ssh_routed4": ["192.0.2.3 . 30000"],
    }


def test_a_set_of_nothing_has_no_elements_because_nft_refuses_an_empty_list() -> None:
    assert "elements" not in render(NOTHING)
