"""Several files and folders are written in one step."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from tests.unit.module_runs import result_of


@pytest.fixture(name="wanted")
def wanted_files(tmp_path: Path) -> dict[str, Any]:
    """Two files, and the folders that they are in."""
    folders = [{"path": str(tmp_path / "a")}, {"path": str(tmp_path / "a/b"), "mode": "0700"}]
    return {"folders": folders, "files": {str(tmp_path / "a/b/one"): "1\n", str(tmp_path / "a/two"): "2\n"}}


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o7777


def test_files_and_folders_are_written_once(
    wanted: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    result = result_of("host_files", wanted, capsys)
    assert result["changed"]
    assert f"folder {tmp_path}/a/b: mode 0700\n" in result["diff"]["after"]
    assert (tmp_path / "a/b/one").read_text() == "1\n"
    assert {path.name: mode(path) for path in (tmp_path / "a").iterdir()} == {"b": 0o700, "two": 0o644}
    assert not result_of("host_files", wanted, capsys)["changed"]


def test_check_mode_writes_nothing(wanted: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert result_of("host_files", wanted, capsys, check_mode=True)["changed"]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("damage", ["content", "mode of a file", "mode of a folder", "missing", "a link"])
def test_what_has_changed_since_is_put_right(
    wanted: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str], damage: str
) -> None:
    result_of("host_files", wanted, capsys)
    file, folder = tmp_path / "a/b/one", tmp_path / "a/b"
    if damage == "content":
        file.write_text("other\n")
    elif damage == "mode of a file":
        file.chmod(0o666)
    elif damage == "mode of a folder":
        folder.chmod(0o777)
    else:
        file.unlink()
        if damage == "a link":
            file.symlink_to("/etc/hostname")
    assert result_of("host_files", wanted, capsys)["changed"]
    assert (file.read_text(), file.is_symlink(), mode(file), mode(folder)) == ("1\n", False, 0o644, 0o700)
    assert not result_of("host_files", wanted, capsys)["changed"]


@pytest.mark.parametrize("name", ["a/b", "a/b/one"])
def test_what_belongs_to_somebody_else_becomes_roots(
    wanted: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    result_of("host_files", wanted, capsys)
    os.chown(tmp_path / name, 1000, 1000)
    result = result_of("host_files", wanted, capsys)
    assert result["changed"]
    assert result["diff"]["before"] == f"{tmp_path / name}: owner and group 1000:1000\n"
    status = (tmp_path / name).stat()
    assert (status.st_uid, status.st_gid) == (0, 0)


def test_the_folder_of_a_file_is_made_if_it_is_missing_and_else_left(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = os.umask(0o077)
    theirs = tmp_path / "network"
    theirs.mkdir()
    theirs.chmod(0o750)
    os.chown(theirs, 0, 998)
    new = tmp_path / "NetworkManager/conf.d"
    files = {str(theirs / "05-ours.network"): "1\n", str(new / "99-ours.conf"): "2\n"}
    try:
        assert result_of("host_files", {"files": files}, capsys)["changed"]
    finally:
        os.umask(before)
    assert (mode(theirs), theirs.stat().st_gid) == (0o750, 998)
    assert [mode(folder) for folder in (new.parent, new)] == [0o755] * 2
    assert not result_of("host_files", {"files": files}, capsys)["changed"]
