"""Tests for the overlay of a session in a Docker Swarm."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from docker.errors import APIError, NotFound

from ansible_collections.backendai.cluster.plugins.module_utils._docker import networks, overlay
from ansible_collections.backendai.cluster.plugins.module_utils._docker.networks import BridgeNetwork
from ansible_collections.backendai.cluster.plugins.module_utils._docker.overlay import Overlay, OverlayInUseError
from ansible_collections.backendai.cluster.plugins.module_utils._model.change import Change
from tests.unit.builders import SESSION_ID, plan
from tests.unit.fake_docker import FakeDocker

NAME = "backendai-train-llm"
DESIRED = Overlay(NAME, "10.128.3.0/28", "10.128.3.8/29", 1450, SESSION_ID)
BRIDGE = BridgeNetwork(NAME, "10.128.4.0/29", 1450, "bai-1", SESSION_ID)
REMOVED = [Change(f"overlay {NAME}", f"id-{NAME}"[:12], None)]


class Clock:
    """A clock that advances only in ``sleep``."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return the engine of a manager, with a clock that advances only in ``sleep``."""
    engine: Any = FakeDocker()
    engine.swarm = {"LocalNodeState": "active", "ControlAvailable": True}
    engine.clock = Clock()
    monkeypatch.setattr(overlay, "time", engine.clock)
    return engine


def refusing(engine: Any, monkeypatch: pytest.MonkeyPatch, error: Exception, until: float) -> None:
    """Make the engine reject removals of networks until that time."""
    remove = engine.remove_network

    def remove_network(network: str) -> None:
        if engine.clock.now < until:
            raise error
        remove(network)

    monkeypatch.setattr(engine, "remove_network", remove_network)


def in_use() -> APIError:
    return APIError("500", None, "rpc error: code = FailedPrecondition desc = network x is in use by task y")


def test_existing_overlay_is_no_change(engine: Any) -> None:
    change = Change(f"overlay {NAME}", None, "10.128.3.0/28, mtu 1450")
    assert overlay.plan_overlay(engine, DESIRED) == change
    overlay.create_overlay(engine, DESIRED)
    assert overlay.plan_overlay(engine, DESIRED) is None
    assert overlay.plan_overlay(engine, dataclasses.replace(DESIRED, mtu=1400)) == Change(
        f"overlay {NAME}", NAME, "10.128.3.0/28, mtu 1400"
    )


def test_overlay_is_internal_with_50_bytes_of_mtu_for_vxlan(engine: Any) -> None:
    overlay.create_overlay(engine, DESIRED)
    (request,) = engine.asked
    assert (request["name"], request["driver"], request["check_duplicate"]) == (NAME, "overlay", True)
    assert (request["internal"], request["attachable"]) == (True, True)
    assert request["options"] == {"com.docker.network.driver.mtu": "1500"}
    (pool,) = request["ipam"]["Config"]
    assert (pool["Subnet"], pool["IPRange"]) == ("10.128.3.0/28", "10.128.3.8/29")


def test_overlay_is_not_listed_as_bridge_network(engine: Any) -> None:
    overlay.create_overlay(engine, DESIRED)
    assert networks.find_networks(engine, SESSION_ID) == []
    assert networks.remove_networks(engine, SESSION_ID) == []
    assert [network["Name"] for network in overlay.find_overlays(engine, SESSION_ID)] == [NAME]
    assert "10.128.3.0/28" in networks.subnets(engine)


def test_only_the_overlay_of_the_session_is_removed(engine: Any) -> None:
    overlay.create_overlay(engine, dataclasses.replace(DESIRED, name="other", session_id="other"))
    overlay.create_overlay(engine, DESIRED)
    assert overlay.remove_overlays(engine, SESSION_ID) == REMOVED
    assert [network["Name"] for network in engine.joined] == ["other"]
    assert overlay.remove_overlays(engine, SESSION_ID) == []


def test_bridge_is_not_removed_as_overlay(engine: Any) -> None:
    networks.create_network(engine, BRIDGE)
    assert overlay.remove_overlays(engine, SESSION_ID) == []
    assert [network["Name"] for network in engine.joined] == [NAME]


def test_worker_does_not_remove_the_overlay(engine: Any) -> None:
    overlay.create_overlay(engine, DESIRED)
    engine.swarm = {"LocalNodeState": "active", "ControlAvailable": False}
    assert overlay.remove_overlays(engine, SESSION_ID) == []
    assert [network["Name"] for network in engine.joined] == [NAME]


def test_overlay_removal_waits_until_others_release_it(engine: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    overlay.create_overlay(engine, DESIRED)
    refusing(engine, monkeypatch, in_use(), until=3.0)
    assert overlay.remove_overlays(engine, SESSION_ID) == REMOVED
    assert 3.0 <= engine.clock.now < 3.5


def test_overlay_that_stays_in_use_is_an_error_of_one_sentence(engine: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    overlay.create_overlay(engine, DESIRED)
    refusing(engine, monkeypatch, in_use(), until=1000.0)
    with pytest.raises(OverlayInUseError) as raised:
        overlay.remove_overlays(engine, SESSION_ID, 5.0)
    assert str(raised.value) == f"the overlay {NAME} is still used by containers on other nodes of the swarm"


@pytest.mark.parametrize("error", [NotFound("404"), APIError("500", None, "network 1a2b3c not found")], ids=str)
def test_overlay_that_was_removed_meanwhile_counts_as_removed(
    error: APIError, engine: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    overlay.create_overlay(engine, DESIRED)
    refusing(engine, monkeypatch, error, until=1000.0)
    assert overlay.remove_overlays(engine, SESSION_ID) == REMOVED
    assert engine.clock.now == 0.0


def test_other_engine_errors_are_raised_immediately(engine: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    overlay.create_overlay(engine, DESIRED)
    refusing(engine, monkeypatch, APIError("503", None, "The swarm does not have a leader."), until=1000.0)
    with pytest.raises(APIError, match="503"):
        overlay.remove_overlays(engine, SESSION_ID)
    assert engine.clock.now == 0.0


def test_other_drivers_need_no_overlay() -> None:
    assert [overlay.desired_overlay(plan(counts)) for counts in ({"agent1": 1}, {"agent1": 2}, None)] == [None] * 3


def test_networks_are_listed_again_while_the_engine_removes_one(engine: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    overlay.create_overlay(engine, DESIRED)
    listed, failures = engine.networks, [NotFound("network id not found")]
    pauses: list[float] = []

    def listing(**filters: Any) -> list[dict[str, Any]]:
        if failures:
            raise failures.pop()
        return list(listed(**filters))

    monkeypatch.setattr(engine, "networks", listing)
    monkeypatch.setattr(networks.time, "sleep", pauses.append)
    assert [network["Name"] for network in overlay.find_overlays(engine, SESSION_ID)] == [NAME]
    assert pauses == [networks.LIST_PAUSE]
    failures += [NotFound("network id not found")] * networks.LIST_ATTEMPTS
    with pytest.raises(NotFound):
        networks.find_networks(engine, SESSION_ID)
