"""Containers begin once what the engine made of them is what it was asked for."""

from __future__ import annotations

import contextlib
import os
import stat
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.backendai.cluster.plugins.module_utils._host.mount_table import Mounted
from ansible_collections.backendai.cluster.plugins.module_utils._host.ssh_keys import PRIVATE_KEYS
from ansible_collections.backendai.cluster.plugins.module_utils._host.store import Store
from ansible_collections.backendai.cluster.plugins.module_utils._session import admission
from ansible_collections.backendai.cluster.plugins.module_utils._session.admission import (
    NotAsAskedError,
    NotBegunError,
    admit,
    find_identity_problem,
    find_problem,
)
from ansible_collections.backendai.cluster.plugins.module_utils._session.before_start import (
    KeyMissingError,
    prepare_start,
    require_keys,
)
from ansible_collections.backendai.cluster.plugins.module_utils._session.session_folder import (
    GATE,
    NODES,
    DeviceMissingError,
    device_names,
    make_folder,
    make_nodes,
)
from tests.unit.builders import SESSION_ID, held, own_labels, plan
from tests.unit.fake_docker import FakeDocker

MADE = plan({"agent1": 2}, no_new_privileges=True)
STATUS = """\
Name:	entrypoint
Uid:	1000	1000	1000	1000
Gid:	1000	1000	1000	1000
Groups:	1000 2000
NoNewPrivs:	1
CapInh:	0000000000000000
CapPrm:	0000000000000000
CapEff:	0000000000000000
CapBnd:	0000000000802000
CapAmb:	0000000000000000
"""


def problem(*changes: tuple[str, str], no_new_privileges: bool = True) -> str:
    status = STATUS
    for before, after in changes:
        assert before in status
        status = status.replace(before, after)
    return find_identity_problem(status, 1000, 1000, {2000}, no_new_privileges=no_new_privileges)


def test_user_work_without_capabilities_is_as_asked() -> None:
    assert problem() == ""
    assert problem(("Groups:\t1000 2000", "Groups:\t")) == ""
    assert problem(("CapAmb:\t0000000000000000\n", "")) == "", "before Linux 4.3"


@pytest.mark.parametrize(
    ("before", "after", "sentence"),
    [
        ("Uid:\t1000\t1000", "Uid:\t0\t0", "runs as 0:1000 instead of 1000:1000: upgrade the engine of this agent"),
        ("Uid:\t1000\t1000\t1000", "Uid:\t1000\t1000\t0", "runs as 1000:1000 instead of 1000:1000"),
        ("Gid:\t1000\t1000", "Gid:\t0\t0", "runs as 1000:0 instead of 1000:1000"),
        ("Groups:\t1000 2000", "Groups:\t0 1000 4", "has the group 0, 4, which it was not given: remove names that"),
        ("CapEff:\t0000000000000000", "CapEff:\t0000000000000400", "has capabilities (CapEff): upgrade the engine"),
        ("CapInh:\t0000000000000000", "CapInh:\t00000000a80425fb", "has capabilities (CapInh): upgrade the engine"),
        ("CapBnd:\t0000000000802000", "CapBnd:\t0000000000802001", "could get capabilities, although session_no_new_"),
        ("NoNewPrivs:\t1", "NoNewPrivs:\t0", "could get capabilities, although session_no_new_privileges is true"),
    ],
)
def test_whatever_more_a_process_is_or_may_do_is_named(before: str, after: str, sentence: str) -> None:
    assert problem((before, after)).startswith(sentence)


def test_without_no_new_privileges_the_bounding_set_is_the_engines() -> None:
    engines = (("CapBnd:\t0000000000802000", "CapBnd:\t00000000a80425fb"), ("NoNewPrivs:\t1", "NoNewPrivs:\t0"))
    assert problem(*engines, no_new_privileges=False) == ""


class Waiter:
    """Processes that wait at the gates of containers."""

    def __init__(self, store: Store) -> None:
        self.read: dict[str, str] = {}
        self._store = store
        self._threads: list[threading.Thread] = []

    def wait(self, hostname: str) -> None:
        path = self._store.kernel_folder(SESSION_ID, hostname) / GATE

        def read() -> None:
            # A test may be over before the thread begins.
            with contextlib.suppress(FileNotFoundError):
                self.read[hostname] = path.read_text()

        self._threads.append(threading.Thread(target=read, daemon=True))
        self._threads[-1].start()

    def end(self) -> None:
        for thread in self._threads:
            thread.join(10)


@pytest.fixture
def waiter(store: Store, engine: FakeDocker) -> Waiter:
    store.save(held(MADE))
    for name in ("main1", "sub1"):
        make_folder(store.kernel_folder(SESSION_ID, name), os.getgid())
        known = own_labels(name)
        engine.made.append(
            {"Id": f"id-{name}", "Names": [f"/backendai-train-llm-{name}"], "Labels": known, "State": "running"}
        )
        engine.made[-1]["Pid"] = os.getpid()
    return Waiter(store)


@pytest.fixture
def problems(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Return the problems of containers by id, to be changed."""
    found: dict[str, str] = {}
    monkeypatch.setattr(admission, "find_problem", lambda _store, _session, inspected: found.get(inspected["Id"], ""))
    monkeypatch.setattr(admission, "runs", lambda _pid: True)
    return found


@pytest.mark.usefixtures("problems")
def test_only_containers_that_wait_begin(engine: Any, store: Store, waiter: Waiter) -> None:
    assert admit(engine, store, held(MADE)) == []
    waiter.wait("main1")
    assert admit(engine, store, held(MADE), started=["main1"]) == ["main1"]
    waiter.end()
    assert waiter.read == {"main1": "begin\n"}
    assert admit(engine, store, held(MADE)) == [], "each start once"


@pytest.mark.parametrize(
    ("expires_at", "begun"),
    [(time.time() + 600, {"main1": "", "sub1": ""}), (None, {"main1": "begin\n", "sub1": ""})],
    ids=["a session that starts", "one that was there"],
)
def test_a_container_that_is_not_as_asked_is_stopped_and_a_session_starts_whole_or_not_at_all(
    engine: Any,
    store: Store,
    waiter: Waiter,
    problems: dict[str, str],
    expires_at: float | None,
    begun: dict[str, str],
) -> None:
    problems["id-sub1"] = "runs as 0:0 instead of 1000:1000"
    for name in ("main1", "sub1"):
        waiter.wait(name)
    with pytest.raises(NotAsAskedError) as refused:
        admit(engine, store, held(MADE, expires_at=expires_at), started=["main1", "sub1"])
    assert str(refused.value) == ("sub1 on agent1 runs as 0:0 instead of 1000:1000, so the container was stopped")
    assert engine.calls == ["kill id-sub1"]
    waiter.end()
    assert waiter.read == begun


@pytest.mark.usefixtures("problems")
def test_a_process_of_the_user_at_the_gate_is_no_start(engine: Any, store: Store, waiter: Waiter) -> None:
    waiter.wait("main1")
    assert admit(engine, store, held(MADE), started=["main1"]) == ["main1"]
    waiter.end()
    waiter.read.clear()
    waiter.wait("main1")
    assert admit(engine, store, held(MADE)) == []
    assert (store.kernel_folder(SESSION_ID, "main1") / "admitted").stat().st_mode & 0o777 == 0o600


@pytest.mark.usefixtures("problems")
def test_a_gate_is_made_anew_for_each_start(engine: Any, store: Store, waiter: Waiter) -> None:
    gate = store.kernel_folder(SESSION_ID, "main1") / GATE
    with open(os.open(gate, os.O_RDONLY | os.O_NONBLOCK)) as held_open:
        waiter.wait("main1")
        assert admit(engine, store, held(MADE), started=["main1"]) == ["main1"]
        assert os.fstat(held_open.fileno()).st_ino != gate.stat().st_ino
    with open(os.open(gate, os.O_RDONLY | os.O_NONBLOCK)) as held_open:
        prepare_start(store, held(MADE), "main1", {}, (), {})
        assert os.fstat(held_open.fileno()).st_ino != gate.stat().st_ino


def test_a_container_that_does_not_reach_its_gate_in_time_is_told(
    engine: Any, store: Store, waiter: Waiter, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert waiter.read == {}
    monkeypatch.setattr(admission, "runs", lambda _pid: True)
    monkeypatch.setattr(admission, "GATE_SECONDS", 0.05)
    with pytest.raises(NotBegunError) as late:
        admit(engine, store, held(MADE), started=["sub1"])
    assert str(late.value) == (
        "sub1 on agent1 has not begun within 0.05 seconds: look at the load and the disks of this agent"
    )


@pytest.mark.usefixtures("problems")
def test_a_command_that_has_started_does_not_start_again(engine: Any, store: Store, waiter: Waiter) -> None:
    store.start_marker(SESSION_ID, "main1").touch()
    waiter.wait("main1")
    with pytest.raises(
        NotAsAskedError, match=r"^main1 on agent1 was started again, but its command runs once, so the "
    ):
        admit(engine, store, held(MADE), started=["main1"])
    waiter.end()
    assert waiter.read == {"main1": ""}
    assert engine.calls == ["kill id-main1"]


@pytest.mark.usefixtures("waiter", "problems")
def test_a_container_that_has_ended_is_not_waited_for(
    engine: Any, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admission, "runs", lambda _pid: False)
    assert admit(engine, store, held(MADE), started=["main1"]) == []


@pytest.fixture
def made(store: Store, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """Return a function that says what is wrong with this process as a container with these mounts."""
    table: list[Mounted] = []
    monkeypatch.setattr(admission, "read_mounts", lambda _path: table)
    monkeypatch.setattr(admission, "find_identity_problem", lambda *_asked, **_also: "")

    def find(mounts: dict[str, str], *others: str) -> str:
        table[:] = [Mounted(path, frozenset(), "ext4", "", ()) for path in (*mounts, *others)]
        asked = [{"Target": target, "Source": source} for target, source in mounts.items()]
        return find_problem(store, held(MADE), {"State": {"Pid": os.getpid()}, "HostConfig": {"Mounts": asked}})

    return find


def test_another_file_than_the_sessions_own_is_noticed(store: Store, made: Callable[..., str], tmp_path: Path) -> None:
    own, other = store.root / "own", tmp_path / "other"
    own.write_text("")
    other.write_text("")
    # To this process, its own files are at their paths.
    assert made({str(own): str(own)}) == ""
    assert made({str(other): str(own)}).startswith(
        f"has something else at {other} than the session's own: use an image"
    )
    link = tmp_path / "link"
    link.symlink_to(own)
    assert made({str(link): str(own)}).startswith(f"has something else at {link}")
    assert made({"/no/such": str(own)}).startswith("has something else at /no/such")


def test_folders_of_users_are_not_looked_at(made: Callable[..., str]) -> None:
    assert made({"/data": "/net/lost"}) == ""


def test_a_mount_of_the_image_in_a_folder_of_the_session_is_noticed(made: Callable[..., str]) -> None:
    assert made({}, "/data", "/opt", "/run") == ""
    assert made({}, "/opt/backendai/bin") == (
        "has a mount of its image at /opt/backendai/bin: use an image without that VOLUME"
    )


def test_a_process_that_has_ended_has_no_problem(store: Store) -> None:
    assert find_problem(store, held(MADE), {"State": {"Pid": 1 << 30}, "HostConfig": {}}) == ""


def test_a_private_key_that_is_gone_is_named(tmp_path: Path) -> None:
    make_folder(tmp_path, 4242)
    (tmp_path / "ssh" / PRIVATE_KEYS[0]).touch()
    with pytest.raises(KeyMissingError) as missing:
        require_keys(held(MADE), "main1", tmp_path)
    assert str(missing.value) == (
        "the SSH key ssh_host_ed25519_key of main1 is missing on agent1: end this session, and create it again"
    )
    (tmp_path / "ssh" / PRIVATE_KEYS[1]).touch()
    require_keys(held(MADE), "main1", tmp_path)


def test_what_is_written_in_a_containers_folder_is_readable_by_the_group_of_its_user(tmp_path: Path) -> None:
    folder = tmp_path / "main1"
    make_folder(folder, 4242)
    make_folder(folder, 4242)
    (folder / "ssh" / "config").write_text("")
    for path in (folder, folder / "ssh", folder / GATE):
        assert (path.stat().st_uid, path.stat().st_gid) == (0, 4242)
        assert not path.stat().st_mode & 0o027
    assert (folder / "ssh" / "config").stat().st_gid == 4242
    assert stat.S_ISFIFO((folder / GATE).stat().st_mode)


def test_a_containers_device_nodes_are_those_of_its_user_and_follow_the_agents(tmp_path: Path) -> None:
    folder = tmp_path / "main1"
    make_folder(folder, 4242)
    nodes = device_names(folder, ["/dev/null"])
    assert nodes["/dev/null"] == str(folder / NODES / "dev-null")
    os.mknod(nodes["/dev/null"], stat.S_IFCHR | 0o666, os.makedev(1, 5))
    make_nodes(nodes, 4343)
    made = Path(nodes["/dev/null"]).stat()
    assert (made.st_rdev, made.st_uid, made.st_mode) == (os.makedev(1, 3), 4343, stat.S_IFCHR | 0o600)
    with pytest.raises(DeviceMissingError, match=r"^the device /dev/no/such is not there any more: load its driver$"):
        make_nodes(device_names(folder, ["/dev/no/such"]), 4343)
