"""Containers that were not started after the engine because of a folder: what the timer starts later, and what not."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from ansible_collections.backendai.cluster.plugins.module_utils._docker.client import DockerUnavailableError
from ansible_collections.backendai.cluster.plugins.module_utils._host.mount_table import FolderOnMount, Mounted
from ansible_collections.backendai.cluster.plugins.module_utils._host.path_look import NoFolder
from ansible_collections.backendai.cluster.plugins.module_utils._host.store import Store
from ansible_collections.backendai.cluster.plugins.module_utils._session import mount_sources, reconcile, refused_starts
from ansible_collections.backendai.cluster.plugins.module_utils._session.mount_sources import MountRefusedError
from ansible_collections.backendai.cluster.plugins.module_utils._session.reconcile import restore
from tests.unit.builders import SESSION_ID, held, own_labels, plan
from tests.unit.fake_docker import FakeDocker
from tests.unit.fake_network import FakeNetwork

MADE = plan({"agent1": 2, "agent2": 1}, mounts=[{"source": "/data", "target": "/a"}])
ROOT = Mounted("/", frozenset(), "ext4", "/dev/sda1", ())
DATA = Mounted("/data", frozenset(), "nfs4", "files:/export", ())
REFUSED = (
    "train-llm: session_mounts: /data on agent1 was on the mount at /data (nfs4 of files:/export), and is on the mount"
    " at / (ext4 of /dev/sda1) by now: restore the former, or end the session"
)


@pytest.fixture
def mounts(monkeypatch: pytest.MonkeyPatch) -> list[Mounted]:
    """Return what is mounted on the agent: at first not the folder of the session."""
    table = [ROOT]
    monkeypatch.setattr(mount_sources, "read_mounts", lambda *_of: table)
    return table


@pytest.fixture
def rebooted(engine: FakeDocker, store: Store, mounts: list[Mounted]) -> FakeDocker:
    """Return the engine of an agent whose restore has found a folder that is not mounted."""
    store.save(held(MADE))
    store.save_mount_sources(SESSION_ID, {"/data": FolderOnMount.find("/data", [ROOT, DATA])})
    for name in ("main1", "sub1"):
        engine.made.append({"Id": f"id-{name}", "Names": [f"/{name}"], "Labels": own_labels(name), "State": "exited"})
        store.container_ids(SESSION_ID).record(name, f"id-{name}")
    assert run(store, engine, start=True) == [REFUSED]
    assert engine.calls == []
    mounts.append(DATA)
    return engine


def run(store: Store, engine: Any, *, start: bool = False) -> list[str]:
    """Let the restore run, or the timer; return the failures."""
    return restore(store, lambda: engine, start=start)[1]


def started(engine: FakeDocker) -> list[str]:
    """Return the containers that were started since the last call."""
    calls = sorted(engine.calls)
    engine.calls.clear()
    return [call.removeprefix("start id-") for call in calls if call.startswith("start ")]


def test_the_timer_starts_them_once_the_folder_is_mounted_and_never_again(
    rebooted: FakeDocker, store: Store, mounts: list[Mounted], kernel: FakeNetwork
) -> None:
    mounts.remove(DATA)
    for _run in range(2):
        assert run(store, rebooted) == [REFUSED]
        assert started(rebooted) == []
        assert refused_starts.awaits_folder(store, SESSION_ID)
    mounts.append(DATA)
    assert run(store, rebooted) == []
    assert started(rebooted) == ["main1", "sub1"]
    assert not refused_starts.awaits_folder(store, SESSION_ID)
    assert {container.hostname for container in kernel.plugged} == {"main1", "sub1"}
    rebooted.kill("id-sub1")
    assert run(store, rebooted) == []
    assert started(rebooted) == []


def test_what_a_restore_has_started_is_not_started_by_the_timer(rebooted: FakeDocker, store: Store) -> None:
    assert run(store, rebooted, start=True) == []
    assert started(rebooted) == ["main1", "sub1"]
    rebooted.kill("id-sub1")
    assert run(store, rebooted) == []
    assert started(rebooted) == []


def test_what_somebody_has_started_and_stopped_meanwhile_stays_stopped(rebooted: FakeDocker, store: Store) -> None:
    rebooted.start("id-sub1")
    rebooted.kill("id-sub1")
    started(rebooted)
    assert run(store, rebooted) == []
    assert started(rebooted) == ["main1"]


def test_what_ran_when_the_rest_was_refused_stays_stopped_later(
    rebooted: FakeDocker, store: Store, mounts: list[Mounted]
) -> None:
    rebooted.start("id-sub1")
    mounts.remove(DATA)
    assert run(store, rebooted, start=True) == [REFUSED]
    rebooted.kill("id-sub1")
    started(rebooted)
    mounts.append(DATA)
    assert run(store, rebooted) == []
    assert started(rebooted) == ["main1"]


def test_a_command_that_has_begun_is_not_begun_again(rebooted: FakeDocker, store: Store) -> None:
    store.kernel_folder(SESSION_ID, "main1").mkdir(exist_ok=True)
    store.start_marker(SESSION_ID).touch()
    assert run(store, rebooted) == []
    assert started(rebooted) == ["sub1"]


def test_a_note_of_an_earlier_boot_starts_nothing(
    rebooted: FakeDocker, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(refused_starts, "boot_id", lambda: "another")
    assert run(store, rebooted) == []
    assert started(rebooted) == []
    monkeypatch.undo()
    assert not refused_starts.is_noted(store, SESSION_ID)


def test_a_session_that_is_not_committed_or_ends_meanwhile_is_left(
    rebooted: FakeDocker, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.save(held(MADE, expires_at=9e12))
    assert run(store, rebooted) == []
    monkeypatch.setattr(store, "load_all", lambda _excluded="": ([held(MADE)], []))
    monkeypatch.setattr(store, "session", lambda _id: None)
    assert run(store, rebooted) == []
    assert started(rebooted) == []


def test_a_session_that_a_run_is_at_work_on_waits_for_the_next_time(rebooted: FakeDocker, store: Store) -> None:
    with store.session_lock(SESSION_ID):
        assert run(store, rebooted) == []
    assert started(rebooted) == []
    assert run(store, rebooted) == []
    assert started(rebooted) == ["main1", "sub1"]


def test_a_start_that_fails_is_not_tried_again(
    rebooted: FakeDocker, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_asked: Any, **_options: Any) -> None:
        raise MountRefusedError("session_mounts: /data was replaced")

    monkeypatch.setattr(reconcile, "admit", lambda *_asked, started=(), **_options: fail() if started else [])
    assert run(store, rebooted) == ["train-llm: session_mounts: /data was replaced"]
    assert started(rebooted) == ["main1", "sub1"]
    for name in ("main1", "sub1"):
        rebooted.kill(f"id-{name}")
    assert run(store, rebooted) == []
    assert started(rebooted) == []


def test_a_folder_that_was_replaced_while_a_restore_started_the_containers_is_tried_once_more(
    rebooted: FakeDocker, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_asked: Any, **_options: Any) -> None:
        for name in ("main1", "sub1"):
            rebooted.kill(f"id-{name}")
        raise MountRefusedError("session_mounts: /data was replaced")

    with monkeypatch.context() as patched:
        patched.setattr(reconcile, "admit", fail)
        assert run(store, rebooted, start=True) == ["train-llm: session_mounts: /data was replaced"]
    started(rebooted)
    assert run(store, rebooted) == []
    assert started(rebooted) == ["main1", "sub1"]


def test_a_folder_that_does_not_answer_is_waited_for_and_keeps_nothing_else_from_being_done(
    rebooted: FakeDocker, store: Store, kernel: FakeNetwork, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = "bai-0123456789"
    kernel.links.add(left)
    with monkeypatch.context() as patched:
        patched.setattr(mount_sources, "look", lambda places: dict.fromkeys(places, NoFolder.SILENT))
        for _run in range(2):
            (failure,) = run(store, rebooted)
            assert failure.startswith("train-llm: session_mounts: /data did not answer within 3 seconds on agent1: ")
    assert left not in kernel.links
    assert run(store, rebooted) == []
    assert started(rebooted) == ["main1", "sub1"]


def test_they_wait_for_an_engine_that_is_down_and_for_a_run_with_time(
    rebooted: FakeDocker, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def down() -> Any:
        raise DockerUnavailableError("the engine does not answer.")

    assert restore(store, down, start=False)[1] == []
    with monkeypatch.context() as patched:
        patched.setattr(reconcile, "START_SECONDS", 0)
        assert run(store, rebooted) == []
    assert started(rebooted) == []
    assert run(store, rebooted) == []
    assert started(rebooted) == ["main1", "sub1"]


def test_a_session_that_stopped_for_another_reason_is_not_started_by_the_timer(
    engine: FakeDocker, store: Store, mounts: list[Mounted]
) -> None:
    mounts.append(DATA)
    store.save(held(dataclasses.replace(MADE, mounts=())))
    engine.made.append({"Id": "id-main1", "Names": ["/main1"], "Labels": own_labels("main1"), "State": "exited"})
    store.container_ids(SESSION_ID).record("main1", "id-main1")
    assert run(store, engine) == []
    assert started(engine) == []
