"""Tests for the bridge network of a session."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from ansible_collections.backendai.cluster.plugins.module_utils._docker import networks
from ansible_collections.backendai.cluster.plugins.module_utils._docker.networks import BridgeNetwork, desired_network
from ansible_collections.backendai.cluster.plugins.module_utils._model.change import Change
from ansible_collections.backendai.cluster.plugins.module_utils._model.network import bridge_name
from tests.unit.builders import SESSION_ID, plan
from tests.unit.fake_docker import FakeDocker

DESIRED = BridgeNetwork("backendai-train-llm", "10.128.3.0/29", 1450, bridge_name(SESSION_ID), SESSION_ID)
PHRASE = "10.128.3.0/29, mtu 1450, bridge bai-5f0c6a523c"
FOREIGN = {"Id": "f", "Name": "bridge", "Labels": {}, "IPAM": {"Config": [{"Subnet": "172.17.0.0/16"}]}}


@pytest.fixture
def engine() -> Any:
    """Return an engine with an unmanaged network."""
    engine = FakeDocker()
    engine.joined.append(FOREIGN)
    return engine


def test_missing_network_is_a_change(engine: Any) -> None:
    assert networks.plan_network(engine, DESIRED) == Change("network backendai-train-llm", None, PHRASE)


def test_existing_network_needs_no_change(engine: Any) -> None:
    networks.create_network(engine, DESIRED)
    assert networks.plan_network(engine, DESIRED) is None


@pytest.mark.parametrize("drift", [{"mtu": 1400}, {"subnet": "10.128.3.8/29"}])
def test_network_with_other_properties_is_a_change(engine: Any, drift: dict[str, Any]) -> None:
    networks.create_network(engine, dataclasses.replace(DESIRED, **drift))
    assert networks.plan_network(engine, DESIRED) == Change(
        "network backendai-train-llm", "backendai-train-llm", PHRASE
    )


def test_network_is_internal_without_agent_address_on_its_bridge_whatever_the_engine_gives_others(engine: Any) -> None:
    networks.create_network(engine, DESIRED)
    (request,) = engine.asked
    assert (request["name"], request["driver"]) == ("backendai-train-llm", "bridge")
    assert (request["internal"], request["check_duplicate"]) == (True, True)
    assert request["options"] == {
        "com.docker.network.bridge.enable_icc": "true",
        "com.docker.network.bridge.enable_ip_masquerade": "true",
        "com.docker.network.bridge.gateway_mode_ipv4": "nat",
        "com.docker.network.bridge.name": "bai-5f0c6a523c",
        "com.docker.network.bridge.inhibit_ipv4": "true",
        "com.docker.network.container_iface_prefix": "cluster",
        "com.docker.network.driver.mtu": "1450",
        "com.docker.network.enable_ipv4": "true",
        "com.docker.network.enable_ipv6": "false",
    }
    assert request["ipam"]["Config"][0]["Subnet"] == "10.128.3.0/29"
    assert {**request["labels"], "ai.backend.digest": ""} == {
        "ai.backend.owner": "backendai.cluster",
        "ai.backend.session-id": SESSION_ID,
        "ai.backend.digest": "",
    }


def test_only_the_networks_of_the_session_are_removed(engine: Any) -> None:
    networks.create_network(engine, DESIRED)
    networks.create_network(engine, dataclasses.replace(DESIRED, name="backendai-other", session_id="other"))
    assert networks.remove_networks(engine, SESSION_ID) == [Change("network backendai-train-llm", "id-backendai", None)]
    assert [network["Name"] for network in engine.joined] == ["bridge", "backendai-other"]
    assert networks.remove_networks(engine, SESSION_ID) == []


@pytest.mark.parametrize(
    "change",
    [{"Name": "strange"}, {"Options": {}}, {"Options": None}, {"Options": {networks.BRIDGE_OPTION: "bai-0000000000"}}],
    ids=["name", "no bridge", "no options", "another bridge"],
)
def test_a_network_that_only_has_the_labels_of_a_session_is_not_its_own(engine: Any, change: dict[str, Any]) -> None:
    networks.create_network(engine, DESIRED)
    engine.joined[-1].update(change)
    assert networks.find_networks(engine, SESSION_ID) == []
    assert networks.remove_networks(engine, SESSION_ID) == []
    assert len(engine.joined) == 2


def test_subnets_of_all_networks_are_in_use(engine: Any) -> None:
    networks.create_network(engine, DESIRED)
    engine.joined.append({"Id": "h", "Name": "host", "Labels": {}, "IPAM": {"Config": None}})
    engine.joined.append({"Id": "n", "Name": "odd", "Labels": {}, "IPAM": {"Config": [{"Gateway": "10.0.0.1"}]}})
    assert networks.subnets(engine) == ["10.128.3.0/29", "172.17.0.0/16"]


def test_session_of_one_container_needs_no_network() -> None:
    assert desired_network(plan({"agent1": 1})) is None


def test_a_session_across_agents_needs_no_network_of_the_engine() -> None:
    assert desired_network(plan()) is None


def test_a_session_on_one_agent_gets_the_planned_network() -> None:
    session = plan({"agent1": 4})
    assert session.network is not None
    network = desired_network(session)
    assert network is not None
    assert (network.name, network.subnet, network.mtu, network.bridge, network.session_id) == (
        session.network.name,
        session.network.subnet,
        session.network.mtu,
        session.network.bridge,
        SESSION_ID,
    )
