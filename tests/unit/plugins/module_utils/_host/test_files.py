"""Tests for files that are managed as a whole."""

from __future__ import annotations

import errno
import itertools
import multiprocessing
import os
import random
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ansible_collections.backendai.cluster.plugins.module_utils._host.files import (
    DesiredFile,
    plan_files,
    write_files,
)
from ansible_collections.backendai.cluster.plugins.module_utils._model.change import Change


@pytest.fixture(params=[0o022, 0o077], ids=["umask 022", "umask 077"])
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    """Run a test with a usual and with a strict umask."""
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


def changes(*files: DesiredFile) -> list[Change]:
    return [change for _file, change in plan_files(files)]


def test_missing_file_is_shown_with_its_content(tmp_path: Path) -> None:
    assert changes(DesiredFile(tmp_path / "hosts", "a\nb\n")) == [Change(f"file {tmp_path}/hosts", None, "\n  a\n  b")]


@pytest.mark.parametrize(
    ("before", "after", "shown"),
    [
        ("old\n", "new\n", ("\n  old", "\n  new")),
        ("a\nb\nc\nd\nold\n", "a\nb\nc\nd\n", ("\n  old", "(nothing)")),
        ("", "new\n", ("(nothing)", "\n  new")),
        ("a\nb\n", "b\na\n", ("\n  a\n  b", "\n  b\n  a")),
        ("a\na\n", "a\n", ("\n  a\n  a", "\n  a")),
    ],
    ids=["changed", "added", "emptied", "another order", "repeated"],
)
def test_drifted_file_is_shown_with_the_lines_that_differ(
    tmp_path: Path, before: str, after: str, shown: tuple[str, str]
) -> None:
    (tmp_path / "hosts").write_text(before)
    assert changes(DesiredFile(tmp_path / "hosts", after)) == [Change(f"file {tmp_path}/hosts", *shown)]


@pytest.mark.parametrize("before", [None, "TOKEN=hunter1\n"], ids=["missing", "drifted"])
def test_secret_content_is_never_shown(tmp_path: Path, before: str | None) -> None:
    path = tmp_path / "environment"
    if before:
        path.write_text(before)
    shown = None if before is None else "(other content hidden)"
    assert changes(DesiredFile(path, "TOKEN=hunter2\n", secret=True)) == [
        Change(f"file {path}", shown, "(content hidden)")
    ]


@pytest.mark.parametrize("content", ["a\r\nb\r\n", "é\n"], ids=["line ends of Windows", "UTF-8"])
def test_unusual_content_is_no_change(tmp_path: Path, content: str) -> None:
    desired = DesiredFile(tmp_path / "bootstrap", content)
    write_files([desired])
    assert changes(desired) == []


def test_bytes_that_are_no_text_are_shown_and_replaced(tmp_path: Path) -> None:
    path = tmp_path / "hosts"
    path.write_bytes(b"a\n\xff\n")
    desired = DesiredFile(path, "a\n")
    assert changes(desired) == [Change(f"file {path}", "\n  \\xff", "(nothing)")]
    write_files([desired])
    assert path.read_bytes() == b"a\n"


def test_file_with_desired_content_is_no_change(tmp_path: Path) -> None:
    file = DesiredFile(tmp_path / "folder" / "hosts", "new\n")
    write_files([file])
    assert changes(file) == []


def test_drifted_mode_is_shown_and_restored(tmp_path: Path) -> None:
    path = tmp_path / "known_hosts"
    path.write_text("a\n")
    path.chmod(0o666)
    desired = DesiredFile(path, "a\n")
    assert changes(desired) == [Change(f"file {path}", "mode 0666", "mode 0600")]
    write_files([desired])
    assert changes(desired) == []


def test_planning_does_not_write_files(tmp_path: Path) -> None:
    plan_files([DesiredFile(tmp_path / "folder" / "hosts", "new\n")])
    assert list(tmp_path.iterdir()) == []


def test_file_is_written_in_place_for_bind_mounts(tmp_path: Path) -> None:
    path = tmp_path / "hosts"
    path.write_text("a longer content than the next\n")
    inode = path.stat().st_ino
    write_files([DesiredFile(path, "new\n", in_place=True)])
    assert (path.read_text(), path.stat().st_ino) == ("new\n", inode)


@pytest.mark.parametrize("mode", [0o600, 0o644])
@pytest.mark.usefixtures("umask")
def test_file_has_its_mode_under_any_umask(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "folder" / "file"
    write_files([DesiredFile(path, "content", mode=mode)])
    assert stat.S_IMODE(path.stat().st_mode) == mode
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_file_mode_that_is_too_open_is_restricted(tmp_path: Path) -> None:
    path = tmp_path / "environment"
    path.write_text("TOKEN=hunter1\n")
    path.chmod(0o644)
    write_files([DesiredFile(path, "TOKEN=hunter2\n", secret=True)])
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


# ---- faults

FULL_DISK = """
import os, pathlib, sys
from ansible_collections.backendai.cluster.plugins.module_utils._host.files import DesiredFile, write_files

folder = pathlib.Path(sys.argv[1])
before, after = "192.0.2.1 main1\\n" * 300, "192.0.2.2 main1 sub1\\n" * 1200
hosts = DesiredFile(folder / "hosts", before, in_place=True)
environment = DesiredFile(folder / "environment", before)
write_files([hosts, environment])
mounted = folder.parent / "etc-hosts"
mounted.touch()
assert os.system(f"mount --bind {hosts.path} {mounted}") == 0
with open(folder / "filler", "wb", buffering=0) as filler:
    try:
        while True:
            filler.write(b"x" * 512)
    except OSError as error:
        print("full:", error.strerror)
for file in (hosts, environment):
    try:
        write_files([DesiredFile(file.path, after, in_place=file.in_place)])
    except OSError as error:
        print(file.path.name, error.strerror)
    print(file.path.read_text() == before, mounted.read_text() == before, sorted(os.listdir(folder)))
os.unlink(folder / "filler")
write_files([DesiredFile(hosts.path, after, in_place=True)])
print(mounted.read_text() == after)
write_files([hosts])
print(mounted.read_text() == before)
"""


def test_a_full_disk_empties_no_file_of_a_running_container(tmp_path: Path) -> None:
    """Fill a real file system, in a mount namespace of its own, while a container sees one of its files."""
    folder = tmp_path / "small"
    folder.mkdir()
    script = f'mount -t tmpfs -o size=64k none {folder} && exec "$@"'
    command = ["unshare", "--mount", "sh", "-ec", script, "sh", sys.executable, "-c", FULL_DISK, str(folder)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    result = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, env=environment)
    full, names = "No space left on device", "['environment', 'filler', 'hosts']"
    unchanged = f"True True {names}"
    printed = [f"full: {full}", f"hosts {full}", unchanged, f"environment {full}", unchanged, "True", "True"]
    assert (result.stderr, result.stdout.splitlines()) == ("", printed)


def test_a_write_that_fails_in_the_middle_is_undone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Others may take the room between the trial and the write."""
    path = tmp_path / "hosts"
    before = "192.0.2.1 main1\n" * 10
    path.write_text(before)
    failures = iter([True])
    write = os.pwrite

    def partial(descriptor: int, content: bytes, offset: int) -> int:
        if offset and next(failures, False):
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(descriptor, content[:40], offset)

    monkeypatch.setattr(os, "pwrite", partial)
    with pytest.raises(OSError, match="No space left on device"):
        write_files([DesiredFile(path, "192.0.2.2 sub1\n" * 20, in_place=True)])
    assert path.read_text() == before


def _write_for_ever(path: Path, contents: list[str], in_place: bool) -> None:
    for content in itertools.cycle(contents):
        write_files([DesiredFile(path, content, in_place=in_place)])


@pytest.mark.parametrize("in_place", [True, False], ids=["in place", "replaced"])
def test_a_writer_that_is_killed_leaves_whole_lines(tmp_path: Path, in_place: bool, full: bool) -> None:
    path = tmp_path / "hosts"
    contents = ["192.0.2.1 main1\n" * 200, "192.0.2.2 main1 a-longer-name\n" * 120, "192.0.2.3 main1\n"]
    write_files([DesiredFile(path, contents[0])])
    chance = random.Random(1)
    for _kill in range(200 if full else 20):
        arguments = (path, contents, in_place)
        writer = multiprocessing.get_context("fork").Process(target=_write_for_ever, args=arguments)
        writer.start()
        time.sleep(chance.uniform(0, 0.01))
        os.kill(writer.pid or 0, signal.SIGKILL)
        writer.join()
        # Between the write and the cut, empty lines cover what was longer.
        assert path.read_text().rstrip("\n") + "\n" in contents
        assert in_place or path.read_text() in contents
