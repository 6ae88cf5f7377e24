"""The veth interfaces of containers: planned changes of both ends."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from ansible_collections.backendai.cluster.plugins.module_utils._model.change import Change
from ansible_collections.backendai.cluster.plugins.module_utils._network import veth
from ansible_collections.backendai.cluster.plugins.module_utils._network.iproute import (
    LinkOperation,
    ProcessExitedError,
)
from ansible_collections.backendai.cluster.plugins.module_utils._network.veth import (
    InterfacePlan,
    VethInterface,
    plan_veths,
)

MAC = "02:ba:0a:80:03:02"
SESSION = VethInterface("main1", 42, "cluster0", "bai-1", "10.128.3.2/29", MAC, 1450)
DEFAULT = VethInterface("main1", 42, "eth0", "backendai0")
INSIDE: list[dict[str, Any]] = [
    {
        "ifname": "cluster0",
        "link_index": 7,
        "mtu": 1450,
        "address": MAC,
        "flags": ["UP"],
        "addr_info": [{"family": "inet", "local": "10.128.3.2", "prefixlen": 29}],
    },
    {"ifname": "eth0", "link_index": 8, "mtu": 1500, "address": "02:42:00:00:00:01", "flags": ["UP"], "addr_info": []},
]
OUTSIDE: list[dict[str, Any]] = [
    {"ifindex": 7, "ifname": "veth7", "mtu": 1450, "master": "bai-1", "flags": ["UP"]},
    {"ifindex": 8, "ifname": "veth8", "mtu": 1500, "master": "backendai0", "flags": ["UP"]},
]


def planned(monkeypatch: pytest.MonkeyPatch, inside: dict[str, Any], outside: dict[str, Any]) -> InterfacePlan:
    """Return the planned operations for a session interface with these differences, inside and outside."""
    within, without = copy.deepcopy(INSIDE), copy.deepcopy(OUTSIDE)
    within[0].update(inside)
    without[0].update(outside)
    for side in (within, without):
        side[:] = [link for link in side if link.get("ifname")]
        for link in side:
            if link.get("master", "") is None:
                del link["master"]
    monkeypatch.setattr(veth, "show", lambda *_command, pid=None: within if pid == 42 else without)
    return plan_veths([DEFAULT, SESSION])


def test_correct_interfaces_are_not_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    assert planned(monkeypatch, {}, {}) == InterfacePlan([], {})


def test_ended_container_is_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    def look(*_command: str, pid: int | None = None) -> list[dict[str, Any]]:
        if pid == 43:
            raise ProcessExitedError("nsenter: cannot open /proc/43/ns/net: No such file or directory")
        return [] if pid == 42 else OUTSIDE

    monkeypatch.setattr(veth, "show", look)
    ended = VethInterface("sub1", 43, "eth0", "backendai0")
    assert plan_veths([ended, DEFAULT]) == InterfacePlan([], {"main1": "eth0"})


def test_without_containers_nothing_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(veth, "show")
    assert plan_veths([]) == InterfacePlan([], {})


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
def test_drift_of_the_container_end_is_repaired(
    monkeypatch: pytest.MonkeyPatch, drift: dict[str, Any], change: tuple[str, str], lines: tuple[str, ...]
) -> None:
    step = LinkOperation(Change("cluster0 of main1", *change), lines, pid=42)
    assert planned(monkeypatch, drift, {}) == InterfacePlan([step], {})


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
def test_drift_of_the_host_end_is_repaired(
    monkeypatch: pytest.MonkeyPatch, drift: dict[str, Any], change: tuple[str, str], line: str
) -> None:
    step = LinkOperation(Change("port of main1 on bai-1", *change), (line,))
    assert planned(monkeypatch, {}, drift) == InterfacePlan([step], {})


@pytest.mark.parametrize(
    ("inside", "outside"), [({"ifname": ""}, {}), ({}, {"ifname": ""})], ids=["interface gone", "other end gone"]
)
def test_container_with_a_lost_interface_is_named(
    monkeypatch: pytest.MonkeyPatch, inside: dict[str, Any], outside: dict[str, Any]
) -> None:
    assert planned(monkeypatch, inside, outside) == InterfacePlan([], {"main1": "cluster0"})
