"""Folders of a manager's policy, on real file systems: what a user would meet is said before."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.backendai.cluster.plugins.module_utils._host import path_look
from ansible_collections.backendai.cluster.plugins.module_utils._host.mount_table import Mounted
from ansible_collections.backendai.cluster.plugins.module_utils._host.store import Store
from ansible_collections.backendai.cluster.plugins.module_utils._session import mount_sources, policy_folders
from ansible_collections.backendai.cluster.plugins.module_utils._session.mount_sources import MountSettings
from ansible_collections.backendai.cluster.plugins.module_utils._session.policy_folders import (
    PolicyFolder,
    find_folder_problems,
    find_unprotected,
    known_users,
)
from ansible_collections.backendai.cluster.plugins.modules import policy_folders as module
from tests.unit.builders import held, plan
from tests.unit.module_runs import result_of
from tests.unit.silent_mount import MS_NODEV, MS_NOSUID, mount_memory, own_mounts

HOME = PolicyFolder("/mnt/home/{user}")
SETTINGS = MountSettings(["/"], "unix:///srv/docker.sock")


@pytest.fixture
def mnt(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """Return a folder that only root can write, as are all above it, with the homes of alice and bob."""
    monkeypatch.setattr(mount_sources, "look", path_look.look)
    monkeypatch.setattr(path_look, "LOCKS", tmp_path / "looks")
    monkeypatch.setattr(policy_folders, "EXPORTS", tmp_path / "etab")
    with own_mounts():
        folder = mount_memory(Path("/mnt"))
        for uid, name in ((2001, "alice"), (2002, "bob")):
            (folder / "home" / name).mkdir(parents=True)
            os.chown(folder / "home" / name, uid, uid)
        yield folder


def problems(engine: Any, store: Store, *folders: PolicyFolder, users: tuple[str, ...] = ("alice",)) -> list[str]:
    return find_folder_problems(engine, store, SETTINGS, folders, users)


@pytest.mark.usefixtures("mnt")
def test_good_and_missing_folders_are_no_problem(engine: Any, store: Store) -> None:
    assert problems(engine, store, HOME, PolicyFolder("/mnt/absent"), PolicyFolder("/absent/{user}/x")) == []
    assert problems(engine, store, HOME, users=()) == []


def test_folder_of_users_is_checked_before_there_is_a_user(engine: Any, store: Store, mnt: Path) -> None:
    (mnt / "home").chmod(0o1777)
    for users in ((), ("alice",)):
        assert problems(engine, store, HOME, users=users) == [
            (
                "/mnt/home/{user}: /mnt/home is writable for others than root (mode 1777), so that others than root"
                " decide which folder that is: give /mnt/home to root and let nobody else write there, or name a folder"
                " in the policy whose path has no such component"
            )
        ]


@pytest.mark.usefixtures("mnt")
def test_folder_inside_of_the_users_own_names_component_and_remedy(engine: Any, store: Store) -> None:
    inner = PolicyFolder("/mnt/home/{user}/scratch")
    assert problems(engine, store, inner, users=()) == []
    (problem,) = problems(engine, store, inner)
    assert problem.startswith(
        "/mnt/home/alice/scratch may not be mounted: /mnt/home/alice belongs to user 2001, so that others than root"
        " decide which folder that is: give /mnt/home/alice to root"
    )


def test_all_that_a_session_would_be_refused_for_is_found(engine: Any, store: Store, mnt: Path) -> None:
    (mnt / "link").symlink_to("home")
    mount_memory(mnt / "home" / "inner")
    found = problems(
        engine,
        store,
        PolicyFolder("/mnt/link"),
        PolicyFolder("/mnt/home", read_only=True),
        PolicyFolder(str(store.root)),
    )
    assert [problem.split(":")[0] for problem in found] == [
        "/mnt/link may not be mounted",
        "/mnt/home may not be mounted read-only",
        f"{store.root} may not be mounted",
    ]
    # Without an engine, as before the first provisioning, paths are looked at.
    (problem,) = problems(None, store, PolicyFolder("/mnt/link"), PolicyFolder("/proc"))
    assert problem.startswith("/mnt/link may not be mounted: /mnt/link is a symbolic link")


def test_a_folder_that_does_not_answer_is_said(engine: Any, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(policy_folders, "look", lambda places: dict.fromkeys(places, path_look.NoFolder.SILENT))
    (problem,) = problems(engine, store, HOME)
    assert problem.startswith("/mnt/home/{user}: /mnt/home did not answer within 3 seconds: repair or unmount")


def test_names_that_are_more_than_a_name_are_left_out() -> None:
    assert known_users(["alice", "../etc", "a/b", ".", "..", "", "x" * 65, "a\nb", "b.c-d@e", "alice"]) == [
        "alice",
        "b.c-d@e",
    ]


def network(path: str, *options: str) -> Mounted:
    return Mounted(path, frozenset(options), "nfs4", "192.0.2.7:/home", ("rw", "addr=192.0.2.7"))


ROOT = Mounted("/", frozenset({"rw"}), "ext4", "/dev/sda1", ("rw",))
LACKING = "(nfs4 of 192.0.2.7:/home) is mounted without nosuid and nodev: add nosuid,nodev to the options of that mount"


@pytest.mark.parametrize(
    ("mounts", "found"),
    [
        ([ROOT], []),
        ([ROOT, network("/mnt/home", "rw")], [f"/mnt/home {LACKING}"]),
        ([ROOT, network("/mnt", "rw")], [f"/mnt {LACKING}"]),
        ([ROOT, network("/mnt/home/alice", "rw")], [f"/mnt/home/alice {LACKING}"]),
        # Of a user who has no session.
        ([ROOT, network("/mnt/home/carol", "rw")], [f"/mnt/home/carol {LACKING}"]),
        ([ROOT, network("/mnt/home", "rw", "nosuid", "nodev")], []),
        (
            [ROOT, network("/mnt/home", "rw", "nosuid")],
            [f"/mnt/home {LACKING.replace('nosuid and nodev', 'nodev', 1)}"],
        ),
        ([ROOT, network("/other", "rw")], []),
    ],
)
def test_shared_file_systems_are_mounted_nosuid_nodev(
    monkeypatch: pytest.MonkeyPatch, mounts: list[Mounted], found: list[str]
) -> None:
    monkeypatch.setattr(policy_folders, "read_mounts", lambda: mounts)
    assert find_unprotected([HOME], ["alice"]) == found


def test_what_a_host_exports_is_shared(mnt: Path, tmp_path: Path) -> None:
    assert find_unprotected([HOME], []) == []
    (tmp_path / "etab").write_text("/mnt/home\t192.0.2.0/24(rw,sync)\n/srv/a\\040b\t*(ro)\n")
    assert find_unprotected([HOME], []) == [
        "/mnt (tmpfs of tmpfs) is mounted without nosuid and nodev: add nosuid,nodev to the options of that mount"
    ]
    mount_memory(mnt / "home", MS_NOSUID | MS_NODEV)
    assert find_unprotected([HOME], []) == []
    assert find_unprotected([PolicyFolder("/srv/a b")], ()) != []
    assert find_unprotected([PolicyFolder("/srv/a")], ()) == []


@pytest.mark.usefixtures("mnt")
def test_the_module_checks_agents_and_managers(
    engine: Any, store: Store, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "connect", lambda _docker_host: engine)
    store.save(held(plan({"agent1": 1}, user="alice")))
    options = {"state_path": str(store.root), "folders": [{"source": "/mnt/home/{user}/x"}], "users": ["alice", "../x"]}
    asked = result_of("policy_folders", {**options, "kind": "agent"}, capsys)
    assert (asked["changed"], asked["users"], asked["unprotected"]) == (False, ["alice"], [])
    assert len(asked["problems"]) == 1
    assert result_of("policy_folders", {**options, "kind": "manager"}, capsys)["problems"] == []
    assert json.dumps(asked)


@pytest.mark.usefixtures("mnt")
def test_a_host_that_is_not_provisioned_has_no_users(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = {"kind": "agent", "state_path": str(tmp_path / "absent"), "docker_host": f"unix://{tmp_path}/none"}
    folder = {"source": str(tmp_path / "absent")}
    asked = result_of("policy_folders", {**options, "folders": [folder]}, capsys)
    assert (asked["users"], len(asked["problems"])) == ([], 1)
