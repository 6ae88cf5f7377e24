"""Tests for reading the swarm of an engine."""

from __future__ import annotations

from typing import Any

import pytest
from docker.errors import APIError

from ansible_collections.backendai.cluster.plugins.module_utils._docker import overlay as swarm
from ansible_collections.backendai.cluster.plugins.module_utils._model.facts import Swarm
from tests.unit.fake_docker import FakeDocker

WORKER = {
    "NodeID": "w",
    "LocalNodeState": "active",
    "ControlAvailable": False,
    "RemoteManagers": [{"NodeID": "m", "Addr": "192.0.2.1:2377"}],
}
MANAGER = {
    "NodeID": "m",
    "LocalNodeState": "active",
    "ControlAvailable": True,
    "Cluster": {"DataPathPort": 7788},
}
NOWHERE = {"NodeID": "", "LocalNodeState": "inactive", "ControlAvailable": False}
NODES = [
    {"ID": "w", "Status": {"State": "ready"}},
    {"ID": "m", "Status": {"State": "ready"}},
    {"ID": "stale_sessions", "Status": {"State": "down"}},
]


@pytest.fixture
def engine() -> Any:
    """Return the engine of a manager."""
    engine = FakeDocker()
    engine.swarm, engine.nodes_there = MANAGER, NODES
    return engine


def test_swarm_manager_reports_ready_nodes_and_port(engine: Any) -> None:
    assert swarm.swarm_membership(engine, swarm.read_swarm(engine)) == Swarm("m", ("m", "w"), 7788)
    assert swarm.swarm_port(MANAGER) == {7788: "Docker Swarm"}
    assert swarm.is_manager(engine) is True


def test_swarm_worker_reports_only_its_own_node(engine: Any) -> None:
    engine.swarm = WORKER
    assert swarm.swarm_membership(engine, WORKER) == Swarm("w")
    assert swarm.swarm_port(WORKER) == {}
    assert swarm.is_manager(engine) is False


@pytest.mark.parametrize("state", ["inactive", "pending", "locked", "error"])
def test_inactive_node_has_no_swarm_membership(engine: Any, state: str) -> None:
    assert swarm.swarm_membership(engine, {**NOWHERE, "LocalNodeState": state}) is None
    assert swarm.swarm_port({**NOWHERE, "LocalNodeState": state}) == (
        {} if state == "inactive" else {4789: "Docker Swarm"}
    )


def test_manager_without_quorum_reports_no_ready_nodes(engine: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def nodes() -> None:
        raise APIError("503", None, "The swarm does not have a leader.")

    monkeypatch.setattr(engine, "nodes", nodes)
    assert swarm.swarm_membership(engine, MANAGER) == Swarm("m", (), 7788)
