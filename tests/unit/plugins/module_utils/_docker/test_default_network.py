"""Tests for the default network of an agent."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import docker
import pytest

from ansible_collections.backendai.cluster.plugins.module_utils._docker.default_network import (
    DefaultNetwork,
    NetworkConflictError,
    apply_default_network,
    create_default_network,
    gateway_address,
    plan_default_network,
    read_default_network,
    renew_default_network,
    save_default_network,
)
from ansible_collections.backendai.cluster.plugins.module_utils._host.store import Store
from ansible_collections.backendai.cluster.plugins.module_utils._model.change import Change

DESIRED = DefaultNetwork("backendai-default", "backendai0", "10.127.0.0/16", 1400)
OF_ANY = DefaultNetwork("backendai-default", "backendai0", mtu=1400)


class Engine:
    """A fake engine with networks; as on a real one, the name filter also matches names that contain the given one."""

    api_version = "1.41"

    def __init__(self) -> None:
        self.existing: list[dict[str, Any]] = [{"Id": "x", "Name": "backendai-default-old", "Labels": {}}]
        self.attached: list[dict[str, str]] = []

    def networks(self, filters: dict[str, list[str]]) -> list[dict[str, Any]]:
        return [network for network in self.existing if filters["name"][0] in network["Name"]]

    def containers(self, **query: Any) -> list[dict[str, str]]:
        assert query["all"], "a stopped container keeps its network too"
        return [container for container in self.attached if container["network"] in query["filters"]["network"]]

    def remove_network(self, network: str) -> None:
        self.existing = [entry for entry in self.existing if entry["Id"] != network]

    def create_network(self, name: str, driver: str, **settings: Any) -> None:
        assert name not in [network["Name"] for network in self.existing], "two networks of one name"
        pools = (settings["ipam"] or {}).get("Config") or [{"Subnet": "172.18.0.0/16", "Gateway": "172.18.0.1"}]
        network = {"Id": f"id-{name}", "Name": name, "Driver": driver, "EnableIPv6": False, "IPAM": {"Config": pools}}
        self.existing.append({**network, "Options": settings["options"], "Labels": settings["labels"]})


@pytest.fixture
def engine() -> Any:
    """Return an engine with another network that has the same prefix in its name."""
    return Engine()


def test_missing_network_is_a_change_for_each_of_its_properties(engine: Any) -> None:
    assert plan_default_network(engine, DESIRED) == [
        Change("network backendai-default driver", None, "bridge"),
        Change("network backendai-default bridge", None, "backendai0"),
        Change("network backendai-default icc", None, "false"),
        Change("network backendai-default ipv6", None, "false"),
        Change("network backendai-default mtu", None, "1400"),
        Change("network backendai-default subnet", None, "10.127.0.0/16"),
    ]


@pytest.mark.parametrize("desired", [DESIRED, OF_ANY], ids=["subnet", "any"])
def test_existing_network_is_no_change(engine: Any, desired: DefaultNetwork) -> None:
    create_default_network(engine, desired)
    assert plan_default_network(engine, desired) == []


@contextmanager
def created_meanwhile(engine: Any) -> Iterator[None]:
    """A lock that another provisioning of the host has held, which has created the network."""
    create_default_network(engine, DESIRED)
    yield


def test_of_two_provisionings_at_once_one_creates_the_network(engine: Any) -> None:
    assert apply_default_network(engine, DESIRED, created_meanwhile(engine), check_mode=False) == []
    assert plan_default_network(engine, DESIRED) == []


@pytest.mark.parametrize("check_mode", [True, False], ids=["check mode", "run"])
def test_a_missing_network_is_created_except_in_check_mode(engine: Any, check_mode: bool) -> None:
    missing = plan_default_network(engine, DESIRED)
    assert apply_default_network(engine, DESIRED, nullcontext(), check_mode=check_mode) == missing
    assert plan_default_network(engine, DESIRED) == (missing if check_mode else [])


def test_a_network_that_is_just_being_removed_is_no_obstacle(engine: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    create_default_network(engine, DESIRED)
    listed, answers = engine.networks, [docker.errors.NotFound("network x not found")]

    def list_once_removed(**asked: Any) -> list[dict[str, Any]]:
        if answers:
            raise answers.pop()
        networks: list[dict[str, Any]] = listed(**asked)
        return networks

    monkeypatch.setattr(engine, "networks", list_once_removed)
    assert plan_default_network(engine, DESIRED) == []


def test_unspecified_subnet_is_not_compared(engine: Any) -> None:
    create_default_network(engine, DESIRED)
    assert plan_default_network(engine, OF_ANY) == []


def test_managed_network_that_differs_is_replaced(engine: Any) -> None:
    create_default_network(engine, dataclasses.replace(DESIRED, bridge="br0"))
    assert plan_default_network(engine, DESIRED) == [Change("network backendai-default bridge", "br0", "backendai0")]
    create_default_network(engine, DESIRED)
    assert plan_default_network(engine, DESIRED) == []
    assert [network["Name"] for network in engine.existing] == ["backendai-default-old", "backendai-default"]


def test_network_in_use_is_not_replaced(engine: Any) -> None:
    create_default_network(engine, DefaultNetwork("backendai-default", "br0"))
    engine.attached = [{"network": "id-backendai-default"}, {"network": "x"}]
    with pytest.raises(NetworkConflictError) as raised:
        create_default_network(engine, DESIRED)
    assert str(raised.value) == (
        "the Docker network backendai-default differs from the configured one, and 1 containers are attached to it:"
        " terminate the sessions on this agent first."
    )


def test_unmanaged_network_is_never_changed(engine: Any) -> None:
    engine.existing.append({"Id": "f", "Name": "backendai-default", "Labels": {}})
    with pytest.raises(NetworkConflictError) as raised:
        plan_default_network(engine, DESIRED)
    assert str(raised.value) == (
        "the Docker network backendai-default exists and does not belong to backendai.cluster: remove it, or set"
        " agent_default_network to another name."
    )


def options(engine: Any) -> dict[str, str]:
    (network,) = [network for network in engine.existing if network["Name"] == "backendai-default"]
    return dict(network["Options"])


def test_all_that_is_relied_upon_is_said_whatever_the_engine_gives_other_networks(engine: Any) -> None:
    create_default_network(engine, DESIRED)
    assert options(engine) == {
        "com.docker.network.bridge.enable_icc": "false",
        "com.docker.network.bridge.enable_ip_masquerade": "true",
        "com.docker.network.bridge.gateway_mode_ipv4": "nat",
        "com.docker.network.bridge.inhibit_ipv4": "false",
        "com.docker.network.bridge.name": DESIRED.bridge,
        "com.docker.network.container_iface_prefix": "eth",
        "com.docker.network.driver.mtu": "1400",
        "com.docker.network.enable_ipv4": "true",
        "com.docker.network.enable_ipv6": "false",
    }


def test_the_mtu_of_a_network_without_containers_follows_the_way_out(engine: Any) -> None:
    create_default_network(engine, DESIRED)
    narrower = dataclasses.replace(DESIRED, mtu=1300)
    change = Change("network backendai-default mtu", "1400", "1300")
    assert apply_default_network(engine, narrower, nullcontext(), check_mode=False) == [change]
    assert options(engine)["com.docker.network.driver.mtu"] == "1300"


def test_a_network_with_containers_stays_when_the_way_out_changes(engine: Any) -> None:
    create_default_network(engine, DESIRED)
    engine.attached = [{"network": "id-backendai-default"}]
    narrower = dataclasses.replace(DESIRED, mtu=1300)
    assert apply_default_network(engine, narrower, nullcontext(), check_mode=False) == []
    assert renew_default_network(engine, narrower) is False
    assert options(engine)["com.docker.network.driver.mtu"] == "1400"


def test_a_network_without_an_mtu_has_the_engines_own(engine: Any) -> None:
    create_default_network(engine, DESIRED)
    del engine.existing[-1]["Options"]["com.docker.network.driver.mtu"]
    assert plan_default_network(engine, dataclasses.replace(DESIRED, mtu=1500)) == []


def test_what_the_network_is_created_from_is_stored_with_the_mtu_that_it_has(engine: Any, tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    assert read_default_network(store) is None
    create_default_network(engine, DESIRED)
    save_default_network(engine, store, dataclasses.replace(DESIRED, mtu=1300))
    assert read_default_network(store) == DESIRED
    store.default_network_file.write_text("{")
    assert read_default_network(store) is None


def test_the_address_of_the_bridge_is_the_engines(engine: Any) -> None:
    assert gateway_address(engine, "backendai-default") is None
    create_default_network(engine, OF_ANY)
    assert gateway_address(engine, "backendai-default") == "172.18.0.1/16"


def test_a_network_of_others_is_not_renewed(engine: Any) -> None:
    engine.existing.append({"Id": "f", "Name": "backendai-default", "Labels": {}})
    with pytest.raises(NetworkConflictError, match="exists and does not belong to backendai"):
        renew_default_network(engine, DESIRED)
    assert len(engine.existing) == 2
