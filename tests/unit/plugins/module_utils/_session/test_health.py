"""Looking at the health of an agent: what is stored, and which sessions are told."""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.backendai.cluster.plugins.module_utils._host import health
from ansible_collections.backendai.cluster.plugins.module_utils._host.health import read_health
from ansible_collections.backendai.cluster.plugins.module_utils._host.store import Store
from ansible_collections.backendai.cluster.plugins.module_utils._model.change import Change
from ansible_collections.backendai.cluster.plugins.module_utils._model.devices import PinnedResources
from ansible_collections.backendai.cluster.plugins.module_utils._session import look
from ansible_collections.backendai.cluster.plugins.module_utils._session.health import look_at_health
from ansible_collections.backendai.cluster.plugins.module_utils._session.service_state import read_service_state
from tests.unit.builders import REPOSITORY, held, plan
from tests.unit.fake_docker import FakeDocker
from tests.unit.silent_mount import bind, mount_memory, own_mounts

GPU = "GPU-1"
OTHER_ID = "00000000-3c0e-4f5e-9d0a-0f3c1d2e4b6a"


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[tuple[list[str], str]]:
    """Return the sessions that are told something, and what."""
    texts: list[tuple[list[str], str]] = []
    monkeypatch.setattr(
        look,
        "announce",
        lambda _engine, _store, sessions, text: texts.append(([session.plan.name for session in sessions], text)),
    )
    return texts


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    checks = tmp_path / "health.d"
    checks.mkdir()
    return checks


def let_fail(folder: Path, line: str) -> None:
    path = folder / "gpu"
    path.write_text(f"#!/bin/sh\necho '{line}'\nexit 1\n")
    path.chmod(0o755)


def keep_sessions(store: Store) -> None:
    """Store a session with a GPU and one without."""
    store.save(held(plan({"agent1": 1}), pinned={"main1": PinnedResources([0], {"cuda.device": [GPU]})}))
    store.save(held(dataclasses.replace(plan({"agent1": 1}, name="other"), id=OTHER_ID)))


@pytest.mark.parametrize(
    ("line", "names"), [(f"device {GPU}: ECC", ["train-llm"]), ("the driver hangs", ["other", "train-llm"])]
)
def test_sessions_that_use_what_is_sick_are_told_once(
    store: Store, folder: Path, told: list[Any], line: str, names: list[str]
) -> None:
    keep_sessions(store)
    let_fail(folder, line)
    changes, refused = look_at_health(store, "unix:///nowhere", folder)
    reason = line.rpartition(": ")[2]
    assert (changes, refused) == ([Change("health check gpu", None, reason)], [])
    assert [(sorted(sessions), text) for sessions, text in told] == [
        (names, f"the health check gpu of this host failed: {reason}")
    ]
    assert look_at_health(store, "unix:///nowhere", folder) == ([], [])
    (folder / "gpu").unlink()
    assert look_at_health(store, "unix:///nowhere", folder)[0] == [Change("health check gpu", None, "healthy")]
    assert (len(told), read_health(store).problems) == (1, ())


def test_a_refused_check_is_said_and_stored(store: Store, folder: Path, told: list[Any]) -> None:
    let_fail(folder, "x")
    (folder / "gpu").chmod(0o777)
    (sentence,) = look_at_health(store, "unix:///nowhere", folder)[1]
    assert read_health(store).refused == (sentence,)
    assert told == []


def test_a_state_that_has_become_read_only_is_found_told_and_in_the_way(
    store: Store, folder: Path, told: list[Any]
) -> None:
    keep_sessions(store)
    shutil.copy(REPOSITORY / "roles/agent/files/health/read-only", folder)
    problem = f"the file system of {store.root} is read-only"
    with own_mounts():
        mount_memory(health.VERDICT.parent)
        assert look_at_health(store, "unix:///nowhere", folder) == ([], [])
        bind(store.root, store.root, read_only=True)
        for _look in range(2):
            assert look_at_health(store, "unix:///nowhere", folder)[1] == [
                f"{store.health_file} cannot be written: Read-only file system."
            ]
        assert [text for _names, text in told] == [f"the health check read-only of this host failed: {problem}"]
        state = read_service_state(store, [], 0, FakeDocker().info())
    assert state.obstacles == (f"it receives no new sessions, because a health check failed: read-only: {problem}.",)
