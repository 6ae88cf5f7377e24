"""The folders of sessions on the engine's file system, as root and with the users' files."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from ansible_collections.backendai.cluster.plugins.module_utils._host.homes import Homes, MountParentError
from tests.unit.builders import SESSION_ID

USER, GROUP = 12345, 23456


@pytest.fixture
def homes(tmp_path: Path) -> Homes:
    """Return the homes of an agent that was provisioned."""
    root = tmp_path / "homes"
    root.mkdir(mode=0o700)
    (root / "removed").mkdir(mode=0o700)
    return Homes(str(root))


@pytest.fixture
def home(homes: Homes) -> Path:
    """Return the home of a container."""
    make(homes)
    return homes.home(SESSION_ID, "main1")


def make(homes: Homes) -> None:
    """Make all folders of a container."""
    homes.make(SESSION_ID, "main1", USER, GROUP)
    homes.make_new(SESSION_ID, "main1", USER, GROUP)
    homes.renew(SESSION_ID, "main1")


def look(path: Path) -> tuple[int, int, int]:
    status = path.lstat()
    return status.st_uid, status.st_gid, stat.S_IMODE(status.st_mode)


def test_the_three_folders_are_the_users_and_all_above_is_roots(homes: Homes) -> None:
    make(homes)
    folder = homes.folder(SESSION_ID, "main1")
    assert {path.name: look(path) for path in folder.iterdir()} == {
        "home": (USER, GROUP, 0o700),
        "own": (USER, GROUP, 0o700),
        "log": (USER, GROUP, 0o755),
    }
    assert {look(path) for path in (folder, folder.parent, folder.parent.parent)} == {(0, 0, 0o700)}


def test_a_repair_keeps_what_is_there(homes: Homes, home: Path) -> None:
    home.chmod(0o750)
    (home / "file").write_text("kept")
    homes.make(SESSION_ID, "main1", USER, GROUP)
    assert ((home / "file").read_text(), look(home)) == ("kept", (USER, GROUP, 0o750))
    assert not homes.has_retired()


def test_a_folder_that_was_not_finished_is_completed(homes: Homes, home: Path) -> None:
    log = home.parent / "log"
    log.chmod(0o700)
    os.chown(log, 0, 0)
    homes.make(SESSION_ID, "main1", USER, GROUP)
    assert look(log) == (USER, GROUP, 0o755)


def test_a_home_that_is_discarded_goes_alone(homes: Homes, home: Path) -> None:
    (home / "file").touch()
    (home.parent / "own" / "file").touch()
    assert homes.discard(SESSION_ID, "main1")
    assert (homes.exists(SESSION_ID, "main1"), homes.discard(SESSION_ID, "main1")) == (False, False)
    make(homes)
    assert ([*home.iterdir()], look(home)) == ([], (USER, GROUP, 0o700))
    assert (home.parent / "own" / "file").exists()
    assert [path.name for path in homes.removed.glob("*/file")] == ["file"]


def test_a_container_that_keeps_the_home_of_its_image_has_none_here(homes: Homes) -> None:
    homes.make(SESSION_ID, "main1", USER, GROUP)
    assert not homes.exists(SESSION_ID, "main1")
    assert {path.name for path in homes.folder(SESSION_ID, "main1").iterdir()} == {"own", "log"}


def test_a_new_home_replaces_the_present_one_only_once_that_is_said(homes: Homes, home: Path) -> None:
    (home / "file").touch()
    for _again in range(2):
        new = homes.make_new(SESSION_ID, "main1", USER, GROUP)
        assert ([*new.iterdir()], look(new), (home / "file").exists()) == ([], (USER, GROUP, 0o700), True)
        (new / "new").touch()
    homes.renew(SESSION_ID, "main1")
    assert ([path.name for path in home.iterdir()], new.exists()) == (["new"], False)
    assert sorted(path.name for path in homes.removed.glob("*/*")) == ["file", "new"]


@pytest.mark.parametrize(
    "names", [("..", "main1"), (SESSION_ID, ".."), (SESSION_ID, "a/b"), (SESSION_ID, ""), ("", "a")]
)
def test_no_other_id_or_name_leads_to_a_folder(homes: Homes, names: tuple[str, str]) -> None:
    with pytest.raises(ValueError, match="is not the"):
        homes.folder(*names)


def test_an_end_renames_and_another_one_finds_nothing(homes: Homes, home: Path) -> None:
    inode = home.parent.parent.stat().st_ino
    assert homes.session_ids() == [SESSION_ID]
    assert homes.retire(SESSION_ID)
    (retired,) = homes.removed.iterdir()
    assert (retired.stat().st_ino, retired.name.startswith(SESSION_ID)) == (inode, True)
    assert not homes.retire(SESSION_ID)
    assert (homes.session_ids(), homes.has_retired()) == ([], True)


def test_a_session_of_the_same_id_can_end_again(homes: Homes) -> None:
    for _again in range(3):
        homes.make(SESSION_ID, "main1", USER, GROUP)
        assert homes.retire(SESSION_ID)
    assert len([*homes.removed.iterdir()]) == 3


def test_no_session_has_folders_before_the_first_one(homes: Homes) -> None:
    assert (homes.session_ids(), homes.has_retired(), homes.retire(SESSION_ID)) == ([], False, False)


def make_parents(homes: Homes, *targets: str) -> None:
    homes.make_mount_parents(SESSION_ID, "main1", targets, USER, GROUP)


def test_folders_that_mounts_need_are_the_users(homes: Homes, home: Path) -> None:
    make_parents(homes, "/home/work/a/b", "/home/work/c", "/data", "/home/work", "/home/workshop")
    assert {str(path.relative_to(home)): look(path) for path in home.rglob("*")} == dict.fromkeys(
        ("a", "a/b", "c"), (USER, GROUP, 0o755)
    )
    make_parents(homes, "/home/work/a/b", "/home/work/c")


def test_what_is_in_a_mounted_folder_is_not_made_in_the_home(homes: Homes, home: Path) -> None:
    make_parents(homes, "/home/work/a", "/home/work/a/b/c")
    assert [path.name for path in home.rglob("*")] == ["a"]


def test_folders_of_the_user_stay_as_they_are(homes: Homes, home: Path) -> None:
    (home / "a").mkdir(0o700)
    os.chown(home / "a", 77, 88)
    make_parents(homes, "/home/work/a/b")
    assert (look(home / "a"), look(home / "a" / "b")) == ((77, 88, 0o700), (USER, GROUP, 0o755))


@pytest.mark.parametrize("depth", ["a", "a/b"])
@pytest.mark.parametrize(
    ("make", "kind"),
    [
        (lambda path: path.symlink_to("/"), "a symbolic link"),
        (lambda path: path.symlink_to("nowhere"), "a symbolic link"),
        (lambda path: path.touch(), "no folder"),
        (os.mkfifo, "no folder"),
    ],
    ids=["link", "dangling", "file", "fifo"],
)
def test_anything_but_a_folder_is_refused_by_name(
    homes: Homes, home: Path, depth: str, make: Callable[[Path], None], kind: str
) -> None:
    (home / depth).parent.mkdir(exist_ok=True)
    make(home / depth)
    with pytest.raises(MountParentError) as error:
        make_parents(homes, "/home/work/a/b")
    assert str(error.value) == (
        f"session_mounts: /home/work/{depth} in main1 is {kind}, and has to be a folder, because /home/work/a/b is"
        " mounted: repair the session with a fresh home (session_fresh_home)"
    )


def test_a_link_of_the_user_makes_nothing_elsewhere(homes: Homes, home: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (home / "a").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(MountParentError):
        make_parents(homes, "/home/work/a/b/c")
    assert [*(tmp_path / "elsewhere").iterdir()] == []
