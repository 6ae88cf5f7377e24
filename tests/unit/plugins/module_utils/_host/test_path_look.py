"""Looking at folders, on file systems that answer and on real ones that never do."""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import multiprocessing
import os
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ansible_collections.backendai.cluster.plugins.module_utils._host import path_look
from ansible_collections.backendai.cluster.plugins.module_utils._host.path_look import (
    Answer,
    Folder,
    NoFolder,
    Place,
    Unsafe,
    look,
)
from tests.unit.silent_mount import bind, mount_memory, own_mounts, silent_mount

MISSING, SILENT = NoFolder.MISSING, NoFolder.SILENT


@pytest.fixture(autouse=True)
def memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of the locks."""
    monkeypatch.setattr(path_look, "LOCKS", tmp_path / "looks")
    return tmp_path / "looks"


@pytest.fixture
def silent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Return a folder on a file system that never answers."""
    monkeypatch.setattr(path_look, "PATH_SECONDS", 2)
    with own_mounts(), silent_mount(tmp_path / "silent"):
        yield tmp_path / "silent"
    # The abandoned processes end with the file system.
    for _attempt in range(1200):
        if not processes_looking_below(tmp_path):
            break
        time.sleep(0.05)


def folder_at(path: Path) -> Folder:
    found = path.stat()
    return Folder(str(path.resolve()), found.st_dev, found.st_ino, found.st_gid)


def places(*paths: Path) -> list[Place]:
    return [Place(str(path)) for path in paths]


def processes_looking_below(folder: Path) -> dict[int, str]:
    """Return the state of each process that holds a lock in a folder, by pid."""
    found = {}
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            links = [os.readlink(link) for link in (process / "fd").iterdir()]
            if int(process.name) != os.getpid() and any(link.startswith(str(folder)) for link in links):
                found[int(process.name)] = (process / "stat").read_text().rpartition(")")[2].split()[0]
    return found


def test_folders_are_found_by_their_real_path(tmp_path: Path, memory: Path) -> None:
    (tmp_path / "data" / "ünü\n").mkdir(parents=True)
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to("data")
    (tmp_path / "loop").symlink_to("loop")
    paths = [tmp_path / name for name in ("data", "link", "link/ünü\n", "file", "absent", "loop", "file/below")]
    expected = [*(folder_at(path) for path in paths[:3]), *[MISSING] * 4]
    assert look(places(*paths)) == dict(zip(places(*paths), expected, strict=True))
    assert look(places(Path("/")))[Place("/")] == folder_at(Path("/"))
    assert list(memory.iterdir()) == []


def test_no_process_is_started_without_a_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(path_look.os, "fork", None)
    assert look([]) == {}


def test_one_process_looks_at_all_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[int] = []
    fork = os.fork

    def count() -> int:
        started.append(fork())
        return started[-1]

    monkeypatch.setattr(path_look.os, "fork", count)
    listed = places(*(tmp_path / str(number) for number in range(path_look.BATCH)))
    assert set(look(listed).values()) == {MISSING}
    assert len(started) == 1


def test_more_paths_than_a_process_takes_are_all_looked_at(tmp_path: Path) -> None:
    listed = places(*(tmp_path / str(number) for number in range(2 * path_look.BATCH + 1)))
    assert look(listed) == dict.fromkeys(listed, MISSING)


def test_path_below_the_root_of_another_process_is_found(tmp_path: Path) -> None:
    inner = tmp_path / "root" / "srv" / "data"
    inner.mkdir(parents=True)
    (tmp_path / "root" / "data").symlink_to("/srv/data")
    within = Place("/data", str(tmp_path / "root"))
    absent = Place(str(inner), str(tmp_path / "root"))
    assert look([within, absent, Place("/")]) == {
        within: folder_at(inner),
        absent: MISSING,
        Place("/"): folder_at(Path("/")),
    }


def test_process_that_is_left_behind_keeps_nothing_else_open(silent: Path, tmp_path: Path, memory: Path) -> None:
    with (tmp_path / "lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert look(places(silent)) == dict.fromkeys(places(silent), SILENT)
    [process] = list(processes_looking_below(memory))
    opened = {os.readlink(link) for link in Path(f"/proc/{process}/fd").iterdir()}
    assert {path for path in opened if not path.startswith(("pipe:", str(memory)))} == {"/", os.devnull, str(silent)}
    with (tmp_path / "lock").open("w") as again:
        fcntl.flock(again, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_silent_path_is_left_to_one_process_that_nobody_waits_for(
    silent: Path, tmp_path: Path, memory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = [tmp_path, tmp_path / "absent"]
    listed = places(tmp_path, silent / "data", tmp_path / "absent")
    began = time.monotonic()
    assert look(listed) == dict(zip(listed, [folder_at(other[0]), SILENT, MISSING], strict=True))
    assert 2 <= time.monotonic() - began < 60
    [before] = list(processes_looking_below(memory).items())
    assert before[1] == "D", "the file system kept a process although that was killed"
    # The next ones, of this run and of another one, do not wait and start no second process.
    monkeypatch.setattr(path_look, "PATH_SECONDS", 600)
    began = time.monotonic()
    assert look(listed)[listed[1]] is SILENT
    with multiprocessing.get_context("fork").Pool(1) as pool:
        assert pool.apply(look, (listed,))[listed[1]] is SILENT
    assert time.monotonic() - began < 60
    assert dict([before]) == processes_looking_below(memory)
    assert [path.read_text() for path in memory.iterdir()] == [str(silent / "data")]


def test_every_silent_path_is_found_while_others_are_answered(silent: Path, tmp_path: Path, memory: Path) -> None:
    bad = places(*(silent / str(number) for number in range(5)))
    good = places(*(tmp_path / "absent" / str(number) for number in range(50)))
    assert look([*bad, *good]) == {**dict.fromkeys(bad, SILENT), **dict.fromkeys(good, MISSING)}
    assert len(processes_looking_below(memory)) == len(bad)


def test_path_that_answers_again_is_found_again(tmp_path: Path, memory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(path_look, "PATH_SECONDS", 2)
    (listed,) = places(tmp_path / "share")
    with own_mounts():
        with silent_mount(tmp_path / "share"):
            assert look([listed]) == {listed: SILENT}
        for _attempt in range(1200):
            if not processes_looking_below(memory):
                break
            time.sleep(0.05)
        assert look([listed]) == {listed: folder_at(tmp_path / "share")}
    assert list(memory.iterdir()) == []


def test_runs_at_the_same_time_get_the_same_answers(tmp_path: Path) -> None:
    listed = places(tmp_path, *(tmp_path / str(number) for number in range(20)))
    expected = {**dict.fromkeys(listed, MISSING), listed[0]: folder_at(tmp_path)}
    with multiprocessing.get_context("fork").Pool(4) as pool:
        assert pool.starmap(look, [(listed,)] * 12) == [expected] * 12


def test_folder_without_a_place_for_locks_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(path_look, "LOCKS", tmp_path / "absent" / "looks")
    with pytest.raises(FileNotFoundError):
        look(places(tmp_path))


def test_mount_of_another_process_is_found_below_its_root(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    source.mkdir()
    target.mkdir()
    script = f"mount --bind {source} {target} && echo mounted && exec sleep 60"
    words = ["unshare", "--mount", "--propagation", "private", "sh", "-c", script]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        assert process.stdout.readline() == "mounted\n"
        there, here = Place(str(target), f"/proc/{process.pid}/root"), Place(str(target))
        answers = look([there, here])
        process.kill()
    found = answers[there]
    assert isinstance(found, Folder)
    assert (found.device, found.inode) == (folder_at(source).device, folder_at(source).inode)
    assert answers[here] == folder_at(target)


def test_answer_is_about_one_folder_while_that_is_replaced_by_a_link(tmp_path: Path) -> None:
    folder, link, aside = tmp_path / "folder", tmp_path / "link", tmp_path / "aside"
    folder.mkdir()
    link.symlink_to("/proc")
    allowed, ended = {folder_at(folder), folder_at(Path("/proc"))}, threading.Event()

    def replace() -> None:
        while not ended.is_set():
            for first, second in ((folder, aside), (link, folder), (folder, link), (aside, folder)):
                first.rename(second)

    replacing = threading.Thread(target=replace)
    replacing.start()
    try:
        answers = [look(places(folder))[Place(str(folder))] for _look in range(60)]
    finally:
        ended.set()
        replacing.join()
    folders = {answer for answer in answers if isinstance(answer, Folder)}
    # Between two steps it may be elsewhere, under its other name.
    assert folders <= {*allowed, dataclasses.replace(folder_at(folder), path=str(aside))}
    assert len(folders) > 1


@pytest.fixture
def roots_own() -> Iterator[Path]:
    """Return an empty folder that only root can write, as are all above it."""
    with own_mounts():
        yield mount_memory(Path("/mnt"))


def strictly(path: Path | str) -> Answer:
    place = Place(str(path), strict=True)
    return look([place])[place]


def test_strict_path_leads_through_folders_of_root_only(roots_own: Path) -> None:
    home = roots_own / "home" / "alice"
    (home / "scratch").mkdir(parents=True)
    assert strictly(home) == folder_at(home)
    # The last one is the user's, whatever else may write there.
    os.chown(home, 2001, 2001)
    home.chmod(0o1777)
    assert strictly(home) == folder_at(home)
    assert strictly(home / "scratch") == Unsafe(str(home), "belongs to user 2001")
    os.chown(home, 0, 0)
    assert strictly(home / "scratch") == Unsafe(str(home), "is writable for others than root (mode 1777)")
    home.chmod(0o775)
    assert strictly(home / "scratch") == Unsafe(str(home), "is writable for others than root (mode 0775)")
    home.chmod(0o755)
    assert strictly(home / "scratch") == folder_at(home / "scratch")
    assert strictly(home / "absent") is MISSING
    (home / "file").touch()
    assert strictly(home / "file") is MISSING
    assert strictly(f"{home}/../alice/scratch") == folder_at(home / "scratch")


@pytest.mark.parametrize("link", ["last", "between"])
def test_strict_path_follows_no_link(roots_own: Path, link: str) -> None:
    (roots_own / "bob" / "scratch").mkdir(parents=True)
    (roots_own / "home").mkdir()
    (roots_own / "home" / "alice").symlink_to("../bob")
    path = roots_own / "home" / "alice"
    assert strictly(path if link == "last" else path / "scratch") == Unsafe(str(path), "is a symbolic link")


def test_strict_path_may_cross_file_systems(roots_own: Path) -> None:
    inner = mount_memory(roots_own / "share")
    (inner / "team").mkdir()
    bind(inner / "team", roots_own / "bound")
    assert strictly(inner / "team") == folder_at(inner / "team")
    bound = strictly(roots_own / "bound")
    assert isinstance(bound, Folder)
    assert (bound.path, bound.inode) == (f"{roots_own}/bound", (inner / "team").stat().st_ino)


def test_strict_path_leaves_nothing_open(roots_own: Path) -> None:
    (roots_own / "a" / "b").mkdir(parents=True)
    (roots_own / "a" / "link").symlink_to("b")
    before = len(os.listdir("/proc/self/fd"))
    for name in ("b", "link", "absent"):
        with contextlib.suppress(OSError):
            opened = path_look._open_strictly(str(roots_own / "a" / name))
            if isinstance(opened, int):
                os.close(opened)
    assert len(os.listdir("/proc/self/fd")) == before


def below(folder: Path, inner: str) -> Answer:
    place = Place(str(folder), inner=inner)
    return look([place])[place]


def test_what_is_below_a_folder_is_reached_without_links_whoever_may_write_there(tmp_path: Path) -> None:
    folder = tmp_path / "user"
    (folder / "a" / "b").mkdir(parents=True)
    os.chown(folder, 12345, 12345)
    (folder / "file").touch()
    (folder / "link").symlink_to("a")
    (folder / "a" / "out").symlink_to("/")
    (tmp_path / "named").symlink_to("user")
    assert below(folder, "a") == folder_at(folder / "a")
    assert below(tmp_path / "named", "a/b") == folder_at(folder / "a" / "b")
    missing = "a/c", "c/a", "file", "file/a", "link", "link/b", "a/out", "a/out/etc"
    assert {below(folder, inner) for inner in missing} == {NoFolder.MISSING}


def test_file_system_below_a_folder_that_does_not_answer_is_left_alone(silent: Path) -> None:
    assert below(silent.parent, silent.name) is NoFolder.SILENT
