"""Networks and ports in use, and the underlay of a host."""

from __future__ import annotations

import socket
from typing import Any

import pytest

from ansible_collections.backendai.cluster.plugins.module_utils._model.network import VXLAN_PREFIX, Underlay
from ansible_collections.backendai.cluster.plugins.module_utils._network import host
from ansible_collections.backendai.cluster.plugins.module_utils._network.sockets import Socket


def _address(local: str, prefixlen: int, scope: str = "global") -> dict[str, Any]:
    return {"family": "inet6" if ":" in local else "inet", "local": local, "prefixlen": prefixlen, "scope": scope}


LINKS = [
    {"ifname": "lo", "mtu": 65536, "addr_info": [_address("127.0.0.1", 8, "host")]},
    {
        "ifname": "eth0",
        "mtu": 1500,
        "addr_info": [
            _address("169.254.1.1", 16, "link"),
            _address("192.0.2.1", 24),
            _address("192.0.2.99", 24),
        ],
    },
    {"ifname": "eth1", "mtu": 9000, "addr_info": [_address("198.51.100.1", 24)]},
    {"ifname": "eth2", "mtu": 1400, "addr_info": [_address("fd00::1", 64)]},
]
DEFAULT = [{"dst": "default", "gateway": "192.0.2.254", "dev": "eth0"}]


def answer(monkeypatch: pytest.MonkeyPatch, **answers: list[dict[str, Any]]) -> None:
    """Fake the listings of iproute2, by their object, without an SSH connection."""

    def show(*command: str) -> list[dict[str, Any]]:
        if command[-1] == "default":
            return answers.get("default", [])
        return answers.get(next(word for word in command if word in ("route", "addr", "link")), [])

    monkeypatch.setattr(host, "show", show)
    monkeypatch.setattr(host, "ssh_connection", str)


def test_routes_and_addresses_are_in_use(monkeypatch: pytest.MonkeyPatch) -> None:
    routes = [*DEFAULT, {"dst": "10.8.0.0/16"}, {"dst": "10.9.0.1"}, {"dst": "192.0.2.0/24"}]
    answer(monkeypatch, route=routes)
    assert host.networks_in_use([*LINKS[:2], LINKS[3]]) == [
        "10.8.0.0/16",
        "10.9.0.1",
        "127.0.0.1/8",
        "169.254.1.1/16",
        "192.0.2.0/24",
        "192.0.2.1/24",
        "192.0.2.99/24",
    ]


@pytest.mark.parametrize("link", ["docker0", "br-0123456789ab", "backendai0", "kube-ipvs0"])
def test_addresses_for_containers_or_services_of_a_cluster_are_not_those_of_the_host(link: str) -> None:
    inner = {"ifname": link, "mtu": 1500, "addr_info": [_address("172.18.0.1", 16)]}
    own = ["192.0.2.1", "192.0.2.99", "198.51.100.1", "fd00::1"]
    assert host.own_addresses(None, [*LINKS, inner]) == own
    assert host.own_addresses(Underlay("172.18.0.1", link, 1500), [*LINKS, inner]) == ["172.18.0.1", *own]


def test_vnis_of_all_links_are_in_use() -> None:
    tunnels = [{"id": 9}, {"id": 7}, {"id": 9}, {"external": True}]
    links = [
        {"ifname": f"vx{number}", "linkinfo": {"info_kind": "vxlan", "info_data": data}}
        for number, data in enumerate(tunnels)
    ]
    vlan = {"ifname": "eth0.5", "linkinfo": {"info_kind": "vlan", "info_data": {"id": 5}}}
    assert host.vnis_in_use([*links, vlan, *LINKS]) == [7, 9]


def test_udp_ports_of_sessions_tunnels_are_not_in_use(monkeypatch: pytest.MonkeyPatch) -> None:
    open_ports = [Socket("", port, listening=False, inode="1") for port in (53, 4789, 8472)]
    monkeypatch.setattr(host, "sockets", {"udp": open_ports}.get)
    links = [
        {"ifname": name, "linkinfo": {"info_kind": "vxlan", "info_data": {"port": port}}}
        for name, port in ((f"{VXLAN_PREFIX}1", 4789), ("flannel.1", 8472))
    ]
    assert host.udp_ports([*links, *LINKS]) == {53: "another program", 8472: "the link flannel.1"}


@pytest.mark.parametrize(
    ("address", "default", "connection", "underlay"),
    [
        ("198.51.100.1", DEFAULT, "", Underlay("198.51.100.1", "eth1", 9000)),
        ("fd00::1", DEFAULT, "", Underlay("fd00::1", "eth2", 1400)),
        ("203.0.113.1", DEFAULT, "", None),
        ("", DEFAULT, "", Underlay("192.0.2.1", "eth0", 1500)),
        ("", [{**DEFAULT[0], "prefsrc": "192.0.2.99"}], "", Underlay("192.0.2.99", "eth0", 1500)),
        ("", [], "203.0.113.7 51234 198.51.100.1 22", Underlay("198.51.100.1", "eth1", 9000)),
        ("", DEFAULT, "203.0.113.7 51234 198.51.100.1 22", Underlay("192.0.2.1", "eth0", 1500)),
        ("", [], "UNKNOWN 65535 UNKNOWN 65535", None),
        ("", [], "203.0.113.7 51234 198.51.100.1", None),
        ("", [], "", None),
        ("", [{"dst": "default", "dev": "missing"}], "", None),
    ],
    ids=[
        "asked for",
        "asked for, IPv6",
        "asked for, not here",
        "default route",
        "default route with a source",
        "this connection",
        "default route before this connection",
        "a connection without addresses",
        "half a connection",
        "neither",
        "default route over a link that is gone",
    ],
)
def test_underlay_is_configured_or_found_by_route_or_connection(
    monkeypatch: pytest.MonkeyPatch,
    address: str,
    default: list[dict[str, Any]],
    connection: str,
    underlay: Underlay | None,
) -> None:
    answer(monkeypatch, addr=LINKS, default=default)
    monkeypatch.setattr(host, "ssh_connection", lambda: connection)
    assert host.find_underlay(address) == underlay


def test_tcp_ports_are_those_in_listening_state() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)) as outgoing:
            assert port in host.tcp_ports()
            assert outgoing.getsockname()[1] not in host.tcp_ports()
    assert port not in host.tcp_ports()


def link(name: str, address: str | None = None, kind: str | None = None, scope: str = "global") -> dict[str, Any]:
    """Return an interface as iproute2 lists it."""
    info = [{"local": address, "scope": scope}] if address else []
    return {"ifname": name, "addr_info": info, **({"linkinfo": {"info_kind": kind}} if kind else {})}


def test_interfaces_with_a_global_address_are_external(monkeypatch: pytest.MonkeyPatch) -> None:
    links = [
        link("lo", "192.0.2.77"),
        link("eth1", "192.0.2.1"),
        link("eth0", "2001:db8::1"),
        link("eth2"),
        link("eth3", "fe80::1", scope="link"),
        link("veth0", "192.0.2.2", "veth"),
        link("docker0", "172.17.0.1", "bridge"),
        link("bai-5f0c6a523c", None, "bridge"),
    ]
    answer(monkeypatch, addr=links)
    assert host.external_interfaces() == ["eth0", "eth1", "veth0"]


@pytest.mark.parametrize(
    "route",
    [
        {"dst": "default", "gateway": "192.0.2.254", "dev": "br0"},
        {"dst": "10.0.0.0/8", "via": {"family": "inet6", "host": "fe80::9"}, "dev": "br0"},
    ],
    ids=["a router", "a router of the other family"],
)
def test_bridge_with_a_router_is_external(monkeypatch: pytest.MonkeyPatch, route: dict[str, Any]) -> None:
    links = [link("br0", "192.0.2.1", "bridge"), link("br1", "192.0.2.2", "bridge"), link("br2", None, "bridge")]
    inside = {"dst": "172.18.0.0/16", "dev": "br1"}
    nowhere = {"type": "blackhole", "dst": "10.9.0.0/16"}
    answer(monkeypatch, addr=links, route=[route, inside, nowhere, {**route, "dev": "br2"}])
    assert host.external_interfaces() == ["br0"]


def test_routes_of_both_families_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    def show(*command: str) -> list[dict[str, Any]]:
        if "route" in command:
            return [{"dst": "default", "gateway": "fe80::9", "dev": "br6"}] if "-6" in command else []
        return [link("br6", "2001:db8::1", "bridge")]

    monkeypatch.setattr(host, "show", show)
    assert host.external_interfaces() == ["br6"]


def test_all_interface_names_are_returned(monkeypatch: pytest.MonkeyPatch) -> None:
    answer(monkeypatch, link=[link("lo"), link("eth0"), link("docker0")])
    assert host.interfaces() == {"lo", "eth0", "docker0"}
