"""Ports of containers on the default network: isolated, with permanent entries for one MAC and one address."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.backendai.cluster.plugins.module_utils._model.change import Change
from ansible_collections.backendai.cluster.plugins.module_utils._network.iproute import LinkOperation, LinkState
from ansible_collections.backendai.cluster.plugins.module_utils._network.pins import (
    Pin,
    plan_pin,
    plan_stale_neighbours,
    read_pins,
)

MAC, OTHER = "02:42:ac:12:00:02", "02:42:ac:12:00:03"
PIN = Pin("veth8", MAC, "172.18.0.2")
FLAGS = {"isolated": True, "learning": False, "flood": False}
ENTRY = {"mac": MAC, "state": "static", "flags": ["sticky"]}
NEIGHBOUR = {"dst": "172.18.0.2", "lladdr": MAC}


def links(
    monkeypatch: pytest.MonkeyPatch,
    *,
    flags: dict[str, bool] | None = None,
    entries: list[dict[str, Any]] | None = None,
    neighbours: list[dict[str, Any]] | None = None,
) -> LinkState:
    """Return a host with one port on the default network; without arguments it is pinned."""
    slave = {"info_slave_data": FLAGS if flags is None else flags}
    monkeypatch.setattr(LinkState, "links", {"veth8": {"master": "backendai0", "linkinfo": slave}, "veth9": {}})
    foreign = {"veth9": [{"mac": OTHER, "state": "static", "flags": ["sticky"]}]}
    monkeypatch.setattr(LinkState, "forwarding", {"veth8": [ENTRY] if entries is None else entries, **foreign})
    known = [NEIGHBOUR] if neighbours is None else neighbours
    monkeypatch.setattr(LinkState, "neighbours", {"backendai0": known, "eth0": [{"dst": "192.0.2.1", "lladdr": OTHER}]})
    return LinkState()


def test_pinned_port_is_not_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    state = links(monkeypatch)
    assert plan_pin(PIN, state) == []
    assert read_pins(state) == [PIN]
    assert plan_stale_neighbours(state) == []


@pytest.mark.parametrize("flag", FLAGS)
def test_port_is_isolated_and_neither_learns_nor_floods(monkeypatch: pytest.MonkeyPatch, flag: str) -> None:
    line = "link set dev veth8 isolated on learning off flood off"
    step = LinkOperation(Change("port veth8", "not isolated", "isolated"), bridge=(line,))
    assert plan_pin(PIN, links(monkeypatch, flags={**FLAGS, flag: not FLAGS[flag]})) == [step]


@pytest.mark.parametrize("entries", [[], [{"mac": MAC}], [{"mac": MAC, "state": "static"}]])
def test_missing_forwarding_entry_is_added(monkeypatch: pytest.MonkeyPatch, entries: list[dict[str, Any]]) -> None:
    change = Change(f"forwarding entry {MAC} on backendai0", None, "to veth8")
    state = links(monkeypatch, entries=entries)
    assert plan_pin(PIN, state) == [
        LinkOperation(change, bridge=(f"fdb replace {MAC} dev veth8 master static sticky",))
    ]
    assert read_pins(state) == []


@pytest.mark.parametrize(("lladdr", "before"), [(None, None), (OTHER, OTHER)], ids=["missing", "of another container"])
def test_neighbour_entry_is_replaced(monkeypatch: pytest.MonkeyPatch, lladdr: str | None, before: str | None) -> None:
    neighbours = [{"dst": "172.18.0.2", "lladdr": lladdr}] if lladdr else []
    line = f"neigh replace 172.18.0.2 lladdr {MAC} nud permanent dev backendai0"
    step = LinkOperation(Change("neighbour 172.18.0.2 on backendai0", before, MAC), (line,))
    assert plan_pin(PIN, links(monkeypatch, neighbours=neighbours)) == [step]


def test_neighbour_entry_of_a_removed_container_is_stale(monkeypatch: pytest.MonkeyPatch) -> None:
    state = links(monkeypatch, neighbours=[NEIGHBOUR, {"dst": "172.18.0.3", "lladdr": OTHER}])
    change = Change("neighbour 172.18.0.3 on backendai0", OTHER, None)
    assert plan_stale_neighbours(state) == [LinkOperation(change, ("neigh del 172.18.0.3 dev backendai0",))]
