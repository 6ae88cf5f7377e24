"""Pulling an image in the background, for as long as the session is claimed."""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from docker.errors import APIError

from ansible_collections.backendai.cluster.plugins.module_utils._docker.images import ImagePullError, Progress
from ansible_collections.backendai.cluster.plugins.module_utils._host.image_records import ImageRecords
from ansible_collections.backendai.cluster.plugins.module_utils._host.local_session import LocalSession
from ansible_collections.backendai.cluster.plugins.module_utils._host.registry_records import RegistryRecords
from ansible_collections.backendai.cluster.plugins.module_utils._host.store import Store
from ansible_collections.backendai.cluster.plugins.module_utils._model.images import Credential, ImageIdentity
from ansible_collections.backendai.cluster.plugins.module_utils._session import pull as pulling
from ansible_collections.backendai.cluster.plugins.module_utils._session.image_access import ImageAccess
from ansible_collections.backendai.cluster.plugins.module_utils._session.pull import (
    ForRun,
    ForSession,
    Pull,
    PullStatus,
    ensure_pull,
)
from tests.unit.builders import IMAGE, SESSION_ID, held, plan
from tests.unit.fake_docker import FakeDocker
from tests.unit.silent_mount import bind, fill, mount_memory, own_mounts

MADE = plan({"agent1": 1})
HERE = PullStatus(ImageIdentity("sha256:1", "sha256:1"))
LOGIN = {"username": "reader", "password": "hunter2"}
READER = ImageAccess({"docker.io": Credential(**LOGIN)})
WANTED = Pull(IMAGE, IMAGE)
CONTENT = {"Id": "sha256:1", "Config": {"Env": []}}
DOWNLOADING = {"id": "a", "status": "Downloading", "progressDetail": {"current": 10, "total": 30}}
FAILED = "session_image: 'lab/python:1' is not on this host and cannot be pulled ({})"
Acts = list[Callable[[], None]]


class Slow(FakeDocker):
    """An engine that reports the progress of a pull, and continues on request."""

    def __init__(self) -> None:
        super().__init__({})
        self.registry = {IMAGE: CONTENT}
        self.told, self.go = threading.Event(), threading.Event()

    def pull(self, *arguments: Any, **how: Any) -> Iterator[dict[str, Any]]:
        yield DOWNLOADING
        self.told.set()
        assert self.go.wait(60)
        yield from super().pull(*arguments, **how)


@pytest.fixture
def engine() -> FakeDocker:
    """Return an engine that lacks the image, and a registry that has it."""
    lacking = FakeDocker({})
    lacking.registry = {IMAGE: CONTENT}
    return lacking


@pytest.fixture(autouse=True)
def acts(engine: FakeDocker, monkeypatch: pytest.MonkeyPatch) -> Acts:
    """Return the functions of background processes, which do not run by themselves."""
    started: Acts = []
    monkeypatch.setattr(pulling, "connect", lambda _address: engine)
    monkeypatch.setattr(pulling, "daemonize", lambda act, _keep: started.append(act))
    monkeypatch.setattr(pulling, "POLL_SECONDS", 0.01)
    return started


def claim(store: Store, **changes: Any) -> LocalSession:
    """Store a claim of the session."""
    session = held(MADE, **{"expires_at": time.time() + 600, **changes})
    store.save(session)
    return session


def pull_status(engine: Any, store: Store, session: LocalSession | None = None, pull: Pull = WANTED) -> PullStatus:
    session = session or claim(store)
    return ensure_pull(engine, "unix:///nowhere", ForSession(store, session.plan.id, session.nonce), pull)


def file_of(store: Store, kind: str) -> Path:
    (path,) = (store.folder(SESSION_ID) / "pulls").glob(f"*.{kind}")
    return path


# ---- the status


def test_present_image_is_not_pulled(store: Store, acts: Acts) -> None:
    assert pull_status(FakeDocker(), store) == HERE
    assert acts == []


def test_missing_image_is_pulled_in_the_background(engine: FakeDocker, store: Store, acts: Acts) -> None:
    assert pull_status(engine, store) == PullStatus(None, Progress(), started=True)
    (work,) = acts
    work()
    assert engine.calls == [f"pull {IMAGE}"]
    assert pull_status(engine, store) == HERE


def test_digest_is_pulled_with_the_registry_password(engine: FakeDocker, store: Store, acts: Acts) -> None:
    engine.registry = {"lab/python@sha256:a": {**CONTENT, "RepoDigests": ["lab/python@sha256:a"]}}
    pull = Pull(IMAGE, "lab/python@sha256:a", READER)
    pull_status(engine, store, pull=pull)
    acts[0]()
    assert engine.calls == [
        "pull lab/python@sha256:a as {'username': 'reader', 'password': 'hunter2'}",
        "tag lab/python@sha256:a lab/python:1",
    ]
    assert pull_status(engine, store).image == ImageIdentity("sha256:1", "sha256:a", "lab/python@sha256:a")
    assert "hunter2" not in "".join(path.read_text() for path in store.folder(SESSION_ID).rglob("*.*"))


def test_running_pull_is_not_started_again(engine: FakeDocker, store: Store, acts: Acts) -> None:
    pull_status(engine, store)
    handle = os.open(file_of(store, "lock"), os.O_RDWR)
    fcntl.flock(handle, fcntl.LOCK_EX)
    # A later run takes the session over.
    later = claim(store, nonce="nonce-2")
    note = json.loads(file_of(store, "json").read_text())
    progress = {"bytes_done": 10, "bytes_total": 30, "layers_done": 0, "layers_total": 1, "more": False}
    file_of(store, "json").write_text(json.dumps({**note, "progress": progress}))
    assert pull_status(engine, store, later) == PullStatus(None, Progress(10, 30, 0, 1))
    assert len(acts) == 1
    os.close(handle)


def test_two_images_of_a_session_are_two_pulls(engine: FakeDocker, store: Store, acts: Acts) -> None:
    pull_status(engine, store)
    handle = os.open(file_of(store, "lock"), os.O_RDWR)
    fcntl.flock(handle, fcntl.LOCK_EX)
    assert pull_status(engine, store, pull=Pull("other:1", "other:1")).started
    assert len(acts) == 2
    os.close(handle)


def test_registry_error_is_raised_once_and_then_retried(engine: FakeDocker, store: Store, acts: Acts) -> None:
    engine.registry = {IMAGE: {"error": "unauthorized"}}
    pull_status(engine, store)
    acts[0]()
    with pytest.raises(ImagePullError) as refused:
        pull_status(engine, store)
    assert str(refused.value) == FAILED.format("unauthorized")
    assert pull_status(engine, store).started


def test_unexpected_error_is_stored(
    engine: FakeDocker, store: Store, acts: Acts, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_what: Any, **_how: Any) -> Any:
        raise ConnectionError("the engine\nwent away")

    monkeypatch.setattr(engine, "pull", fail)
    pull_status(engine, store)
    acts[0]()
    with pytest.raises(ImagePullError) as refused:
        pull_status(engine, store)
    assert str(refused.value) == FAILED.format("the engine went away")


def test_process_that_ended_without_a_result_was_killed(engine: FakeDocker, store: Store) -> None:
    pull_status(engine, store)
    with pytest.raises(ImagePullError) as refused:
        pull_status(engine, store)
    assert str(refused.value) == FAILED.format("the pulling process was killed")


@pytest.mark.parametrize("failed", [None, "unauthorized"], ids=["killed", "failed"])
def test_failure_of_an_earlier_run_is_ignored(engine: FakeDocker, store: Store, acts: Acts, failed: str | None) -> None:
    engine.registry = {IMAGE: {"error": failed}}
    pull_status(engine, store)
    if failed:
        acts[0]()
    assert pull_status(engine, store, claim(store, nonce="nonce-2")).started


def test_image_removed_after_its_pull_is_pulled_again(engine: FakeDocker, store: Store, acts: Acts) -> None:
    pull_status(engine, store)
    acts[0]()
    engine.images.clear()
    assert pull_status(engine, store).started


def test_state_is_readable_by_root_alone(engine: FakeDocker, store: Store) -> None:
    pull_status(engine, store)
    folder = store.folder(SESSION_ID) / "pulls"
    assert {path.name.partition(".")[2]: path.stat().st_mode & 0o777 for path in (*folder.iterdir(), folder)} == {
        "json": 0o600,
        "lock": 0o600,
        "": 0o700,
    }


# ---- images that no session needs yet


def wanted(store: Store, nonce: str = "run-1", seconds: float = 60) -> ForRun:
    """Let a run ask for the image."""
    run = ForRun(store, nonce)
    run.ask(IMAGE, seconds)
    return run


def look(engine: Any, run: ForRun) -> PullStatus:
    return ensure_pull(engine, "unix:///nowhere", run, WANTED)


def test_image_is_pulled_for_a_run_and_nothing_is_left_but_what_is_known_of_it(
    engine: FakeDocker, store: Store, acts: Acts
) -> None:
    run = wanted(store)
    assert look(engine, run) == PullStatus(None, Progress(), started=True)
    acts[0]()
    assert look(engine, run) == HERE
    assert [*(store.images_folder / "pulls").iterdir()] == []
    assert not [*(store.root / "sessions").iterdir()]


def test_pull_for_a_run_ends_when_it_no_longer_asks(slow: Slow, store: Store, acts: Acts) -> None:
    look(slow, wanted(store))
    work = at_work(acts[0])
    assert slow.told.wait(60)
    wanted(store, seconds=-1)
    work.join(60)
    assert not work.is_alive()
    assert slow.images == {}


def test_failed_pull_for_a_run_is_its_error_and_not_that_of_the_next_run(
    engine: FakeDocker, store: Store, acts: Acts
) -> None:
    engine.registry = {IMAGE: {"error": "unauthorized"}}
    run = wanted(store)
    look(engine, run)
    acts[0]()
    assert look(engine, wanted(store, "run-2")).started
    acts[1]()
    with pytest.raises(ImagePullError) as refused:
        look(engine, ForRun(store, "run-2"))
    assert str(refused.value) == FAILED.format("unauthorized")


def test_pull_for_a_run_whose_wish_is_damaged_ends(store: Store) -> None:
    run = wanted(store)
    (run.folder(IMAGE) / "wanted").write_text("{")
    with run.wanted(IMAGE) as nonce:
        assert nonce is None


# ---- what is known of pulled images


def test_pulled_image_is_known_to_have_come_with_a_session(engine: FakeDocker, store: Store, acts: Acts) -> None:
    pull_status(engine, store)
    acts[0]()
    known = ImageRecords(store.images_folder).find("sha256:1")
    assert known is not None
    assert (known.pulled_as, time.time() - known.needed_at < 60) == (("docker.io/lab/python:1",), True)


def test_image_that_was_there_under_another_name_did_not_come_with_a_session(
    engine: FakeDocker, store: Store, acts: Acts
) -> None:
    engine.images["other:1"] = CONTENT
    pull_status(engine, store)
    acts[0]()
    assert IMAGE in engine.images
    assert ImageRecords(store.images_folder).find("sha256:1") is None


# ---- private images


def records_of(store: Store) -> RegistryRecords:
    return RegistryRecords(store.registries_folder)


def test_image_pulled_with_a_password_is_private_and_allowed(engine: FakeDocker, store: Store, acts: Acts) -> None:
    pull_status(engine, store, pull=Pull(IMAGE, IMAGE, READER))
    acts[0]()
    records = records_of(store)
    assert records.is_private("docker.io/lab/python")
    assert records.is_allowed("docker.io/lab/python", LOGIN)
    assert not records.is_allowed("docker.io/lab/python", {})


def test_image_pulled_without_a_password_is_not_private(engine: FakeDocker, store: Store, acts: Acts) -> None:
    pull_status(engine, store)
    acts[0]()
    assert IMAGE in engine.images
    assert not store.registries_folder.exists()


def test_failed_pull_with_a_password_makes_nothing_private(engine: FakeDocker, store: Store, acts: Acts) -> None:
    engine.registry = {IMAGE: {"error": "unauthorized"}}
    pull_status(engine, store, pull=Pull(IMAGE, IMAGE, READER))
    acts[0]()
    assert not records_of(store).any_private()


@pytest.mark.parametrize("killed", [True, False], ids=["killed", "without its tag"])
def test_image_of_an_incomplete_pull_is_private(
    engine: FakeDocker, store: Store, acts: Acts, monkeypatch: pytest.MonkeyPatch, killed: bool
) -> None:
    def fail(*_what: Any) -> None:
        raise KeyboardInterrupt if killed else APIError("no space left on device")

    engine.registry = {"lab/python@sha256:a": CONTENT}
    monkeypatch.setattr(engine, "tag", fail)
    monkeypatch.setattr(threading, "excepthook", lambda _arguments: None)
    pull_status(engine, store, pull=Pull(IMAGE, "lab/python@sha256:a", READER))
    with contextlib.suppress(IndexError):
        acts[0]()
    records = records_of(store)
    assert records.is_private("docker.io/lab/python")
    assert not records.is_allowed("docker.io/lab/python", LOGIN)


def test_nothing_is_pulled_if_it_cannot_be_recorded(engine: FakeDocker, store: Store, acts: Acts) -> None:
    store.registries_folder.write_text("")
    pull_status(engine, store, pull=Pull(IMAGE, IMAGE, READER))
    acts[0]()
    with pytest.raises(ImagePullError, match="cannot be pulled"):
        pull_status(engine, store)
    assert engine.calls == []


@pytest.fixture
def docker_login(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Return root's file of logins on this agent."""
    path = tmp_path / "config.json"
    path.write_text(json.dumps({"auths": {"https://index.docker.io/v1/": {"auth": "cm9vdDpzZWNyZXQ="}}}))
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    return path


@pytest.mark.usefixtures("docker_login")
@pytest.mark.parametrize(
    ("access", "login"),
    [
        (ImageAccess(), ""),
        (
            ImageAccess(allow_registry_login=True),
            " as {'username': 'root', 'password': 'secret', 'email': None, 'serveraddress': 'https://index.docker.io/v1/'}",
        ),
        (
            dataclasses.replace(READER, allow_registry_login=True),
            " as {'username': 'reader', 'password': 'hunter2'}",
        ),
    ],
    ids=["not allowed", "allowed", "with an own password"],
)
def test_docker_login_of_the_agent_is_used_only_if_allowed(
    engine: FakeDocker, store: Store, acts: Acts, access: ImageAccess, login: str
) -> None:
    pull_status(engine, store, pull=Pull(IMAGE, IMAGE, access))
    acts[0]()
    assert engine.calls == [f"pull {IMAGE}{login}"]
    assert records_of(store).is_private("docker.io/lab/python") is bool(login)


def test_unreadable_docker_login_is_one_sentence(
    engine: FakeDocker, store: Store, acts: Acts, docker_login: Path
) -> None:
    docker_login.write_text('{"auths": {"x": 1}}')
    pull_status(engine, store, pull=Pull(IMAGE, IMAGE, ImageAccess(allow_registry_login=True)))
    acts[0]()
    with pytest.raises(ImagePullError) as refused:
        pull_status(engine, store)
    unread = "the docker login of this host cannot be read (~/.docker/config.json of root)"
    problem = f"the registry docker.io cannot be asked, because {unread}"
    assert str(refused.value) == FAILED.format(problem)
    assert engine.calls == []


# ---- the background process


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> Iterator[Slow]:
    """Return an engine with a slow pull."""
    engine = Slow()
    monkeypatch.setattr(pulling, "connect", lambda _address: engine)
    yield engine
    engine.go.set()


def at_work(act: Callable[[], None]) -> threading.Thread:
    thread = threading.Thread(target=act, daemon=True)
    thread.start()
    return thread


def noted(store: Store) -> dict[str, Any]:
    return dict(json.loads(file_of(store, "json").read_text()))


def test_progress_and_result_are_stored(slow: Slow, store: Store, acts: Acts) -> None:
    pull_status(slow, store)
    work = at_work(acts[0])
    assert slow.told.wait(60)
    while noted(store)["progress"]["bytes_done"] != 10:
        assert work.is_alive()
    assert noted(store)["failed"] is None
    slow.go.set()
    work.join(60)
    assert noted(store)["failed"] == ""
    assert pull_status(slow, store) == HERE


@pytest.mark.parametrize("ended", [True, False], ids=["removed", "expired"])
def test_pull_ends_when_the_session_is_no_longer_claimed(slow: Slow, store: Store, acts: Acts, ended: bool) -> None:
    pull_status(slow, store)
    work = at_work(acts[0])
    assert slow.told.wait(60)
    if ended:
        store.remove(SESSION_ID)
    else:
        claim(store, expires_at=time.time() - 1)
    work.join(60)
    assert not work.is_alive()
    assert slow.images == {}
    assert store.folder(SESSION_ID).exists() is not ended


def test_pull_continues_for_a_later_run(slow: Slow, store: Store, acts: Acts) -> None:
    pull_status(slow, store)
    work = at_work(acts[0])
    assert slow.told.wait(60)
    claim(store, nonce="nonce-2")
    while noted(store)["nonce"] != "nonce-2":
        assert work.is_alive()
    slow.go.set()
    work.join(60)
    assert pull_status(slow, store, claim(store, nonce="nonce-2")) == HERE


@pytest.mark.parametrize("failed", ["", "unauthorized"], ids=["pulled", "failed"])
def test_pull_goes_on_and_has_a_result_while_the_disk_of_the_state_is_full(
    slow: Slow, store: Store, acts: Acts, failed: str
) -> None:
    slow.registry = {IMAGE: {"error": failed}} if failed else {IMAGE: CONTENT}
    with own_mounts():
        folder = mount_memory(store.root / "sessions", size="256k")
        session = claim(store)
        pull_status(slow, store, session)
        fill(folder)
        work = at_work(acts[0])
        assert slow.told.wait(60)
        slow.go.set()
        work.join(60)
        assert noted(store)["failed"] == (FAILED.format(failed) if failed else "")
        with pytest.raises(ImagePullError, match=failed) if failed else contextlib.nullcontext():
            assert pull_status(slow, store, session) == HERE


def test_pull_goes_on_while_its_state_cannot_be_written(engine: FakeDocker, store: Store, acts: Acts) -> None:
    pull_status(engine, store)
    with own_mounts():
        bind(store.root / "sessions", store.root / "sessions", read_only=True)
        acts[0]()
    assert pull_status(engine, store) == HERE


def test_pull_that_cannot_begin_on_a_full_disk_says_why(engine: FakeDocker, store: Store, acts: Acts) -> None:
    with own_mounts():
        folder = mount_memory(store.root / "sessions", size="256k")
        session = claim(store)
        fill(folder)
        with pytest.raises(OSError, match="No space left on device"):
            pull_status(engine, store, session)
    assert acts == []


def test_real_process_holds_the_lock_until_it_ends(
    engine: FakeDocker, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    monkeypatch.setattr(pulling, "connect", lambda _address: engine)
    engine.registry = {IMAGE: {"error": "unauthorized"}}
    assert pull_status(engine, store).started
    handle = os.open(file_of(store, "lock"), os.O_RDWR)
    fcntl.flock(handle, fcntl.LOCK_EX)
    os.close(handle)
    with pytest.raises(ImagePullError) as refused:
        pull_status(engine, store)
    assert str(refused.value) == FAILED.format("unauthorized")
