"""Drift of a slice from its plan."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.backendai.cluster.plugins.module_utils._docker import networks
from ansible_collections.backendai.cluster.plugins.module_utils._firewall.sync import sync_ruleset
from ansible_collections.backendai.cluster.plugins.module_utils._host.local_session import LocalSession
from ansible_collections.backendai.cluster.plugins.module_utils._host.store import Store
from ansible_collections.backendai.cluster.plugins.module_utils._model.change import Change
from ansible_collections.backendai.cluster.plugins.module_utils._model.plan import SessionPlan
from ansible_collections.backendai.cluster.plugins.module_utils._network import iproute
from ansible_collections.backendai.cluster.plugins.module_utils._network.container import InterfacePlan
from ansible_collections.backendai.cluster.plugins.module_utils._network.iproute import LinkOperation, NetworkError
from ansible_collections.backendai.cluster.plugins.module_utils._session import drift, links
from ansible_collections.backendai.cluster.plugins.module_utils._session.drift import find_drift
from ansible_collections.backendai.cluster.plugins.module_utils._session.links import plan_links
from tests.unit.builders import SESSION_ID, held, own_labels, plan
from tests.unit.fake_network import FakeNetwork

MADE = plan({"agent1": 2, "agent2": 1})
ALONE = plan({"agent1": 2})


@pytest.fixture
def made() -> SessionPlan:
    """Return the plan of the session."""
    return MADE


@pytest.fixture
def slice_here(engine: Any, store: Store, made: SessionPlan) -> LocalSession:
    """Return a session without drift on this agent."""
    session = held(made)
    store.save(session)
    desired = networks.desired_network(made)
    if desired is not None:
        networks.create_network(engine, desired)
    for kernel in session.kernels:
        bears = own_labels(kernel.hostname)
        engine.made.append(
            {"Id": kernel.hostname, "Names": [f"/{kernel.container}"], "Labels": bears, "State": "running"}
        )
    sync_ruleset(store, check_mode=False)
    iproute.apply_operations(plan_links(made, "agent1", iproute.LinkState()))
    return session


def test_a_healthy_slice_has_no_drift(engine: Any, store: Store, slice_here: LocalSession) -> None:
    assert find_drift(engine, store, slice_here) == []


def test_stopped_and_missing_containers_are_named(engine: Any, store: Store, slice_here: LocalSession) -> None:
    engine.made[0]["State"] = "exited"
    del engine.made[1]
    assert find_drift(engine, store, slice_here) == [
        Change("container backendai-train-llm-main1", "exited", "running"),
        Change("container backendai-train-llm-sub1", None, "running"),
    ]


def test_container_with_a_lost_interface_is_named(
    engine: Any, store: Store, slice_here: LocalSession, kernel: FakeNetwork
) -> None:
    kernel.unplugged = {"sub1": "cluster0"}
    assert find_drift(engine, store, slice_here) == [
        Change("container backendai-train-llm-sub1", "running, without cluster0", "running")
    ]


def test_changed_interfaces_are_named(
    engine: Any, store: Store, slice_here: LocalSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    detached = Change("port of sub1 on bai-5f0c6a523c", "detached", "attached")
    monkeypatch.setattr(drift, "plan_interfaces", lambda *_of: InterfacePlan([LinkOperation(detached)], {}))
    assert find_drift(engine, store, slice_here) == [detached]


def test_missing_rules_of_the_engine_are_named(
    engine: Any, store: Store, slice_here: LocalSession, kernel: FakeNetwork
) -> None:
    kernel.engine_rules = False
    remedy = "missing: restart the engine (systemctl restart docker)"
    assert find_drift(engine, store, slice_here) == [Change("rules of the engine", remedy, "present")]


def test_missing_link_is_named(engine: Any, store: Store, slice_here: LocalSession, kernel: FakeNetwork) -> None:
    kernel.links.clear()
    assert find_drift(engine, store, slice_here) == [
        step.change for step in plan_links(MADE, "agent1", iproute.LinkState())
    ]
    assert kernel.links == set()


def test_missing_rules_are_named_and_not_repaired(
    engine: Any, store: Store, slice_here: LocalSession, kernel: FakeNetwork
) -> None:
    kernel.table = ""
    assert [change.subject for change in find_drift(engine, store, slice_here)] == ["firewall table inet backendai"]
    assert kernel.table == ""


def test_changed_and_missing_files_are_named(engine: Any, store: Store, slice_here: LocalSession) -> None:
    folder = store.kernel_folder(SESSION_ID, "main1")
    folder.mkdir()
    hosts, environment = folder / "hosts", folder / "environment"
    hosts.write_text("10.128.0.2 main1\n")
    environment.write_text("A=1\n")
    store.save_checksums(SESSION_ID, [hosts, environment])
    assert find_drift(engine, store, slice_here) == []
    hosts.write_text("10.128.0.9 main1\n")
    environment.unlink()
    assert find_drift(engine, store, slice_here) == [
        Change(f"file {hosts}", "changed", "unchanged"),
        Change(f"file {environment}", None, "unchanged"),
    ]


@pytest.mark.parametrize("made", [ALONE])
def test_missing_network_is_named(engine: Any, store: Store, slice_here: LocalSession) -> None:
    engine.joined.clear()
    (change,) = find_drift(engine, store, slice_here)
    assert (change.subject, change.before) == ("network backendai-train-llm", None)


def test_a_session_that_is_not_committed_is_named(engine: Any, store: Store, slice_here: LocalSession) -> None:
    assert slice_here.committed
    store.save(held(MADE, expires_at=9e12))
    half = store.session(SESSION_ID)
    assert half is not None
    assert find_drift(engine, store, half) == [Change("session train-llm", "not committed", "committed")]


def test_unreadable_state_is_named_and_hides_nothing(
    engine: Any, store: Store, slice_here: LocalSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_link: object, _look: object) -> list[LinkOperation]:
        raise NetworkError("ip -j link show:\nno")

    monkeypatch.setattr(links, "plan_vxlan", fail)
    engine.made[0]["State"] = "exited"
    assert find_drift(engine, store, slice_here) == [
        Change("links", "unreadable: ip -j link show: no", "readable"),
        Change("container backendai-train-llm-main1", "exited", "running"),
    ]


def test_single_container_session_has_no_network_drift(engine: Any, store: Store) -> None:
    alone = held(plan({"agent1": 1}))
    store.save(alone)
    sync_ruleset(store, check_mode=False)
    assert find_drift(engine, store, alone) == [Change("container backendai-train-llm-main1", None, "running")]


def test_a_container_that_has_lost_its_gpu_is_drift(
    engine: Any, store: Store, slice_here: LocalSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(drift, "lost_nodes", lambda *_of: {"sub1": "/dev/nvidia0"})
    assert find_drift(engine, store, slice_here) == [
        Change("container backendai-train-llm-sub1", "running, without /dev/nvidia0", "running")
    ]
