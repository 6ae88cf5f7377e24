"""Folders that are replaced as a whole."""

from __future__ import annotations

import io
import os
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ansible_collections.backendai.cluster.plugins.module_utils._host import versioned_folder
from ansible_collections.backendai.cluster.plugins.module_utils._host.versioned_folder import is_current, replace
from ansible_collections.backendai.cluster.plugins.module_utils._model.errors import ClusterError

A, B, C = ("a" * 64, "b" * 64, "c" * 64)


class Killed(BaseException):
    """What ends a run at once."""


def archive(**files: str) -> io.BytesIO:
    """Return an archive of files by name."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as packed:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(content), 0o755
            packed.addfile(entry, io.BytesIO(content.encode()))
    return io.BytesIO(buffer.getvalue())


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "collections"


def test_a_folder_is_a_link_to_its_version(path: Path) -> None:
    assert not is_current(path, A)
    replace(path, A, archive(**{"x/y": "1"}))
    assert is_current(path, A)
    assert not is_current(path, B)
    assert (path.readlink(), (path / "x/y").read_text()) == (Path("collections-aaaaaaaaaaaaaaaa"), "1")


def test_everybody_reads_it_whatever_the_umask_is(path: Path, umask: Callable[[int], None]) -> None:
    umask(0o077)
    replace(path, A, archive(**{"x/y": "1"}))
    assert [oct(entry.stat().st_mode & 0o777) for entry in (path, path / "x", path / "x/y")] == ["0o755"] * 3


@pytest.fixture
def umask() -> Iterator[Callable[[int], None]]:
    """Return a function that sets the umask of this test."""
    before = os.umask(0o022)
    yield lambda mask: [os.umask(mask)].clear()
    os.umask(before)


def test_a_program_that_resolved_the_link_keeps_its_files_during_one_replacement(path: Path) -> None:
    replace(path, A, archive(f="1"))
    resolved = path.resolve()
    replace(path, B, archive(f="2"))
    assert ((resolved / "f").read_text(), (path / "f").read_text()) == ("1", "2")
    replace(path, C, archive(f="3"))
    assert sorted(entry.name[-1] for entry in path.parent.iterdir()) == ["b", "c", "s"]


@pytest.mark.parametrize("step", ["_unpack", "_link"])
def test_a_killed_run_leaves_the_old_content_and_the_next_one_finishes(
    path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    replace(path, A, archive(f="1"))
    original = getattr(versioned_folder, step)

    def kill(*arguments: object) -> None:
        if step == "_unpack":
            original(*arguments)
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(versioned_folder, step, kill)
        with pytest.raises(Killed):
            replace(path, B, archive(f="2"))
    assert is_current(path, A)
    assert (path / "f").read_text() == "1"
    replace(path, B, archive(f="2"))
    assert is_current(path, B)
    assert len(list(path.parent.iterdir())) == 3


def test_a_folder_of_somebody_else_is_left_alone(path: Path) -> None:
    path.mkdir()
    with pytest.raises(ClusterError, match=r"collections is not a link to a folder of this collection; move it away$"):
        is_current(path, A)


@pytest.mark.parametrize("name", ["../f", "/f", "x/../../f"])
def test_an_archive_writes_only_below_its_folder(path: Path, name: str) -> None:
    with pytest.raises(ClusterError, match="that is no file below its folder"):
        replace(path, A, archive(**{name: "1"}))
    assert not path.exists()
