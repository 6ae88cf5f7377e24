"""The folder of homes: where it is, what is refused, and that it goes with the agent."""

from __future__ import annotations

import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from ansible_collections.backendai.cluster.plugins.module_utils._host.home_folder import (
    HomeFolderError,
    choose_folder,
    prepare_folder,
    remove_folder,
    shares_file_system,
)
from ansible_collections.backendai.cluster.plugins.module_utils._host.store import NotProvisionedError, Store
from tests.unit.builders import SESSION_ID


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """Return the store of an agent whose state folder was made."""
    (tmp_path / "state" / "sessions").mkdir(parents=True)
    return Store(str(tmp_path / "state"))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "engine" / "backendai-homes"


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """Return the folder of a file system of its own."""
    (tmp_path / "disk").mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "none", str(tmp_path / "disk")], check=True)
    yield tmp_path / "disk"
    subprocess.run(["umount", str(tmp_path / "disk")], check=True)


def prepare(store: Store, folder: Path, *, check_mode: bool = False) -> list[str]:
    return [change.subject for change in prepare_folder(store, folder, check_mode=check_mode)]


def test_default_is_beside_the_engines_data_on_the_same_file_system(tmp_path: Path, disk: Path) -> None:
    (tmp_path / "lib" / "docker").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "lib" / "docker")
    assert choose_folder("", str(tmp_path / "lib" / "docker")) == tmp_path / "lib" / "backendai-homes"
    assert choose_folder("", str(tmp_path / "link")) == tmp_path / "lib" / "backendai-homes"
    assert choose_folder("", str(disk)) == disk / "backendai-homes"
    assert choose_folder("/srv/homes", str(disk)) == Path("/srv/homes")


def test_folder_is_roots_and_the_store_knows_it(store: Store, folder: Path) -> None:
    planned = prepare(store, folder, check_mode=True)
    assert (folder.exists(), len(planned)) == (False, 4)
    assert prepare(store, folder) == planned
    assert {stat.S_IMODE(path.stat().st_mode) for path in (folder, *folder.iterdir())} == {0o700}
    assert sorted(path.name for path in folder.iterdir()) == ["removed", "sessions"]
    assert store.homes.root == folder
    assert prepare(store, folder) == []
    folder.chmod(0o755)
    assert prepare(store, folder) == [f"folder {folder}"]
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


@pytest.mark.parametrize("path", ["homes", "/", "/srv/../srv", "//srv", "/my homes", "/%i", ""])
def test_other_than_an_absolute_path_is_refused(store: Store, path: str) -> None:
    with pytest.raises(HomeFolderError, match="must be an absolute path"):
        prepare(store, Path(path))


def test_neither_it_nor_the_state_is_in_the_other(store: Store, tmp_path: Path) -> None:
    for path in (store.root, store.root / "homes", tmp_path):
        with pytest.raises(HomeFolderError, match=r"agent_home_path: .* must not be in each other"):
            prepare(store, path)
    prepare(store, tmp_path / "state-of-homes")


def test_a_link_on_the_way_is_refused(store: Store, tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    (tmp_path / "dangling").symlink_to("nowhere")
    (tmp_path / "file").touch()
    for path in ("link", "link/homes", "dangling", "dangling/homes", "file", "file/homes"):
        with pytest.raises(HomeFolderError, match="must be a folder, and no symbolic link may lead there"):
            prepare(store, tmp_path / path)
    assert [*(tmp_path / "real").iterdir()] == []


def test_a_folder_with_other_contents_stays_as_it_is(store: Store, tmp_path: Path) -> None:
    (tmp_path / "srv" / "www").mkdir(parents=True)
    before = (tmp_path / "srv").stat()
    with pytest.raises(HomeFolderError, match=r"has other contents \(www\): use a folder of its own"):
        prepare(store, tmp_path / "srv")
    after = (tmp_path / "srv").stat()
    assert (after.st_mode, after.st_uid, after.st_ctime_ns) == (before.st_mode, before.st_uid, before.st_ctime_ns)


def test_a_file_system_without_programs_is_refused_in_one_sentence(store: Store, disk: Path) -> None:
    subprocess.run(["mount", "-o", "remount,noexec", str(disk)], check=True)
    with pytest.raises(HomeFolderError) as error:
        prepare(store, disk / "homes")
    assert str(error.value) == (
        f"agent_home_path: the file system of {disk}/homes is mounted noexec, so sessions could not run programs in"
        " their homes: mount it with exec, or use another folder"
    )
    subprocess.run(["mount", "-o", "remount,exec", str(disk)], check=True)
    prepare(store, disk / "homes")


def test_it_is_known_whether_a_full_home_leaves_no_room_for_the_state(store: Store, folder: Path, disk: Path) -> None:
    assert shares_file_system(store, folder)
    assert not shares_file_system(store, disk / "homes")


def test_another_folder_is_used_once_no_session_is_left(store: Store, folder: Path, tmp_path: Path) -> None:
    prepare(store, folder)
    store.folder(SESSION_ID).mkdir()
    with pytest.raises(HomeFolderError, match=r"end its sessions first \(backendai.cluster.drain_agents\)"):
        prepare(store, tmp_path / "other")
    store.folder(SESSION_ID).rmdir()
    prepare(store, tmp_path / "other")
    assert (store.homes.root, folder.exists()) == (tmp_path / "other", False)


def test_it_goes_with_all_that_is_left_in_it(store: Store, folder: Path) -> None:
    prepare(store, folder)
    store.homes.make(SESSION_ID, "main1", 12345, 23456)
    store.homes.retire(SESSION_ID)
    (change,) = remove_folder(store, check_mode=True)
    assert (change.subject, folder.exists()) == (f"folder {folder}", True)
    assert remove_folder(store, check_mode=False) == [change]
    assert (folder.exists(), store.homes_link.is_symlink()) == (False, False)
    assert remove_folder(store, check_mode=False) == []


def test_what_others_have_put_there_stays(store: Store, folder: Path) -> None:
    prepare(store, folder)
    (folder / "lost+found").mkdir()
    remove_folder(store, check_mode=False)
    assert [path.name for path in folder.iterdir()] == ["lost+found"]


def test_a_host_that_has_none_is_to_be_provisioned(store: Store, folder: Path, tmp_path: Path) -> None:
    with pytest.raises(NotProvisionedError) as error:
        store.homes.session_ids()
    assert str(error.value) == f"{store.root}/homes is missing: run backendai.cluster.provision_agents on this host."
    prepare(store, folder)
    (folder.parent).rename(tmp_path / "unmounted")
    with pytest.raises(NotProvisionedError, match=f"{folder} is not there: mount its file system, or run"):
        store.homes.session_ids()
