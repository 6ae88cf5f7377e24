"""Tests for the session state of an agent."""

from __future__ import annotations

import dataclasses
import json
import multiprocessing
import os
import re
import signal
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.backendai.cluster.plugins.module_utils._host import store as storing
from ansible_collections.backendai.cluster.plugins.module_utils._host.deadline import deadline_in
from ansible_collections.backendai.cluster.plugins.module_utils._host.store import (
    CorruptStateError,
    LockTimeoutError,
    NotProvisionedError,
    Store,
)
from ansible_collections.backendai.cluster.plugins.module_utils._model.devices import PinnedResources
from ansible_collections.backendai.cluster.plugins.module_utils._model.plain_data import to_plain
from tests.unit.builders import SESSION_ID, encrypted_underlay, held, plan
from tests.unit.uptime import Uptime, uptime_of_numbers

PLAN = plan({"agent1": 2, "agent2": 2}, mounts=[{"source": "/mnt", "target": "/data"}])
OTHER_ID = "00000000-3c0e-4f5e-9d0a-0f3c1d2e4b6a"


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """Return the store of a provisioned agent."""
    (tmp_path / "sessions").mkdir()
    (tmp_path / "lock").touch()
    return Store(str(tmp_path))


@pytest.fixture
def uptime(tmp_path: Path) -> Iterator[Uptime]:
    """Return the uptime of the host."""
    with uptime_of_numbers(tmp_path) as numbers:
        yield numbers


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize("expires_at", [None, 12.5], ids=["committed", "claimed"])
def test_saved_session_is_loaded_unchanged(store: Store, expires_at: float | None) -> None:
    saved = held(PLAN, expires_at=expires_at)
    store.save(saved)
    assert store.session(SESSION_ID) == saved
    assert store.sessions() == [saved]


def test_pinned_cores_and_devices_are_loaded_unchanged(store: Store) -> None:
    pinned = {
        "main1": PinnedResources([0, 2], {"lab.device": ["/dev/fuse", "/dev/net/tun"]}),
        "sub1": PinnedResources(),
    }
    store.save(held(PLAN, pinned=pinned))
    stored = store.session(SESSION_ID)
    assert stored is not None
    assert stored.pinned == pinned


def test_saving_again_replaces_the_session(store: Store) -> None:
    store.save(held(PLAN, nonce="one"))
    store.save(held(PLAN, nonce="two"))
    assert [session.nonce for session in store.sessions()] == ["two"]


def test_sessions_are_sorted_by_id(store: Store) -> None:
    other = dataclasses.replace(PLAN, id=OTHER_ID)
    for each in (PLAN, other):
        store.save(held(each))
    assert [session.plan.id for session in store.sessions()] == [OTHER_ID, SESSION_ID]


def test_stored_state_is_readable_by_root_only(store: Store) -> None:
    store.save(held(PLAN))
    folder = store.folder(SESSION_ID)
    assert (mode_of(folder), mode_of(folder / "session.json")) == (0o700, 0o600)


def test_unknown_session_is_none(store: Store) -> None:
    assert store.session(SESSION_ID) is None
    assert not store.remove(SESSION_ID)


def test_folder_without_a_session_file_is_ignored(store: Store) -> None:
    store.folder(SESSION_ID).mkdir()
    assert store.sessions() == []


@pytest.mark.parametrize("name", ["notes.txt", ".hidden", SESSION_ID])
def test_stray_file_among_the_sessions_is_ignored(store: Store, tmp_path: Path, name: str) -> None:
    (tmp_path / "sessions" / name).touch()
    assert store.sessions() == []


@pytest.mark.parametrize("content", ["", "{", "[]", "{}"])
def test_unreadable_session_error_contains_its_file(store: Store, tmp_path: Path, content: str) -> None:
    path = tmp_path / "sessions" / SESSION_ID / "session.json"
    path.parent.mkdir()
    path.write_text(content)
    with pytest.raises(CorruptStateError) as raised:
        store.sessions()
    assert str(raised.value).startswith(f"{path} is damaged (")
    assert str(raised.value).endswith("): terminate its session.")


def test_unprovisioned_host_has_no_sessions(tmp_path: Path) -> None:
    assert Store(str(tmp_path / "absent")).sessions() == []


@pytest.mark.parametrize("session_id", ["", ".", "..", "sessions", f"{SESSION_ID}/main1"])
def test_invalid_session_id_has_no_folder(store: Store, session_id: str) -> None:
    for act in (store.session, store.remove, store.folder):
        with pytest.raises(ValueError, match=f"^session_id: '{session_id}' is not the id of a session$"):
            act(session_id)


def test_removal_deletes_all_state_of_a_session(store: Store) -> None:
    store.save(held(PLAN))
    secret = store.kernel_folder(SESSION_ID, "main1") / "ssh" / "id_ed25519"
    secret.parent.mkdir(parents=True)
    secret.touch()
    assert store.remove(SESSION_ID)
    assert not store.folder(SESSION_ID).exists()


def test_commit_removes_the_expiry(store: Store) -> None:
    claimed = held(PLAN, expires_at=1.0)
    store.commit(claimed)
    stored = store.session(SESSION_ID)
    assert stored == dataclasses.replace(claimed, expires_at=None)
    assert stored.committed


def test_claim_expires_after_its_deadline(uptime: Uptime) -> None:
    assert (held(PLAN).committed, held(PLAN).expired) == (True, False)
    claimed = held(PLAN, expires_at=deadline_in(600))
    uptime.up += 599.5
    assert (claimed.committed, claimed.expired) == (False, False)
    uptime.up += 0.5
    assert (claimed.committed, claimed.expired) == (False, True)


def test_claim_expires_with_a_reboot(uptime: Uptime) -> None:
    claimed = held(PLAN, expires_at=deadline_in(600))
    uptime.reboot(up=1.0)
    assert claimed.expired


@pytest.mark.parametrize("now", [0.0, 9e12])
def test_claim_does_not_depend_on_the_clock(
    store: Store, uptime: Uptime, monkeypatch: pytest.MonkeyPatch, now: float
) -> None:
    store.save(held(PLAN, expires_at=deadline_in(600)))
    monkeypatch.setattr(time, "time", lambda: now)
    (session,) = store.sessions()
    assert not session.expired
    uptime.up += 600
    assert session.expired


def test_a_killed_removal_leaves_a_description_and_no_key(store: Store) -> None:
    """Kill a process at any moment of a removal, and repeat that until it has ended in the middle often enough."""
    interrupted = 0
    for attempt in range(400):
        store.save(held(PLAN))
        for hostname in [f"sub{number}" for number in range(60)]:
            secret = store.kernel_folder(SESSION_ID, hostname) / "ssh" / "id_ed25519"
            secret.parent.mkdir(parents=True)
            secret.touch()
        remover = multiprocessing.get_context("fork").Process(target=store.remove, args=(SESSION_ID,))
        remover.start()
        time.sleep(attempt % 40 * 0.001)
        os.kill(remover.pid or 0, signal.SIGKILL)
        remover.join()
        left = [*store.folder(SESSION_ID).rglob("id_ed25519")]
        interrupted += 0 < len(left) < 60
        assert store.sessions() or not left
        store.remove(SESSION_ID)
        if interrupted >= 5:
            break
    assert interrupted


def test_folders_without_a_description_are_found(store: Store) -> None:
    store.save(held(PLAN))
    store.folder(OTHER_ID).mkdir()
    assert store.nameless_ids() == [OTHER_ID]


def test_local_session_has_the_containers_and_slots_of_its_agent() -> None:
    session = held(PLAN, "agent2")
    assert [kernel.hostname for kernel in session.kernels] == ["sub2", "sub3"]
    assert session.slots == {"cpu": 2, "mem": 2 << 30}


def test_slots_of_different_containers_are_summed() -> None:
    first, second, *others = PLAN.kernels
    larger = dataclasses.replace(second, resources={"cpu": 3, "mem": 1 << 30, "lab.device": 1})
    mixed = dataclasses.replace(PLAN, kernels=(first, larger, *others))
    assert held(mixed).slots == {"cpu": 4, "mem": 2 << 30, "lab.device": 1}


def test_agent_lock_requires_a_provisioned_host(tmp_path: Path) -> None:
    with pytest.raises(NotProvisionedError) as raised, Store(str(tmp_path)).lock():
        pass
    assert str(raised.value) == (
        f"{tmp_path} is not ready (No such file or directory): run backendai.cluster.provision_agents on this host."
    )


Lock = Callable[[Store], AbstractContextManager[None]]

LOCKS: dict[str, Lock] = {
    "the agent's lock": Store.lock,
    "a session's lock": lambda store: store.session_lock(SESSION_ID),
    "the lock of the rules": Store.isolation_lock,
    "both locks": lambda store: store.both_locks(SESSION_ID),
}


def _hold_lock(path: str, lock: Lock, acquired: Event, release: Event) -> None:
    with lock(Store(path)):
        acquired.set()
        release.wait(60)


def _acquire_lock(path: str, lock: Lock, acquired: Event) -> None:
    with lock(Store(path)):
        acquired.set()


@pytest.mark.parametrize("lock", LOCKS.values(), ids=LOCKS)
def test_lock_is_exclusive_until_its_holder_exits(store: Store, tmp_path: Path, lock: Lock) -> None:
    store.folder(SESSION_ID).mkdir()
    processes = multiprocessing.get_context("fork")
    acquired, release, second = processes.Event(), processes.Event(), processes.Event()
    holder = processes.Process(target=_hold_lock, args=(str(tmp_path), lock, acquired, release))
    waiter = processes.Process(target=_acquire_lock, args=(str(tmp_path), lock, second))
    holder.start()
    assert acquired.wait(60)
    waiter.start()
    assert not second.wait(0.2)
    holder.kill()
    assert second.wait(60)
    for process in (holder, waiter):
        process.join(60)


@pytest.mark.parametrize("lock", LOCKS.values(), ids=LOCKS)
def test_lock_that_is_not_released_is_an_error_with_its_holder(
    store: Store, tmp_path: Path, lock: Lock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(storing, "LOCK_SECONDS", 0.05)
    store.folder(SESSION_ID).mkdir()
    processes = multiprocessing.get_context("fork")
    acquired, release = processes.Event(), processes.Event()
    holder = processes.Process(target=_hold_lock, args=(str(tmp_path), lock, acquired, release))
    holder.start()
    assert acquired.wait(60)
    name = Path(f"/proc/{holder.pid}/comm").read_text().strip()
    with pytest.raises(LockTimeoutError) as raised, lock(store):
        pass
    release.set()
    holder.join(60)
    pattern = rf"process {holder.pid} \({name}\) has held the lock (\S+) for more than [0-9.]+ seconds; end it first\."
    match = re.fullmatch(pattern, str(raised.value))
    assert match is not None
    assert match[1].startswith(str(tmp_path))


def test_agent_lock_is_free_while_a_session_is_waited_for(store: Store) -> None:
    store.folder(SESSION_ID).mkdir()
    processes = multiprocessing.get_context("fork")
    acquired, release, second = processes.Event(), processes.Event(), processes.Event()
    session_lock, both = LOCKS["a session's lock"], LOCKS["both locks"]
    holder = processes.Process(target=_hold_lock, args=(str(store.root), session_lock, acquired, release))
    waiter = processes.Process(target=_acquire_lock, args=(str(store.root), both, second))
    holder.start()
    assert acquired.wait(60)
    waiter.start()
    for _attempt in range(20):
        with store.lock():
            assert not second.wait(0.01)
    release.set()
    assert second.wait(60)
    for process in (holder, waiter):
        process.join(60)


def test_isolation_lock_requires_a_provisioned_host(tmp_path: Path) -> None:
    with pytest.raises(NotProvisionedError) as raised, Store(str(tmp_path)).isolation_lock():
        pass
    assert str(raised.value) == (
        f"{tmp_path} is not ready (No such file or directory): run backendai.cluster.provision_agents on this host."
    )


def test_session_lock_of_a_missing_session_does_not_block(store: Store) -> None:
    with store.session_lock(SESSION_ID):
        assert not store.folder(SESSION_ID).exists()


def test_kit_in_use_is_the_target_of_the_current_link(store: Store, tmp_path: Path) -> None:
    (tmp_path / "kit" / "0123456789ab").mkdir(parents=True)
    (tmp_path / "kit" / "current").symlink_to("0123456789ab")
    assert store.kit() == str(tmp_path / "kit" / "0123456789ab")


def test_agent_without_a_kit_is_not_provisioned(store: Store, tmp_path: Path) -> None:
    with pytest.raises(NotProvisionedError) as raised:
        store.kit()
    assert str(raised.value) == (
        f"{tmp_path}/kit/current is missing: run backendai.cluster.provision_agents on this host."
    )


def test_session_is_busy_while_its_lock_is_held(store: Store) -> None:
    store.save(held(PLAN))
    assert not store.is_busy(SESSION_ID)
    with store.session_lock(SESSION_ID):
        assert store.is_busy(SESSION_ID)
    assert not store.is_busy(SESSION_ID)


def test_missing_session_is_not_busy(store: Store) -> None:
    assert not store.is_busy(SESSION_ID)


def test_program_is_identified_by_its_digest(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program, current = tmp_path / "5e5e-cpython-311" / "source.pyz", tmp_path / "current"
    monkeypatch.setattr(storing, "PROGRAM", current / "source.pyz")
    assert store.program() is None
    program.parent.mkdir()
    current.symlink_to(program.parent.name)
    assert store.program() is None
    program.write_bytes(b"x")
    assert store.program() == "5e5e"


def test_damaged_checksums_are_a_difference(store: Store) -> None:
    store.save(held(PLAN))
    seals = store.folder(SESSION_ID) / "seals.json"
    seals.write_text("{")
    assert store.changed_files(SESSION_ID) == [seals]


@pytest.mark.parametrize(
    ("change", "plan_change", "problem"),
    [
        ({}, {"id": OTHER_ID}, "it is that of another session or agent"),
        ({"agent": "agent9"}, {}, "it is that of another session or agent"),
        ({}, {"name": "../x"}, "its name, or a hostname, has other characters than a-z, 0-9 and -"),
        ({}, {"agent_addresses": ["accept"]}, "an address or a network is not valid"),
        ({}, {"agent_addresses": [""]}, "an address or a network is not valid"),
        ({}, {"created_at": 1e300}, "its grace, or another time of it, is out of range"),
        ({}, {"max_lifetime": -1}, "its grace, or another time of it, is out of range"),
        ({}, {"idle_timeout": 1 << 40}, "its grace, or another time of it, is out of range"),
        ({}, {"gateways": [""]}, "an address or a network is not valid"),
        ({}, {"underlays": {}}, "an agent has no underlay"),
        (
            {},
            {"underlays": {"agent1": {**to_plain(encrypted_underlay(3)), "address": encrypted_underlay(2).address}}},
            "its address must be that of its public key",
        ),
        ({}, {"kernels": []}, "it has no containers, or two of one hostname"),
    ],
)
def test_a_session_file_that_contradicts_itself_is_damaged(
    store: Store, change: dict[str, Any], plan_change: dict[str, Any], problem: str
) -> None:
    store.save(held(PLAN))
    path = store.folder(SESSION_ID) / "session.json"
    data = json.loads(path.read_text())
    path.write_text(json.dumps({**data, **change, "plan": {**data["plan"], **plan_change}}))
    with pytest.raises(CorruptStateError) as raised:
        store.sessions()
    assert problem in str(raised.value)


@pytest.fixture
def with_homes(store: Store, tmp_path: Path) -> Store:
    """Return the store of an agent that has homes, and a session there."""
    (tmp_path / "engine" / "removed").mkdir(parents=True)
    store.homes_link.symlink_to(tmp_path / "engine")
    store.save(held(PLAN))
    store.homes.make(SESSION_ID, "main1", 12345, 23456)
    return store


def test_homes_of_a_session_are_retired_with_its_state(with_homes: Store) -> None:
    assert with_homes.remove(SESSION_ID)
    assert (with_homes.homes.session_ids(), with_homes.homes.has_retired()) == ([], True)


@pytest.mark.parametrize("fault", ["full", "unmounted", "unprovisioned"])
def test_homes_that_cannot_be_retired_keep_no_session_from_ending(
    with_homes: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    def refuse(*_arguments: object) -> None:
        raise OSError(28, "No space left on device")

    if fault == "full":
        monkeypatch.setattr(Path, "rename", refuse)
    elif fault == "unmounted":
        (tmp_path / "engine").rename(tmp_path / "elsewhere")
    else:
        with_homes.homes_link.unlink()
    assert with_homes.remove(SESSION_ID)
    assert with_homes.held_ids() == []
