"""Tests for files that are managed as a whole."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from ansible_collections.backendai.cluster.plugins.module_utils._host.files import DesiredFile, plan_files, write_files
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
