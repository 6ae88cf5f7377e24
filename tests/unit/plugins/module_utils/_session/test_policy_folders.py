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
from ansible_collections.backendai.cluster.plugins.module_utils._program import policy as program
from ansible_collections.backendai.cluster.plugins.module_utils._program.main import reply_to
from ansible_collections.backendai.cluster.plugins.module_utils._session import mount_sources, policy_folders
from ansible_collections.backendai.cluster.plugins.module_utils._session.mount_sources import MountSettings
from ansible_collections.backendai.cluster.plugins.module_utils._session.policy_folders import (
    PolicyFolder,
    find_folder_problems,
    find_unprotected,
    known_users,
)
from tests.unit.builders import held, plan
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


def reply(phase: str, **options: Any) -> dict[str, Any]:
    request = {"phase": phase, "options": options, "check_mode": True, "diff": False, "seconds": 60}
    answered: dict[str, Any] = json.loads(json.dumps(reply_to(request)))
    return answered


@pytest.mark.usefixtures("mnt")
def test_the_program_looks_at_folders_on_agents_and_managers(
    engine: Any, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(program, "connect", lambda _docker_host: engine)
    store.save(held(plan({"agent1": 1}, user="alice")))
    folders = [{"source": "/mnt/home/{user}/x", "read_only": False}]
    given = {"folders": folders, "users": ["alice", "../x"]}
    places = {"state_path": str(store.root), "docker_host": "unix:///srv/docker.sock", "mount_roots": ["/"]}
    asked = reply("policy_folders", kind="agent", **given, **places)["result"]
    assert (asked["users"], len(asked["problems"]), asked["unprotected"]) == (["alice"], 1, [])
    assert reply("policy_folders", kind="manager", **given)["result"]["problems"] == []


@pytest.mark.usefixtures("mnt")
def test_a_host_that_is_not_provisioned_has_no_users(tmp_path: Path) -> None:
    places = {"state_path": str(tmp_path / "absent"), "docker_host": f"unix://{tmp_path}/none", "mount_roots": ["/"]}
    folders = [{"source": str(tmp_path / "absent"), "read_only": False}]
    asked = reply("policy_folders", kind="agent", folders=folders, users=[], **places)["result"]
    assert (asked["users"], len(asked["problems"])) == ([], 1)


@pytest.mark.parametrize(
    ("script", "answer"),
    [
        ('echo \'[{"source": "/srv", "read_only": true}]\'', {"folders": [{"source": "/srv", "read_only": True}]}),
        ("echo 'policy.yml: images is required.' >&2; exit 2", "policy.yml: images is required."),
        ("exit 3", "its reading ended with 3."),
        ("echo '[{'", "Expecting"),
    ],
)
def test_a_manager_reads_its_policy_with_its_own_program_or_says_why_it_cannot(
    script: str, answer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(program, "READ", ("/bin/sh", "-c", script))
    replied = reply("policy")
    if isinstance(answer, str):
        assert replied["failed"].startswith(answer)
    else:
        assert replied["result"] == answer


def test_a_host_that_is_no_manager_yet_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program, "READ", ("/nowhere/python",))
    assert "No such file or directory: '/nowhere/python'" in reply("policy")["failed"]
