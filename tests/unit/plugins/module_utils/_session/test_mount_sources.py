"""Folders that sessions mount: which ones an agent accepts, and what happens if one hangs or is replaced."""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import requests

from ansible_collections.backendai.cluster.plugins.module_utils._host import path_look
from ansible_collections.backendai.cluster.plugins.module_utils._host.mount_table import (
    FolderOnMount,
    Mounted,
    read_mounts,
)
from ansible_collections.backendai.cluster.plugins.module_utils._host.path_look import Answer, Folder, NoFolder, Place
from ansible_collections.backendai.cluster.plugins.module_utils._host.store import CorruptStateError, Store
from ansible_collections.backendai.cluster.plugins.module_utils._model.devices import PinnedResources
from ansible_collections.backendai.cluster.plugins.module_utils._model.held_session import PublicKeys
from ansible_collections.backendai.cluster.plugins.module_utils._model.mounts import RESERVED, Source
from ansible_collections.backendai.cluster.plugins.module_utils._model.session import Mount
from ansible_collections.backendai.cluster.plugins.module_utils._session import admission, mount_sources
from ansible_collections.backendai.cluster.plugins.module_utils._session import claim as claiming
from ansible_collections.backendai.cluster.plugins.module_utils._session.apply import ApplyRequest, apply_claimed
from ansible_collections.backendai.cluster.plugins.module_utils._session.claim import (
    ClaimRefusedError,
    ClaimRequest,
    claim,
)
from ansible_collections.backendai.cluster.plugins.module_utils._session.contents import RenderedFiles
from ansible_collections.backendai.cluster.plugins.module_utils._session.end import SessionEnd
from ansible_collections.backendai.cluster.plugins.module_utils._session.facts import AgentSettings
from ansible_collections.backendai.cluster.plugins.module_utils._session.mount_sources import (
    InnerFolderMissingError,
    MountRefusedError,
    MountSettings,
    check_before_start,
    find_sources,
    find_writable,
    judge_mounts,
)
from ansible_collections.backendai.cluster.plugins.module_utils._session.reap import reap
from ansible_collections.backendai.cluster.plugins.module_utils._session.reconcile import restore
from tests.unit.builders import SESSION_ID, agent_facts, held, own_labels, plan, public_keys
from tests.unit.fake_docker import FakeDocker
from tests.unit.silent_mount import MS_NODEV, MS_NOSUID, bind, mount_memory, own_mounts, silent_mount, unmount

MADE = plan({"agent1": 2}, mounts=[{"source": "/mnt/a", "target": "/a"}])
OTHER = dataclasses.replace(plan({"agent1": 1}, name="other"), id="00000000-3c0e-4f5e-9d0a-0f3c1d2e4b6a")
SETTINGS = AgentSettings("default", True, (), {}, 1, 0, "", False)
CONTENTS = RenderedFiles("", "", {"main1": {}, "sub1": {}}, public_keys(MADE), ())
SILENT = "did not answer within 3 seconds on agent1: repair or unmount its file system, or mount another folder"


@pytest.fixture
def real_look(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Look at real folders."""
    monkeypatch.setattr(mount_sources, "look", path_look.look)
    monkeypatch.setattr(mount_sources, "find_writable", find_writable)
    monkeypatch.setattr(path_look, "LOCKS", tmp_path / "looks")


@pytest.fixture
def shares(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("shares")


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> dict[str, Answer]:
    """Return the answers of paths, to be changed; all others are folders."""
    changed: dict[str, Answer] = {}

    def look(places: Iterable[Place]) -> dict[Place, Answer]:
        return {place: changed.get(place.root or place.path, Folder(place.path, 1, 1, 0)) for place in places}

    monkeypatch.setattr(mount_sources, "look", look)
    return changed


@pytest.fixture
def facts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claiming, "collect_facts", lambda *_reading: agent_facts("agent1"))
    monkeypatch.setattr(claiming.machine, "numa_nodes", lambda cpus: dict.fromkeys(cpus, 0))
    monkeypatch.setattr(claiming, "ensure_keys", lambda _folder, _kit: PublicKeys("USER", "HOST"))


@pytest.fixture
def waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every container that runs wait at its gate, as it was asked for but for its mounts."""
    monkeypatch.setattr(admission, "_open_gate", lambda *_asked: os.open(os.devnull, os.O_WRONLY))
    monkeypatch.setattr(admission, "find_problem", lambda *_asked: "")


def claimed(engine: Any, store: Store, of: Any = MADE, **settings: Any) -> None:
    request = ClaimRequest(of, "agent1", "nonce-1", 600)
    claim(engine, store, SETTINGS._replace(**settings), request, check_mode=False)


def apply(engine: Any, store: Store) -> None:
    request = ApplyRequest(MADE, "agent1", "nonce-1", CONTENTS, "backendai-default")
    apply_claimed(engine, store, request, check_mode=False)


def refusal(engine: Any, store: Store, source: Path | str, *roots: Path, target: str = "/a", **flags: bool) -> str:
    """Return why agent1 refuses a mount; empty if it does not."""
    settings = MountSettings([str(root) for root in roots] or ["/"], "unix:///srv/docker.sock")
    try:
        judge_mounts(engine, store, settings, [Mount(str(source), target, **flags)], "agent1")
    except MountRefusedError as error:
        return str(error)
    return ""


@pytest.mark.usefixtures("real_look")
@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("/", "'/' contains /proc"),
        ("/proc", "'/proc' is /proc"),
        ("/sys/fs", "'/sys/fs' is in /sys"),
        ("/dev/shm", "'/dev/shm' is in /dev"),
        ("/run", "'/run' contains /run/docker"),
        ("{state}", "'{state}' is {state}"),
        ("{state}/sessions", "'{state}/sessions' is in {state}"),
        ("{above}", "'{above}' contains {state}"),
        ("{shares}/link", "'{shares}/engine' is {shares}/engine"),
        ("{shares}/engine/volumes", "'{shares}/engine/volumes' is in {shares}/engine"),
        ("{shares}/out", "'/proc' is /proc"),
        ("{shares}/homes", "'{shares}/homes' is {shares}/homes"),
        ("{shares}/homes/sessions", "'{shares}/homes/sessions' is in {shares}/homes"),
    ],
)
def test_folders_that_control_the_agent_are_never_mounted(
    engine: FakeDocker, store: Store, shares: Path, monkeypatch: pytest.MonkeyPatch, source: str, reason: str
) -> None:
    (shares / "engine" / "volumes").mkdir(parents=True)
    (shares / "link").symlink_to("engine")
    (shares / "out").symlink_to("/proc")
    monkeypatch.setattr(engine, "info", lambda: {"DockerRootDir": f"{shares}/link"})
    (shares / "homes" / "sessions").mkdir(parents=True)
    store.homes_link.unlink()
    store.homes_link.symlink_to(shares / "homes")
    names = {"state": store.root, "above": store.root.parent, "shares": shares}
    closed = (
        f"/proc, /sys, /dev, {store.root}, {shares}/homes, {shares}/engine, /srv/docker.sock,"
        " /run/docker, /run/containerd, /var/lib/docker, /var/lib/containerd"
    )
    path, reason = source.format(**names), reason.format(**names)
    assert refusal(engine, store, path) == (
        f"session_mounts: {path} may not be mounted on agent1: its real path {reason};"
        f" allowed are folders in /, except what is, contains or is in {closed}"
    )


@pytest.mark.usefixtures("real_look")
def test_only_folders_in_the_roots_are_mounted_by_their_real_path(engine: Any, store: Store, shares: Path) -> None:
    for name in ("data/team", "database", "real"):
        (shares / name).mkdir(parents=True)
    (shares / "data" / "out").symlink_to(shares / "database")
    (shares / "data" / "colon").symlink_to("a:b")
    (shares / "data" / "a:b").mkdir()
    (shares / "named").symlink_to("real")
    (shares / "real" / "team").mkdir()
    roots = shares / "data", shares / "named"
    for allowed in ("data", "data/team", "named", "named/team", "real/team"):
        assert refusal(engine, store, shares / allowed, *roots) == ""
    known = f"allowed are folders in {shares}/data, {shares}/real, except what is, contains or is in /proc, "
    for refused in ("database", "data/out"):
        assert refusal(engine, store, shares / refused, *roots).startswith(
            f"session_mounts: {shares / refused} may not be mounted on agent1:"
            f" its real path '{shares}/database' is not in agent_mount_roots; {known}"
        )
    assert f"its real path '{shares}' is not in agent_mount_roots; {known}" in refusal(engine, store, shares, *roots)
    assert "must be an absolute path without //, ., .. or :" in refusal(engine, store, shares / "data/colon", *roots)
    settings = MountSettings(())
    _found, unusable = find_sources(engine, store, settings, [Source(str(shares))])
    assert unusable[Source(str(shares))].explanation.endswith("; allowed are none, because agent_mount_roots is empty")


@pytest.fixture
def roots_own() -> Iterator[Path]:
    """Return an empty folder that only root can write, as are all above it."""
    with own_mounts():
        yield mount_memory(Path("/mnt"))


@pytest.mark.usefixtures("real_look")
@pytest.mark.parametrize(
    ("options", "enforced", "refused"),
    [(["name=selinux"], True, True), (["name=selinux"], False, False), (["name=cgroupns"], True, False)],
    ids=["enforced", "only reported", "engine without labels"],
)
def test_a_folder_that_selinux_closes_is_refused_with_the_commands_and_keeps_its_label(
    engine: Any,
    store: Store,
    shares: Path,
    monkeypatch: pytest.MonkeyPatch,
    options: list[str],
    enforced: bool,
    refused: bool,
) -> None:
    label = b"unconfined_u:object_r:default_t:s0\0"
    os.setxattr(shares, "security.selinux", label)
    engine.security_options = options
    monkeypatch.setattr(mount_sources.selinux, "is_enforced", lambda: enforced)
    sentence = (
        f"session_mounts: {shares} is closed to containers by SELinux on agent1: its label is"
        f" unconfined_u:object_r:default_t:s0: semanage fcontext -a -t container_file_t '{shares}(/.*)?' &&"
        f" restorecon -RF {shares} (if semanage says to try another path, add that one)"
    )
    assert refusal(engine, store, shares) == (sentence if refused else "")
    assert os.getxattr(shares, "security.selinux") == label
    os.setxattr(shares, "security.selinux", b"system_u:object_r:container_file_t:s0\0")
    assert refusal(engine, store, shares) == ""


@pytest.mark.usefixtures("real_look")
def test_a_file_system_without_labels_is_not_closed(
    engine: Any, store: Store, shares: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine.security_options = ["name=selinux"]
    monkeypatch.setattr(mount_sources.selinux, "is_enforced", lambda: True)
    assert refusal(engine, store, shares) == ""


@pytest.mark.usefixtures("real_look")
def test_folder_of_the_policy_is_where_root_has_put_it(engine: Any, store: Store, roots_own: Path) -> None:
    home, other = roots_own / "home" / "alice", roots_own / "home" / "bob"
    for folder, uid in ((home, 2001), (other, 2002)):
        folder.mkdir(parents=True)
        os.chown(folder, uid, uid)
    # What an operator mounts by a path of the user's is the operator's business.
    (home / "scratch").symlink_to("../bob")
    assert refusal(engine, store, home / "scratch") == ""
    assert refusal(engine, store, home, strict=True) == ""
    assert refusal(engine, store, home / "scratch", strict=True) == (
        f"session_mounts: {home}/scratch may not be mounted on agent1: {home} belongs to user 2001, so that others than"
        f" root decide which folder that is: give {home} to root and let nobody else write there, or name a folder in"
        " the policy whose path has no such component"
    )
    home.rename(roots_own / "home" / "old")
    home.symlink_to("bob")
    assert refusal(engine, store, home, strict=True).startswith(
        f"session_mounts: {home} may not be mounted on agent1: {home} is a symbolic link, so that others than root"
    )


@pytest.mark.usefixtures("facts", "real_look")
def test_folder_of_the_policy_keeps_its_path_and_is_judged_again_at_each_start(
    engine: Any, store: Store, roots_own: Path
) -> None:
    home = roots_own / "home" / "alice"
    home.mkdir(parents=True)
    claimed(engine, store, dataclasses.replace(MADE, mounts=(Mount(str(home), "/a", strict=True),)))
    assert store.mount_sources(SESSION_ID) == {str(home): FolderOnMount(str(home), "/mnt", "tmpfs", "tmpfs")}
    session = store.session(SESSION_ID)
    assert session is not None
    assert check_before_start(engine, store, session)[str(home)].inode == home.stat().st_ino
    os.chown(home.parent, 2001, 2001)
    with pytest.raises(
        MountRefusedError, match=f"{home} may not be mounted on agent1: {home.parent} belongs to user 2001"
    ):
        check_before_start(engine, store, session)


@pytest.mark.usefixtures("facts", "real_look")
@pytest.mark.parametrize("inner", [".", "alice"], ids=["the mount point", "a folder below"])
@pytest.mark.parametrize("left", [True, False], ids=["folder below the mount", "nothing below the mount"])
def test_no_container_starts_on_what_is_below_a_mount_that_is_not_there(
    engine: Any, store: Store, roots_own: Path, inner: str, left: bool
) -> None:
    below = roots_own / "data" / inner
    if left:
        below.mkdir(parents=True)
    folder = mount_memory(roots_own / "data") / inner
    folder.mkdir(exist_ok=True)
    claimed(engine, store, dataclasses.replace(MADE, mounts=(Mount(str(folder), "/a"),)))
    session = store.session(SESSION_ID)
    assert session
    check_before_start(engine, store, session)
    unmount(roots_own / "data")
    with pytest.raises(MountRefusedError) as refused:
        check_before_start(engine, store, session)
    assert str(refused.value) == (
        f"session_mounts: {folder} on agent1 was on the mount at /mnt/data (tmpfs of tmpfs), and is on the mount at"
        " /mnt (tmpfs of tmpfs) by now: restore the former, or end the session"
    )
    # Other options, and another number of the device.
    mount_memory(roots_own / "data", MS_NOSUID | MS_NODEV)
    folder.mkdir(exist_ok=True)
    assert check_before_start(engine, store, session).keys() == {str(folder)}
    # What is mounted over it has another path.
    if inner != ".":
        mount_memory(folder)
        with pytest.raises(
            MountRefusedError, match=r"and is on the mount at /mnt/data/alice \(tmpfs of tmpfs\) by now"
        ):
            check_before_start(engine, store, session)


@pytest.mark.usefixtures("real_look")
def test_read_only_folder_with_file_systems_below_is_mounted_by_engines_that_make_all_of_it_read_only(
    engine: FakeDocker, store: Store, roots_own: Path
) -> None:
    data = roots_own / "data"
    data.mkdir()
    assert refusal(engine, store, data, read_only=True) == ""
    mount_memory(data / "inner")
    assert refusal(engine, store, data) == ""
    assert refusal(engine, store, data, read_only=True) == (
        f"session_mounts: {data} may not be mounted read-only on agent1: the engine would leave {data}/inner below"
        f" {data} writable: mount these by themselves, unmount them, or upgrade the engine to 25 or later"
    )
    (roots_own / "link").symlink_to("data")
    assert "would leave /mnt/data/inner below /mnt/data writable" in refusal(
        engine, store, roots_own / "link", read_only=True
    )
    engine.api_version = "1.44"
    assert refusal(engine, store, data, read_only=True) == ""


@pytest.mark.usefixtures("real_look", "kernel", "waiting")
def test_container_that_can_write_below_a_read_only_folder_is_killed(
    engine: Any, store: Store, roots_own: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The containers are this process, with mounts as engines make them."""
    data, target = roots_own / "data", roots_own / "target"
    data.mkdir()
    made = dataclasses.replace(MADE, mounts=(Mount(str(data), str(target), read_only=True),))
    store.save(held(made, expires_at=9e12))
    monkeypatch.setattr(mount_sources.containers, "pid_of", lambda _client, _container: os.getpid())

    def start() -> str:
        request = ApplyRequest(made, "agent1", "nonce-1", CONTENTS, "backendai-default")
        try:
            apply_claimed(engine, store, request, check_mode=False)
        except MountRefusedError as error:
            return str(error)
        return ""

    bind(data, target, read_only=True)
    assert start() == ""
    engine.made.clear()
    engine.api_version = "1.44"
    mount_memory(data / "inner")
    bind(data, target, read_only=True)
    assert start() == (
        f"session_mounts: main1 on agent1 could write to {target}/inner, although that folder is read-only;"
        f" sub1 on agent1 could write to {target}/inner, although that folder is read-only,"
        " so the container was stopped"
    )
    assert len([call for call in engine.calls if call.startswith("kill ")]) == 2


def nested(shares: Path, **flags: bool) -> tuple[Mount, ...]:
    """Return mounts in each other, the innermost one first."""
    for name in ("home", "data", "set"):
        (shares / name).mkdir()
    return (
        Mount(str(shares / "set"), "/home/work/data/x/y/z"),
        Mount(str(shares / "data"), "/home/work/data/x"),
        Mount(str(shares / "home"), "/home/work/data", **flags),
    )


def nested_refusal(engine: Any, store: Store, mounts: Sequence[Mount]) -> str:
    try:
        judge_mounts(engine, store, MountSettings(), mounts, "agent1")
    except MountRefusedError as error:
        return str(error)
    return ""


@pytest.mark.usefixtures("real_look")
def test_a_mount_in_another_one_needs_a_folder_that_its_user_has_made_there(
    engine: Any, store: Store, shares: Path
) -> None:
    mounts = nested(shares)
    assert nested_refusal(engine, store, mounts[1:]) == (
        f"session_mounts: /home/work/data/x (from {shares}/data) is in the mount at /home/work/data, and {shares}/home"
        " on agent1 has no folder x that its root reaches without a symbolic link: make the folder in"
        f" {shares}/home first, as the user whose that is, or choose another target"
    )
    (shares / "home" / "x").mkdir()
    assert nested_refusal(engine, store, mounts[1:]) == ""
    # What counts is the mount that it is directly in.
    (shares / "home" / "x" / "y" / "z").mkdir(parents=True)
    assert f"in the mount at /home/work/data/x, and {shares}/data on agent1 has no folder y/z that" in nested_refusal(
        engine, store, mounts
    )
    (shares / "data" / "y" / "z").mkdir(parents=True)
    assert nested_refusal(engine, store, mounts) == ""
    # Nothing is made: neither by the look nor, then, by the engine.
    assert [str(path.relative_to(shares / "data")) for path in (shares / "data").rglob("*")] == ["y", "y/z"]


@pytest.mark.usefixtures("real_look")
def test_a_link_is_no_folder_for_a_mount_in_another_one(engine: Any, store: Store, shares: Path) -> None:
    mounts = nested(shares)
    (shares / "home" / "x").symlink_to(shares / "set")
    assert "has no folder x that its root reaches without a symbolic link" in nested_refusal(engine, store, mounts[1:])


@pytest.mark.usefixtures("real_look")
def test_a_mount_in_a_folder_of_the_policy_is_looked_for_below_what_root_has_put_there(
    engine: Any, store: Store, roots_own: Path
) -> None:
    mounts = nested(roots_own, strict=True)
    os.chown(roots_own / "home", 2001, 2001)
    assert "has no folder x that its root reaches" in nested_refusal(engine, store, mounts[1:])
    (roots_own / "home" / "x").mkdir()
    assert nested_refusal(engine, store, mounts[1:]) == ""


@pytest.mark.usefixtures("real_look")
def test_a_mount_in_one_that_is_read_only_starts_if_the_folder_is_there(
    engine: Any, store: Store, roots_own: Path
) -> None:
    mounts = nested(roots_own, read_only=True)
    engine.api_version = "1.44"
    (roots_own / "home" / "x").mkdir()
    bind(roots_own / "home", roots_own / "home", read_only=True)
    assert nested_refusal(engine, store, mounts[1:]) == ""


def test_a_file_system_in_a_mount_that_does_not_answer_is_named(
    engine: Any, store: Store, shares: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    look = mount_sources.look

    def look_without_answer(listed: Iterable[Place]) -> dict[Place, Answer]:
        return {place: NoFolder.SILENT if place.inner else answer for place, answer in look(listed).items()}

    monkeypatch.setattr(mount_sources, "look", look_without_answer)
    assert nested_refusal(engine, store, nested(shares)) == f"session_mounts: {shares}/data {SILENT}"


@pytest.mark.usefixtures("facts", "real_look")
def test_the_folder_for_a_mount_in_another_one_is_looked_for_before_each_start(
    engine: Any, store: Store, shares: Path
) -> None:
    made = dataclasses.replace(MADE, mounts=nested(shares)[1:])
    # No reason to wait for another agent.
    with pytest.raises(InnerFolderMissingError, match=f"{shares}/home on agent1 has no folder x that"):
        claimed(engine, store, made)
    (shares / "home" / "x").mkdir()
    claimed(engine, store, made)
    session = store.session(SESSION_ID)
    assert session
    assert check_before_start(engine, store, session).keys() == {f"{shares}/data", f"{shares}/home"}
    (shares / "home" / "x").rmdir()
    with pytest.raises(MountRefusedError, match=f"{shares}/home on agent1 has no folder x that"):
        check_before_start(engine, store, session)


def test_a_target_that_is_elsewhere_or_inside_of_another_counts_by_itself() -> None:
    def entry(path: str, options: str) -> Mounted:
        return Mounted(path, frozenset({options}), "ext4", "/dev/sda1", (options,))

    mounts = {"/data": True, "/data/scratch": False}
    table = [entry("/", "rw"), entry("/data", "ro"), entry("/data/scratch", "rw"), entry("/database", "rw")]
    assert find_writable(mounts, table) == []
    assert find_writable(mounts, [*table, entry("/data/more", "rw")]) == ["/data/more"]
    assert find_writable(mounts, [entry("/", "rw"), entry("/elsewhere", "ro")]) == ["/data"]


@pytest.mark.parametrize(
    ("source", "target", "sentence"),
    [
        ("/mnt/a:/etc:rw", "/a", "the source '/mnt/a:/etc:rw' must be an absolute path without //, ., .. or :"),
        ("/mnt/../etc", "/a", "the source '/mnt/../etc' must be an absolute path without //, ., .. or :"),
        ("mnt", "/a", "the source 'mnt' must be an absolute path without //, ., .. or :"),
        ("/mnt/a\0", "/a", "the source '/mnt/a\\x00' must be an absolute path without //, ., .. or :"),
        ("/mnt", "/a:rshared", "the target '/a:rshared' must be an absolute path without //, ., .. or :"),
        ("/mnt", "/opt", "the target '/opt' would hide /opt/backendai"),
        ("/mnt", "/", "the target '/' would hide /home/work"),
        (
            "/mnt",
            "/run/backendai/ssh",
            f"the target '/run/backendai/ssh' must not be in a reserved folder: {', '.join(RESERVED)}",
        ),
    ],
)
def test_plan_is_judged_on_the_agent_as_a_request_is(
    engine: Any, store: Store, source: str, target: str, sentence: str
) -> None:
    assert refusal(engine, store, source, target=target) == f"session_mounts: {sentence}; agent1 refuses it"


@pytest.mark.usefixtures("facts")
def test_claim_records_real_paths_and_refuses_what_does_not_answer_without_the_lock(
    engine: Any, store: Store, answers: dict[str, Answer], monkeypatch: pytest.MonkeyPatch
) -> None:
    answers["/mnt/a"] = NoFolder.SILENT
    look = mount_sources.look
    monkeypatch.setattr(path_look, "PATH_SECONDS", 0)

    def look_without_lock(places: Any) -> Any:
        with store.lock():
            return look(places)

    monkeypatch.setattr(mount_sources, "look", look_without_lock)
    with pytest.raises(ClaimRefusedError) as refused:
        claimed(engine, store)
    assert str(refused.value) == f"session_mounts: /mnt/a {SILENT}"
    assert store.session(SESSION_ID) is None
    answers["/mnt/a"] = Folder("/real/a", 1, 1, 0)
    claimed(engine, store)
    assert store.mount_sources(SESSION_ID)["/mnt/a"].path == "/real/a"
    with pytest.raises(ClaimRefusedError, match=r"its real path '/real/a' is not in agent_mount_roots; allowed are "):
        claimed(engine, store, mount_roots=["/data"])


@pytest.mark.usefixtures("facts", "real_look")
def test_other_sessions_start_and_end_while_a_mount_never_answers(
    engine: Any, store: Store, shares: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(path_look, "PATH_SECONDS", 2)
    lost = dataclasses.replace(MADE, mounts=(Mount(str(shares / "lost"), "/a"),))
    with own_mounts(), silent_mount(shares / "lost"):
        with pytest.raises(ClaimRefusedError, match=rf"^session_mounts: {shares}/lost did not answer within "):
            claimed(engine, store, lost)
        began = time.monotonic()
        claimed(engine, store, OTHER)
        reap(engine, store, {OTHER.id: SessionEnd()}, [], expired=True, check_mode=False)
        assert time.monotonic() - began < 60
        assert store.held_ids() == []


def test_engine_gets_the_real_path_that_was_judged(engine: FakeDocker, store: Store) -> None:
    store.save(held(MADE, expires_at=9e12))
    store.save_mount_sources(SESSION_ID, {"/mnt/a": FolderOnMount.find("/real/a", read_mounts())})
    apply(engine, store)
    for request in (request for request in engine.asked if "HostConfig" in request):
        mounts = request["HostConfig"]["Mounts"]
        assert [(mount["Source"], mount["ReadOnly"]) for mount in mounts if mount["Target"] == "/a"] == [
            ("/real/a", False)
        ]
    # The digest is that of the names: nothing is recreated because a link was set to another folder.
    engine.calls.clear()
    apply(engine, store)
    assert (engine.calls, len(engine.made)) == ([], 2)


@pytest.mark.parametrize(
    ("answer", "sentence"),
    [
        (NoFolder.SILENT, f"session_mounts: /real/a {SILENT}"),
        (NoFolder.MISSING, "session_mounts: /real/a is not a folder on agent1: the source must exist there"),
        (
            Folder("/etc", 1, 1, 0),
            "session_mounts: /real/a on agent1 was the folder that the session mounts, and leads to '/etc' by now; ",
        ),
        (
            Folder("/proc", 1, 1, 0),
            "session_mounts: /real/a may not be mounted on agent1: its real path '/proc' is /proc;",
        ),
    ],
    ids=["silent", "missing", "replaced by a link", "leads to what is closed"],
)
@pytest.mark.parametrize("operation", ["apply", "restart", "restore"])
def test_no_container_starts_with_a_folder_that_is_not_the_one_that_was_judged(
    engine: Any, store: Store, answers: dict[str, Answer], answer: Answer, sentence: str, operation: str
) -> None:
    store.save(held(MADE, expires_at=9e12 if operation == "apply" else None))
    store.save_mount_sources(SESSION_ID, {"/mnt/a": FolderOnMount.find("/real/a", read_mounts())})
    answers["/real/a"] = answer
    if operation == "apply":
        with pytest.raises(MountRefusedError) as refused:
            apply(engine, store)
        failure = str(refused.value)
    else:
        stop_containers(engine)
        if operation == "restart":
            (failure,) = reap(engine, store, {}, [SESSION_ID], expired=True, check_mode=False).failures.values()
        else:
            (failure,) = restore(store, lambda: engine, start=True)[1]
            failure = failure.removeprefix("train-llm: ")
    assert failure.startswith(sentence)
    assert [call for call in engine.calls if call.startswith(("create backendai", "start "))] == []


def stop_containers(engine: FakeDocker) -> None:
    """Let the containers of the session exist, stopped."""
    for name in ("main1", "sub1"):
        known = own_labels(name)
        engine.made.append(
            {
                "Id": f"id-{name}",
                "Names": [f"/backendai-train-llm-{name}"],
                "Labels": known,
                "State": "exited",
                "Pid": 7,
            }
        )


@pytest.mark.parametrize("inside", [Folder("/a", 1, 2, 0), Folder("/a", 2, 1, 0), NoFolder.SILENT, NoFolder.MISSING])
@pytest.mark.parametrize("operation", ["apply", "restart", "restore"])
@pytest.mark.usefixtures("waiting")
def test_container_that_got_another_folder_is_killed_before_anything_of_the_user_runs(
    engine: Any, store: Store, answers: dict[str, Answer], inside: Answer, operation: str
) -> None:
    store.save(held(MADE, expires_at=9e12 if operation == "apply" else None))
    answers["/proc/42/root"] = answers["/proc/7/root"] = inside
    if operation == "apply":
        with pytest.raises(MountRefusedError) as refused:
            apply(engine, store)
        failure = str(refused.value)
    else:
        stop_containers(engine)
        if operation == "restart":
            (failure,) = reap(engine, store, {}, [SESSION_ID], expired=True, check_mode=False).failures.values()
        else:
            failure = restore(store, lambda: engine, start=True)[1][0].removeprefix("train-llm: ")
    assert sorted(
        failure.removeprefix("session_mounts: ").removesuffix(", so the container was stopped").split("; ")
    ) == [
        "/mnt/a was replaced on agent1 while main1 started",
        "/mnt/a was replaced on agent1 while sub1 started",
    ]
    assert len([call for call in engine.calls if call.startswith("kill ")]) == 2
    assert {container["State"] for container in engine.made} == {"exited"}


def test_container_that_ended_by_itself_is_no_failure(
    engine: Any, store: Store, answers: dict[str, Answer], monkeypatch: pytest.MonkeyPatch
) -> None:
    store.save(held(MADE, expires_at=9e12))
    answers["/proc/42/root"] = NoFolder.MISSING
    pids = iter([42, 42, 0, 0])
    monkeypatch.setattr(mount_sources.containers, "pid_of", lambda _client, _container: next(pids))
    apply(engine, store)
    assert not any(call.startswith("kill") for call in engine.calls)


@pytest.mark.usefixtures("facts")
def test_session_without_mounts_costs_no_look(engine: Any, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mount_sources, "look", None)
    claimed(engine, store, dataclasses.replace(MADE, mounts=()))
    assert not (store.folder(SESSION_ID) / "mounts.json").exists()


def test_damaged_record_of_real_paths_is_told(store: Store) -> None:
    store.save(held(MADE))
    path = store.folder(SESSION_ID) / "mounts.json"
    path.write_text('{"version": 3, "sources": 3}')
    with pytest.raises(CorruptStateError) as raised:
        store.mount_sources(SESSION_ID)
    assert str(raised.value) == (f"{path} is damaged (the folders: sources must be a mapping): terminate its session.")


@pytest.mark.usefixtures("facts")
def test_container_that_cannot_be_removed_keeps_no_other_session_from_starting(
    engine: Any, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.save(held(MADE, expires_at=1.0, pinned={"main1": PinnedResources([0, 1]), "sub1": PinnedResources([2])}))
    stop_containers(engine)
    tried: list[str] = []

    def remove(container: str, **_options: bool) -> None:
        # The engine waits for a process that hangs; others need the agent's lock meanwhile.
        with store.lock():
            tried.append(container)
        raise requests.exceptions.ReadTimeout("Read timed out.")

    monkeypatch.setattr(engine, "remove_container", remove)
    monkeypatch.setattr("ansible_collections.backendai.cluster.plugins.module_utils._model.files.LOCK_SECONDS", 30)
    claimed(engine, store, OTHER)
    assert {*tried} == {"id-main1", "id-sub1"}
    assert store.held_ids() == sorted([SESSION_ID, OTHER.id])
    started = store.session(OTHER.id)
    assert started is not None
    assert started.pinned["main1"].cpus == [3], "what could not be removed keeps its cores"
    failures = reap(engine, store, {}, [], expired=True, check_mode=False).failures
    assert failures == {SESSION_ID: "Read timed out."}
