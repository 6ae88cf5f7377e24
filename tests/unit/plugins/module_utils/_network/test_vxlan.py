"""A static VXLAN link: planned changes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ansible_collections.backendai.cluster.plugins.module_utils._model.change import Change
from ansible_collections.backendai.cluster.plugins.module_utils._network import vxlan
from ansible_collections.backendai.cluster.plugins.module_utils._network.iproute import LinkOperation, LinkState
from ansible_collections.backendai.cluster.plugins.module_utils._network.vxlan import Peer, Vxlan, desired_vxlan
from tests.unit.builders import plan

MAC2, MAC3 = "02:ba:0a:80:03:04", "02:ba:0a:80:03:05"
WANTED = Vxlan(
    "bax-1",
    4711,
    "192.0.2.1",
    4789,
    1450,
    (Peer("10.128.3.4", MAC2, "192.0.2.2"), Peer("10.128.3.5", MAC3, "192.0.2.3")),
)
SETTINGS = {"id": 4711, "local": "192.0.2.1", "port": 4789, "learning": False, "proxy": True}
LINK = {
    "ifname": "bax-1",
    "flags": ["BROADCAST", "UP", "LOWER_UP"],
    "mtu": 1450,
    "linkinfo": {"info_kind": "vxlan", "info_data": SETTINGS},
}
FORWARDING = [{"mac": MAC2, "dst": "192.0.2.2"}, {"mac": MAC3, "dst": "192.0.2.3"}, {"mac": "33:33:00:00:00:01"}]
NEIGHBOURS = [{"dst": "10.128.3.4", "lladdr": MAC2}, {"dst": "10.128.3.5", "lladdr": MAC3}]
CREATE = (
    "link add bax-1 mtu 1450 type vxlan id 4711 local 192.0.2.1 dstport 4789 nolearning proxy",
    "link set dev bax-1 addrgenmode none",
    "link set dev bax-1 up",
    f"neigh replace 10.128.3.4 lladdr {MAC2} nud permanent dev bax-1",
    f"neigh replace 10.128.3.5 lladdr {MAC3} nud permanent dev bax-1",
)
FILL = (
    f"fdb replace {MAC2} dev bax-1 dst 192.0.2.2 self permanent",
    f"fdb replace {MAC3} dev bax-1 dst 192.0.2.3 self permanent",
)
PHRASE = "vni 4711, mtu 1450, 2 remote containers"

Planned = Callable[..., list[LinkOperation]]


@pytest.fixture
def planned(monkeypatch: pytest.MonkeyPatch) -> Planned:
    """Return a function that plans the link for given iproute2 listings."""

    def plan_it(**differently: Any) -> list[LinkOperation]:
        state = {"link": LINK, "forwarding": FORWARDING, "neighbours": NEIGHBOURS, **differently}
        monkeypatch.setattr(LinkState, "links", {"bax-1": state["link"]} if state["link"] else {})
        monkeypatch.setattr(LinkState, "addresses", {"bax-1": state.get("addresses", [])})
        monkeypatch.setattr(LinkState, "forwarding", {"bax-1": state["forwarding"]})
        monkeypatch.setattr(LinkState, "neighbours", {"bax-1": state["neighbours"]})
        return vxlan.plan_vxlan(state.get("wanted", WANTED), LinkState())

    return plan_it


def test_correct_link_is_not_changed(planned: Planned) -> None:
    assert planned() == []


def test_missing_link_is_created_with_every_remote_container(planned: Planned) -> None:
    assert planned(link=None) == [LinkOperation(Change("link bax-1", None, PHRASE), CREATE, FILL)]


def test_address_of_the_agent_on_the_link_is_removed(planned: Planned) -> None:
    change = Change("address fe80::1/64 on bax-1", "present", None)
    step = LinkOperation(change, ("addr del fe80::1/64 dev bax-1",))
    assert planned(addresses=[{"local": "fe80::1", "prefixlen": 64}]) == [step]


@pytest.mark.parametrize(
    ("drift", "differences"),
    [
        ({"id": 99}, "vni 99"),
        ({"local": "192.0.2.9"}, "local address 192.0.2.9"),
        ({"port": 8472}, "port 8472"),
        ({"learning": True}, "learning True"),
        ({"proxy": False}, "proxy False"),
        ({"id": 99, "port": 8472}, "vni 99, port 8472"),
    ],
)
def test_immutable_settings_recreate_the_link(planned: Planned, drift: dict[str, Any], differences: str) -> None:
    link = {**LINK, "linkinfo": {"info_data": {**SETTINGS, **drift}}}
    assert planned(link=link) == [
        LinkOperation(Change("link bax-1", differences, PHRASE), ("link del dev bax-1", *CREATE), FILL)
    ]


def test_other_link_with_the_same_name_is_replaced(planned: Planned) -> None:
    differences = "vni None, local address None, port None, proxy False"
    assert planned(link={"ifname": "bax-1", "linkinfo": {"info_kind": "dummy"}})[0].change.before == differences


def test_ipv6_underlay_is_compared_with_local6(planned: Planned) -> None:
    six = {key: value for key, value in SETTINGS.items() if key != "local"} | {"local6": "fd00::9"}
    assert planned(link={**LINK, "linkinfo": {"info_data": six}})[0].change.before == "local address fd00::9"


@pytest.mark.parametrize(
    ("drift", "change", "line"),
    [
        ({"mtu": 1500}, ("mtu 1500", "mtu 1450"), "link set dev bax-1 mtu 1450"),
        ({"master": "docker0"}, ("bridge docker0", "no bridge"), "link set dev bax-1 nomaster"),
        ({"flags": ["BROADCAST"]}, ("down", "up"), "link set dev bax-1 up"),
    ],
    ids=["mtu", "in a bridge", "down"],
)
def test_mutable_settings_are_changed_in_place(
    planned: Planned, drift: dict[str, Any], change: tuple[str, str], line: str
) -> None:
    assert planned(link={**LINK, **drift}) == [LinkOperation(Change("link bax-1", *change), (line,))]


def test_missing_forwarding_entry_is_restored(planned: Planned) -> None:
    assert planned(forwarding=FORWARDING[1:]) == [
        LinkOperation(Change(f"forwarding entry {MAC2} on bax-1", None, "to 192.0.2.2"), bridge=(FILL[0],))
    ]


def test_missing_neighbour_is_restored(planned: Planned) -> None:
    assert planned(neighbours=NEIGHBOURS[:1]) == [
        LinkOperation(Change("neighbour 10.128.3.5 on bax-1", None, MAC3), (CREATE[4],))
    ]


def test_entries_outside_the_plan_are_removed(planned: Planned) -> None:
    stray = "02:ba:0a:80:03:09"
    assert planned(
        forwarding=[*FORWARDING, {"mac": stray, "dst": "192.0.2.9"}, {"mac": "00:00:00:00:00:00", "dst": "192.0.2.9"}],
        neighbours=[*NEIGHBOURS, {"dst": "10.128.3.9", "lladdr": stray}],
    ) == [
        LinkOperation(
            Change("forwarding entry 00:00:00:00:00:00 on bax-1", "to 192.0.2.9", None),
            bridge=("fdb del 00:00:00:00:00:00 dev bax-1 dst 192.0.2.9",),
        ),
        LinkOperation(
            Change(f"forwarding entry {stray} on bax-1", "to 192.0.2.9", None),
            bridge=(f"fdb del {stray} dev bax-1 dst 192.0.2.9",),
        ),
        LinkOperation(Change("neighbour 10.128.3.9 on bax-1", stray, None), ("neigh del 10.128.3.9 dev bax-1",)),
    ]


def test_entry_with_its_own_port_is_replaced(planned: Planned) -> None:
    steps = planned(forwarding=[{**FORWARDING[0], "port": 9999}, FORWARDING[1]])
    assert [step.bridge for step in steps] == [(f"fdb del {MAC2} dev bax-1 dst 192.0.2.2 port 9999",), (FILL[0],)]


def test_wrong_entry_is_removed_before_the_correct_one_is_added(planned: Planned) -> None:
    steps = planned(
        forwarding=[{"mac": MAC2, "dst": "192.0.2.9"}, FORWARDING[1]],
        neighbours=[{"dst": "10.128.3.4", "lladdr": MAC3}, NEIGHBOURS[1]],
    )
    assert [line for step in steps for line in step.bridge] == [
        f"fdb del {MAC2} dev bax-1 dst 192.0.2.9",
        FILL[0],
    ]
    assert [line for step in steps for line in step.ip] == [
        "neigh del 10.128.3.4 dev bax-1",
        CREATE[3],
    ]


def test_containers_of_other_agents_are_peers() -> None:
    session_plan = plan({"agent1": 2, "agent2": 1, "agent3": 1})
    assert session_plan.network is not None
    link = desired_vxlan(session_plan, "agent2")
    assert link is not None
    assert (link.name, link.vni, link.port, link.mtu, link.local) == (
        session_plan.network.link,
        session_plan.network.vni,
        4789,
        1450,
        "192.0.2.2",
    )
    assert {peer.underlay for peer in link.peers} == {"192.0.2.1", "192.0.2.3"}
    assert {(peer.address, peer.mac) for peer in link.peers} == {
        (kernel.address, kernel.mac) for kernel in session_plan.kernels if kernel.agent != "agent2"
    }


def test_peers_are_sorted_by_address() -> None:
    session_plan = plan({"agent1": 1, "agent2": 12})
    link = desired_vxlan(session_plan, "agent1")
    assert link is not None
    assert [peer.address for peer in link.peers] == sorted(peer.address for peer in link.peers)


@pytest.mark.parametrize("counts", [{"agent1": 1}, {"agent1": 4}], ids=["session of one", "one agent"])
def test_a_session_on_one_agent_needs_no_link(counts: dict[str, int]) -> None:
    assert desired_vxlan(plan(counts), "agent1") is None
