"""The networks of containers: planned changes inside them, on their ports, and of what they reach the world by."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from ansible_collections.backendai.cluster.plugins.module_utils._model.change import Change
from ansible_collections.backendai.cluster.plugins.module_utils._network import container
from ansible_collections.backendai.cluster.plugins.module_utils._network.container import (
    ContainerNetwork,
    Endpoint,
    InterfacePlan,
    SessionInterface,
    plan_container_networks,
)
from ansible_collections.backendai.cluster.plugins.module_utils._network.iproute import (
    LinkOperation,
    LinkState,
    ProcessExitedError,
)

MAC = "02:ba:0a:80:03:02"
ETH0_MAC = "02:42:ac:12:00:02"
ENDPOINT = Endpoint("172.18.0.2/16", ETH0_MAC, "172.18.0.1")
MACVLAN = SessionInterface("cluster0", "10.128.3.2/29", MAC, 1450, parent="bax-1")
PORT = MACVLAN._replace(parent=None, bridge="bai-1")
MAIN = ContainerNetwork("main1", 42, ENDPOINT, MACVLAN)
SESSION_ADDRESS = {"family": "inet", "local": "10.128.3.2", "prefixlen": 29}
CLUSTER0 = {
    "ifname": "cluster0",
    "link_index": 6,
    "mtu": 1450,
    "address": MAC,
    "flags": ["UP"],
    "addr_info": [SESSION_ADDRESS],
    "linkinfo": {"info_kind": "macvlan"},
}
ETH0 = {
    "ifname": "eth0",
    "link_index": 8,
    "mtu": 1500,
    "address": ETH0_MAC,
    "flags": ["UP"],
    "addr_info": [{"family": "inet", "local": "172.18.0.2", "prefixlen": 16}],
    "ifalias": "ready",
}
DEFAULT: dict[str, Any] = {"dst": "default", "gateway": "172.18.0.1", "dev": "eth0"}
CONNECTED: dict[str, Any] = {"dst": "10.128.3.0/29", "dev": "cluster0", "prefsrc": "10.128.3.2"}
PROMPT = {**CONNECTED, "metrics": [{"quickack": 1}]}
ROUTES = [{**DEFAULT, "prefsrc": "10.128.3.2"}, {**DEFAULT, "metric": 1024}, PROMPT]
PINNED = {"info_slave_data": {"isolated": True, "learning": False, "flood": False}}
HOST = {
    "bax-1": {"ifindex": 6, "ifname": "bax-1", "flags": ["UP"]},
    "veth7": {"ifindex": 7, "ifname": "veth7", "mtu": 1450, "master": "bai-1", "flags": ["UP"]},
    "veth8": {
        "ifindex": 8,
        "ifname": "veth8",
        "mtu": 1500,
        "master": "backendai0",
        "flags": ["UP"],
        "linkinfo": PINNED,
    },
}


def plan_changes(
    monkeypatch: pytest.MonkeyPatch,
    *,
    desired: ContainerNetwork = MAIN,
    cluster0: dict[str, Any] | None = None,
    eth0: dict[str, Any] | None = None,
    host: dict[str, Any] | None = None,
    routes: list[dict[str, Any]] | None = None,
) -> InterfacePlan:
    """Return the plan for a network with these differences; ``{"ifname": ""}`` stands for a missing interface."""
    inside = [link for link in ({**CLUSTER0, **(cluster0 or {})}, {**ETH0, **(eth0 or {})}) if link["ifname"]]
    links = copy.deepcopy(HOST)
    for name, values in (host or {}).items():
        links[name].update(values)
        if values.get("master", "") is None:
            del links[name]["master"]
    monkeypatch.setattr(
        container, "show_inside", lambda _pid, *_queries: [inside, ROUTES if routes is None else routes]
    )
    monkeypatch.setattr(LinkState, "links", {name: link for name, link in links.items() if link["ifname"]})
    monkeypatch.setattr(LinkState, "forwarding", {"veth8": [{"mac": ETH0_MAC, "state": "static", "flags": ["sticky"]}]})
    monkeypatch.setattr(LinkState, "neighbours", {"backendai0": [{"dst": "172.18.0.2", "lladdr": ETH0_MAC}]})
    return plan_container_networks([desired], LinkState())


def inside(subject: str, before: str | None, after: str | None, *lines: str) -> LinkOperation:
    return LinkOperation(Change(subject, before, after), lines, pid=42)


@pytest.mark.parametrize("session", [MACVLAN, PORT], ids=["macvlan", "port of a bridge"])
def test_correct_networks_are_not_changed(monkeypatch: pytest.MonkeyPatch, session: SessionInterface) -> None:
    index = {"link_index": 7, "linkinfo": {"info_kind": "veth"}} if session.bridge else {}
    desired = MAIN._replace(session=session)
    assert plan_changes(monkeypatch, desired=desired, cluster0=index) == InterfacePlan([], {})


def test_session_of_one_container_keeps_the_route_of_the_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    desired = MAIN._replace(session=None)
    plan = plan_changes(monkeypatch, desired=desired, cluster0={"ifname": ""}, routes=[DEFAULT])
    assert plan == InterfacePlan([], {})


def route_to_session(interface: str = "cluster0") -> LinkOperation:
    line = f"route replace 10.128.3.0/29 dev {interface} proto kernel scope link src 10.128.3.2 quickack 1"
    return inside("route of main1 to its session", "delayed", "acknowledged at once", line)


def test_network_of_a_started_container_is_completed(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = plan_changes(monkeypatch, cluster0={"ifname": ""}, eth0={"ifalias": None}, routes=[DEFAULT])
    change = Change("cluster0 of main1", None, "10.128.3.2/29, mtu 1450")
    add = f"link add link bax-1 name cluster0 address {MAC} mtu 1450 netns 42 type macvlan mode bridge"
    assert plan.incomplete == frozenset({"main1"})
    assert plan.lost == {}
    assert plan.steps == [
        LinkOperation(change, (add,)),
        LinkOperation(
            change, ("link set dev cluster0 addrgenmode none up", "addr add 10.128.3.2/29 brd + dev cluster0"), pid=42
        ),
        route_to_session(),
        inside(
            "default route of main1",
            "from any address",
            "from 10.128.3.2",
            "route replace default via 172.18.0.1 dev eth0 src 10.128.3.2",
        ),
        inside(
            "second default route of main1",
            None,
            "metric 1024",
            "route replace default via 172.18.0.1 dev eth0 metric 1024",
        ),
        inside("network of main1", "incomplete", "ready", "link set dev eth0 alias ready"),
    ]


@pytest.mark.parametrize("route", [CONNECTED, {**CONNECTED, "metrics": [{"quickack": 0}]}], ids=["kernel's", "changed"])
def test_route_that_delays_acknowledgements_is_repaired(monkeypatch: pytest.MonkeyPatch, route: dict[str, Any]) -> None:
    assert plan_changes(monkeypatch, routes=[*ROUTES[:2], route]) == InterfacePlan([route_to_session()], {})


def test_route_of_another_source_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    routes = [{**DEFAULT, "prefsrc": "172.18.0.2"}, {**DEFAULT, "metric": 1024}, PROMPT]
    line = "route replace default via 172.18.0.1 dev eth0 src 10.128.3.2"
    step = inside("default route of main1", "from 172.18.0.2", "from 10.128.3.2", line)
    assert plan_changes(monkeypatch, routes=routes) == InterfacePlan([step], {})


def test_ended_container_is_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    def look(*_query: Any) -> list[dict[str, Any]]:
        raise ProcessExitedError("nsenter: cannot open /proc/43/ns/net: No such file or directory")

    monkeypatch.setattr(container, "show_inside", look)
    assert plan_container_networks([MAIN], LinkState()) == InterfacePlan([], {})


def test_without_containers_nothing_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(container, "show_inside")
    assert plan_container_networks([], LinkState()) == InterfacePlan([], {})


@pytest.mark.parametrize(
    ("drift", "change", "lines"),
    [
        ({"mtu": 1500}, ("mtu 1500", "mtu 1450"), ("link set dev cluster0 mtu 1450",)),
        (
            {"address": "02:00:00:00:00:09"},
            ("mac 02:00:00:00:00:09", f"mac {MAC}"),
            (f"link set dev cluster0 address {MAC}",),
        ),
        ({"flags": []}, ("down", "up"), ("link set dev cluster0 up",)),
        (
            {"addr_info": [{"family": "inet6", "local": "fe80::1", "prefixlen": 64}]},
            ("address none", "address 10.128.3.2/29"),
            ("addr flush dev cluster0 scope global", "addr add 10.128.3.2/29 brd + dev cluster0"),
        ),
    ],
    ids=["mtu", "mac", "down", "address"],
)
def test_drift_inside_the_container_is_repaired(
    monkeypatch: pytest.MonkeyPatch, drift: dict[str, Any], change: tuple[str, str], lines: tuple[str, ...]
) -> None:
    plan = plan_changes(monkeypatch, cluster0=drift)
    assert plan.steps[0] == inside("cluster0 of main1", *change, *lines)
    # With an address, the kernel removes the routes that depend on it.
    routes = ["route of main1 to its session", "default route of main1", "second default route of main1"]
    assert [step.change.subject for step in plan.steps[1:]] == (routes if "addr_info" in drift else [])


@pytest.mark.parametrize(
    ("drift", "change", "line"),
    [
        ({"master": None}, ("detached", "attached"), "link set dev veth7 master bai-1"),
        ({"master": "docker0"}, ("on docker0", "attached"), "link set dev veth7 master bai-1"),
        ({"mtu": 1280}, ("mtu 1280", "mtu 1450"), "link set dev veth7 mtu 1450"),
        ({"flags": []}, ("down", "up"), "link set dev veth7 up"),
    ],
    ids=["detached", "on another bridge", "mtu", "down"],
)
def test_drift_of_a_port_is_repaired(
    monkeypatch: pytest.MonkeyPatch, drift: dict[str, Any], change: tuple[str, str], line: str
) -> None:
    desired = MAIN._replace(session=PORT)
    plan = plan_changes(monkeypatch, desired=desired, cluster0={"link_index": 7}, host={"veth7": drift})
    assert plan == InterfacePlan([LinkOperation(Change("port of main1 on bai-1", *change), (line,))], {})


@pytest.mark.parametrize(
    ("session", "drift", "lost"),
    [
        (MACVLAN, {"eth0": {"ifname": ""}}, "eth0"),
        (MACVLAN, {"host": {"veth8": {"ifname": ""}}}, "eth0"),
        (MACVLAN, {"cluster0": {"linkinfo": {"info_kind": "dummy"}}}, "cluster0"),
        (MACVLAN, {"cluster0": {"link_index": 5}}, "cluster0"),
        (PORT, {"cluster0": {"ifname": ""}}, "cluster0"),
        (PORT, {"cluster0": {"link_index": 99}}, "cluster0"),
    ],
    ids=["eth0", "port of eth0", "another kind", "another tunnel", "cluster0 on a bridge", "its port"],
)
def test_container_with_a_lost_interface_is_named(
    monkeypatch: pytest.MonkeyPatch, session: SessionInterface, drift: dict[str, Any], lost: str
) -> None:
    host = drift.pop("host", {})
    desired = MAIN._replace(session=session)
    links = {name: {**link, "ifindex": -1} for name, link in host.items()}
    assert plan_changes(monkeypatch, desired=desired, host=links, **drift) == InterfacePlan([], {"main1": lost})


@pytest.mark.parametrize("mtu", [1400, 9000])
def test_links_get_the_mtu_of_the_agents_way_out_where_they_are(monkeypatch: pytest.MonkeyPatch, mtu: int) -> None:
    plan = plan_changes(monkeypatch, desired=MAIN._replace(mtu=mtu))
    port = Change("port of main1 on backendai0", "mtu 1500", f"mtu {mtu}")
    assert plan.steps == [
        LinkOperation(port, (f"link set dev veth8 mtu {mtu}",)),
        inside("eth0 of main1", "mtu 1500", f"mtu {mtu}", f"link set dev eth0 mtu {mtu}"),
    ]
    assert plan.lost == {}


def test_links_with_the_mtu_of_the_agents_way_out_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    assert plan_changes(monkeypatch, desired=MAIN._replace(mtu=1500)) == InterfacePlan([], {})
