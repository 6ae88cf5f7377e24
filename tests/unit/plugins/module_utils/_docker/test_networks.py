"""The Docker network of a session."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from ansible_collections.backendai.cluster.plugins.module_utils._docker import networks
from ansible_collections.backendai.cluster.plugins.module_utils._docker.networks import BridgeNetwork, desired_network
from ansible_collections.backendai.cluster.plugins.module_utils._model.change import Change
from tests.unit.builders import SESSION_ID, plan
from tests.unit.engine import Engine

WANTED = BridgeNetwork("backendai-train-llm", "10.128.3.0/29", 1450, "bai-1", SESSION_ID)
PHRASE = "10.128.3.0/29, mtu 1450, bridge bai-1"
FOREIGN = {"Id": "f", "Name": "bridge", "Labels": {}, "IPAM": {"Config": [{"Subnet": "172.17.0.0/16"}]}}


@pytest.fixture
def engine() -> Any:
    """Return an engine with a network that is not ours."""
    made = Engine()
    made.joined.append(FOREIGN)
    return made


def test_a_missing_network_is_a_change(engine: Any) -> None:
    assert networks.plan_network(engine, WANTED) == Change("network backendai-train-llm", None, PHRASE)


def test_a_network_that_was_made_is_none(engine: Any) -> None:
    networks.create_network(engine, WANTED)
    assert networks.plan_network(engine, WANTED) is None


@pytest.mark.parametrize("drift", [{"mtu": 1400}, {"subnet": "10.128.3.8/29"}, {"bridge": "bai-2"}])
def test_a_network_that_was_made_differently_is_a_change(engine: Any, drift: dict[str, Any]) -> None:
    networks.create_network(engine, dataclasses.replace(WANTED, **drift))
    assert networks.plan_network(engine, WANTED) == Change("network backendai-train-llm", "backendai-train-llm", PHRASE)


def test_a_network_is_internal_and_keeps_the_agent_off_its_bridge(engine: Any) -> None:
    networks.create_network(engine, WANTED)
    (asked,) = engine.asked
    assert (asked["name"], asked["driver"]) == ("backendai-train-llm", "bridge")
    assert (asked["internal"], asked["check_duplicate"]) == (True, True)
    assert asked["options"] == {
        "com.docker.network.bridge.name": "bai-1",
        "com.docker.network.bridge.inhibit_ipv4": "true",
        "com.docker.network.container_iface_prefix": "cluster",
        "com.docker.network.driver.mtu": "1450",
    }
    assert asked["ipam"]["Config"][0]["Subnet"] == "10.128.3.0/29"
    assert {**asked["labels"], "ai.backend.digest": ""} == {
        "ai.backend.owner": "backendai.cluster",
        "ai.backend.session-id": SESSION_ID,
        "ai.backend.digest": "",
    }


def test_only_the_sessions_networks_are_removed(engine: Any) -> None:
    networks.create_network(engine, WANTED)
    networks.create_network(engine, dataclasses.replace(WANTED, name="backendai-other", session_id="other"))
    assert networks.remove_networks(engine, SESSION_ID) == [Change("network backendai-train-llm", "id-backendai", None)]
    assert [one["Name"] for one in engine.joined] == ["bridge", "backendai-other"]
    assert networks.remove_networks(engine, SESSION_ID) == []


def test_subnets_of_all_networks_are_in_use(engine: Any) -> None:
    networks.create_network(engine, WANTED)
    engine.joined.append({"Id": "h", "Name": "host", "Labels": {}, "IPAM": {"Config": None}})
    engine.joined.append({"Id": "n", "Name": "odd", "Labels": {}, "IPAM": {"Config": [{"Gateway": "10.0.0.1"}]}})
    assert networks.subnets(engine) == ["10.128.3.0/29", "172.17.0.0/16"]


def test_a_session_of_one_wants_no_network() -> None:
    assert desired_network(plan({"agent1": 1})) is None


@pytest.mark.parametrize("counts", [{"agent1": 4}, {"agent1": 2, "agent2": 2}], ids=["bridge", "vxlan"])
def test_every_agent_of_a_session_wants_the_planned_network(counts: dict[str, int]) -> None:
    made = plan(counts)
    assert made.network is not None
    wanted = desired_network(made)
    assert wanted is not None
    assert (wanted.name, wanted.subnet, wanted.mtu, wanted.bridge, wanted.session_id) == (
        made.network.name,
        made.network.subnet,
        made.network.mtu,
        made.network.bridge,
        SESSION_ID,
    )
