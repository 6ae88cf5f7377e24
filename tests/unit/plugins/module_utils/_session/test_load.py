"""What sessions on an agent use at this moment."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from docker.errors import NotFound

from ansible_collections.backendai.cluster.plugins.module_utils._host.local_session import LocalSession
from ansible_collections.backendai.cluster.plugins.module_utils._host.store import Store
from ansible_collections.backendai.cluster.plugins.module_utils._model.devices import PinnedResources
from ansible_collections.backendai.cluster.plugins.module_utils._model.use import Load
from ansible_collections.backendai.cluster.plugins.module_utils._session import load
from ansible_collections.backendai.cluster.plugins.module_utils._session.load import measure_loads
from tests.unit.builders import NOW, SESSION_ID, held, plan

PINNED = {
    "main1": PinnedResources([0], {"cuda.device": ["GPU-2", "GPU-1"]}),
    "sub1": PinnedResources([1], {"cuda.device": ["MIG-7"]}),
}


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Let two seconds pass in the measurement, and no time; return the time at which it is."""
    now = [100.0]

    def sleep(_seconds: float) -> None:
        now[0] += 2.0

    monkeypatch.setattr(load.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(load.time, "sleep", sleep)
    return now


def test_a_load_is_what_all_containers_use_over_the_same_time(
    store: Store, engine: Any, clock: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    session = held(plan({"agent1": 2}), pinned=PINNED)
    monkeypatch.setattr(load, "running_pids", lambda *_session: {"main1": 7, "sub1": 8})
    monkeypatch.setattr(load, "gpu_loads", lambda: {"GPU-1": 0, "GPU-2": 97, "GPU-3": 50})
    monkeypatch.setattr(load, "cpu_seconds", lambda pid: clock[0] * {7: 1.5, 8: 0.25}[pid])
    assert measure_loads(engine, store, [session]) == {SESSION_ID: Load(1.75, (97, 0))}


@pytest.mark.parametrize("begins", [True, False])
def test_a_container_that_begins_or_ends_meanwhile_is_left_out(
    store: Store, engine: Any, clock: list[float], monkeypatch: pytest.MonkeyPatch, *, begins: bool
) -> None:
    def cpu_seconds(pid: int) -> float:
        if pid == 8 and (clock[0] == 100.0) == begins:
            raise OSError(2, "No such file or directory")
        return clock[0]

    monkeypatch.setattr(load, "running_pids", lambda *_session: {"main1": 7, "sub1": 8})
    monkeypatch.setattr(load, "gpu_loads", lambda: None)
    monkeypatch.setattr(load, "cpu_seconds", cpu_seconds)
    assert measure_loads(engine, store, [held(plan({"agent1": 2}))]) == {SESSION_ID: Load(1.0)}


@pytest.mark.usefixtures("clock")
def test_a_session_that_the_engine_cannot_read_has_no_load_and_spoils_no_other(
    store: Store, engine: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def running_pids(_client: object, _store: Store, session: LocalSession) -> dict[str, int]:
        if session.plan.id != SESSION_ID:
            raise NotFound("No such container: main1")
        return {"main1": 7}

    monkeypatch.setattr(load, "running_pids", running_pids)
    monkeypatch.setattr(load, "gpu_loads", lambda: None)
    monkeypatch.setattr(load, "cpu_seconds", lambda _pid: 1.0)
    other = held(dataclasses.replace(plan({"agent1": 1}), id=f"0{SESSION_ID[1:]}"))
    assert measure_loads(engine, store, [other, held(plan({"agent1": 1}))]) == {SESSION_ID: Load(0.0)}


@pytest.mark.usefixtures("clock")
def test_a_session_that_is_being_created_has_no_load(store: Store, engine: Any) -> None:
    assert measure_loads(engine, store, [held(plan({"agent1": 2}), expires_at=NOW)]) == {}
