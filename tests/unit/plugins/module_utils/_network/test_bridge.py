"""The bridge of a session: up, wide enough, and without an address of the agent."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.backendai.cluster.plugins.module_utils._model.change import Change
from ansible_collections.backendai.cluster.plugins.module_utils._network.bridge import (
    Bridge,
    desired_bridge,
    plan_bridge,
)
from ansible_collections.backendai.cluster.plugins.module_utils._network.iproute import LinkOperation, LinkState
from tests.unit.builders import plan

WANTED = Bridge("bai-1", 1450)
LINK = {"ifname": "bai-1", "flags": ["BROADCAST", "UP"], "mtu": 1450, "inet6_addr_gen_mode": "none"}


def planned(monkeypatch: pytest.MonkeyPatch, link: dict[str, Any] | None, *addresses: str) -> list[LinkOperation]:
    """Return the planned operations for a bridge with these properties and addresses."""
    entries = [dict(zip(("local", "prefixlen"), address.split("/"), strict=True)) for address in addresses]
    look = LinkState()
    monkeypatch.setattr(LinkState, "links", {"bai-1": link} if link else {})
    monkeypatch.setattr(LinkState, "addresses", {"bai-1": entries})
    return plan_bridge(WANTED, look)


def test_correct_bridge_is_not_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    assert planned(monkeypatch, LINK) == []


def test_larger_mtu_is_not_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    assert planned(monkeypatch, {**LINK, "mtu": 1500}) == []


def test_missing_bridge_is_created_without_an_address(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = ("link add bai-1 mtu 1450 type bridge", "link set dev bai-1 addrgenmode none up")
    assert planned(monkeypatch, None) == [LinkOperation(Change("bridge bai-1", None, "mtu 1450"), lines)]


@pytest.mark.parametrize(
    ("drift", "change", "line"),
    [
        (
            {"inet6_addr_gen_mode": "eui64"},
            ("IPv6 addresses eui64", "IPv6 addresses none"),
            "link set dev bai-1 addrgenmode none",
        ),
        ({"mtu": 1280}, ("mtu 1280", "mtu 1450"), "link set dev bai-1 mtu 1450"),
        ({"flags": ["BROADCAST"]}, ("down", "up"), "link set dev bai-1 up"),
    ],
    ids=["IPv6", "mtu", "down"],
)
def test_drift_is_repaired(
    monkeypatch: pytest.MonkeyPatch, drift: dict[str, Any], change: tuple[str, str], line: str
) -> None:
    assert planned(monkeypatch, {**LINK, **drift}) == [LinkOperation(Change("bridge bai-1", *change), (line,))]


def test_address_on_the_bridge_is_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    assert planned(monkeypatch, LINK, "10.128.3.1/29", "fe80::1/64") == [
        LinkOperation(Change("address 10.128.3.1/29 on bai-1", "present", None), ("addr del 10.128.3.1/29 dev bai-1",)),
        LinkOperation(Change("address fe80::1/64 on bai-1", "present", None), ("addr del fe80::1/64 dev bai-1",)),
    ]


def test_the_plan_names_the_bridge() -> None:
    session_plan = plan({"agent1": 2})
    assert session_plan.network is not None
    assert session_plan.network.bridge is not None
    assert desired_bridge(session_plan) == Bridge(session_plan.network.bridge, 1500)
    assert desired_bridge(plan({"agent1": 1})) is None
    assert desired_bridge(plan({"agent1": 1, "agent2": 1})) is None
