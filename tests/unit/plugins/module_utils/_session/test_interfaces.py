"""Networks of a session's containers: their endpoints as the engine reports them, and retries."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.backendai.cluster.plugins.module_utils._host.store import Store
from ansible_collections.backendai.cluster.plugins.module_utils._model.change import Change
from ansible_collections.backendai.cluster.plugins.module_utils._network.container import InterfacePlan
from ansible_collections.backendai.cluster.plugins.module_utils._network.iproute import LinkOperation, NetworkError
from ansible_collections.backendai.cluster.plugins.module_utils._session import interfaces
from ansible_collections.backendai.cluster.plugins.module_utils._session.interfaces import (
    apply_interfaces,
    plan_interfaces,
)
from tests.unit.builders import held, own_labels, plan
from tests.unit.fake_docker import FakeDocker
from tests.unit.fake_network import FakeNetwork

MADE = plan({"agent1": 1, "agent2": 1})
DEFAULT = {"IPAddress": "172.18.0.2", "IPPrefixLen": 16, "MacAddress": "02:42:AC:12:00:02", "Gateway": "172.18.0.1"}
FOREIGN = {"IPAddress": "172.19.0.2", "IPPrefixLen": 16, "MacAddress": "02:42:ac:13:00:02", "Gateway": "172.19.0.1"}


@pytest.fixture
def main1(engine: FakeDocker, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Return what the engine knows of the running main1; the caller may change it."""
    bears = own_labels("main1")
    engine.made.append({"Id": "id-main1", "Names": ["/backendai-train-llm-main1"], "Labels": bears, "State": "running"})
    inspected = {"State": {"Pid": 42}, "NetworkSettings": {"Networks": {"backendai-default": DEFAULT}}}
    monkeypatch.setattr(engine, "inspect_container", lambda _container: inspected)
    return inspected


def test_endpoint_is_that_on_the_default_network(
    engine: Any, store: Store, kernel: FakeNetwork, main1: dict[str, Any]
) -> None:
    main1["NetworkSettings"]["Networks"] = {"a-foreign-one": FOREIGN, "backendai-default": DEFAULT}
    assert plan_interfaces(engine, store, held(MADE)) == InterfacePlan([], {})
    (container,) = kernel.plugged
    assert (container.endpoint.address, container.endpoint.mac) == ("172.18.0.2/16", "02:42:ac:12:00:02")
    assert container.mtu == 1500, "that of the way out"


def test_container_that_was_disconnected_has_lost_its_interface(
    engine: Any, store: Store, kernel: FakeNetwork, main1: dict[str, Any]
) -> None:
    main1["NetworkSettings"]["Networks"] = {"a-foreign-one": FOREIGN}
    assert plan_interfaces(engine, store, held(MADE)).lost == {"main1": "eth0"}
    assert kernel.plugged == []


def test_the_rules_get_new_ports_alone(engine: Any, store: Store, kernel: FakeNetwork) -> None:
    kernel.table = "those that were applied before"
    change = Change("port veth9", "not isolated", "isolated")
    apply_interfaces(engine, store, held(MADE), InterfacePlan([LinkOperation(change)], {}))
    assert kernel.table == "those that were applied before"
    assert kernel.pins.startswith("flush set inet backendai")


def test_container_that_has_ended_is_skipped(
    engine: Any, store: Store, kernel: FakeNetwork, main1: dict[str, Any]
) -> None:
    main1["State"]["Pid"] = 0
    assert plan_interfaces(engine, store, held(MADE)) == InterfacePlan([], {})
    assert kernel.plugged == []


@pytest.mark.parametrize("failures", [1, 4, 5])
def test_error_is_retried_with_a_new_plan(
    engine: Any, store: Store, monkeypatch: pytest.MonkeyPatch, failures: int
) -> None:
    attempts: list[list[LinkOperation]] = []

    def apply(_store: Store, steps: list[LinkOperation]) -> None:
        attempts.append(steps)
        if len(attempts) <= failures:
            raise NetworkError("ip -batch -: RTNETLINK answers: Address already in use")

    monkeypatch.setattr(interfaces, "_apply", apply)
    first = [LinkOperation(Change("cluster0 of main1", None, "10.128.3.2/29"))]
    if failures < 5:
        apply_interfaces(engine, store, held(MADE), InterfacePlan(first, {}))
    else:
        with pytest.raises(NetworkError, match=r"Address already in use$"):
            apply_interfaces(engine, store, held(MADE), InterfacePlan(first, {}))
    assert attempts == [first, *([[]] * min(failures, 4))]
