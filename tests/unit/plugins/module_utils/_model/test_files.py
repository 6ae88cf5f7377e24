"""Tests for atomic file replacement, and locks on files and folders."""

from __future__ import annotations

import errno
import os
import stat
import threading
from pathlib import Path

import pytest

from ansible_collections.backendai.cluster.plugins.module_utils._model.files import locked, write_atomically


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_file_is_replaced_atomically(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("a longer content than the next")
    path.chmod(0o644)
    with path.open() as reader:
        write_atomically(path, "new")
        assert reader.read() == "a longer content than the next"
    assert (path.read_text(), mode_of(path), os.listdir(tmp_path)) == ("new", 0o600, ["file"])


@pytest.mark.parametrize("mode", [0o600, 0o644, 0o755])
def test_bytes_are_written_with_their_mode_under_any_umask(tmp_path: Path, mode: int) -> None:
    before = os.umask(0o077)
    try:
        write_atomically(tmp_path / "file", b"\0\xff", mode)
    finally:
        os.umask(before)
    assert ((tmp_path / "file").read_bytes(), mode_of(tmp_path / "file")) == (b"\0\xff", mode)


def test_file_is_prepared_while_it_is_empty(tmp_path: Path) -> None:
    sizes = []

    def prepare(handle: int) -> None:
        sizes.append(os.fstat(handle).st_size)
        os.fchmod(handle, 0o660)

    write_atomically(tmp_path / "file", "content", prepare=prepare)
    assert (sizes, mode_of(tmp_path / "file")) == ([0], 0o660)


@pytest.mark.parametrize(("durable", "synced"), [(True, 1), (False, 0)])
def test_only_durable_files_are_synced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, durable: bool, synced: int
) -> None:
    calls: list[int] = []
    monkeypatch.setattr(os, "fsync", calls.append)
    write_atomically(tmp_path / "file", "content", durable=durable)
    assert len(calls) == synced


@pytest.mark.parametrize("fails", ["encode", "fsync", "replace"])
def test_failed_write_keeps_the_old_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: str) -> None:
    path = tmp_path / "file"
    path.write_text("old")

    def full(*_args: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    if fails != "encode":
        monkeypatch.setattr(os, fails, full)
    with pytest.raises((OSError, UnicodeEncodeError)):
        write_atomically(path, "\ud800" if fails == "encode" else "new")
    assert (path.read_text(), os.listdir(tmp_path)) == ("old", ["file"])


@pytest.mark.parametrize("kind", ["file", "folder"])
def test_lock_is_exclusive_until_released(tmp_path: Path, kind: str) -> None:
    path = tmp_path / kind
    path.mkdir() if kind == "folder" else path.touch()
    with locked(path, 0) as first, locked(path, timeout=0) as second:
        assert (first is None, second) == (False, None)
    with locked(path, timeout=0) as again:
        assert again is not None


def test_lock_waits_for_another_holder(tmp_path: Path) -> None:
    release = threading.Event()
    acquired = threading.Event()

    def hold() -> None:
        with locked(tmp_path, 0):
            acquired.set()
            release.wait(60)

    holder = threading.Thread(target=hold)
    holder.start()
    assert acquired.wait(60)
    with locked(tmp_path, timeout=0.05) as handle:
        assert handle is None
    release.set()
    with locked(tmp_path, timeout=10) as handle:
        assert handle is not None
    holder.join(60)


def test_lock_file_is_created_for_its_owner_only(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError), locked(tmp_path / "lock", 0):
        pass
    with locked(tmp_path / "lock", 0, create=True) as handle:
        assert handle is not None
    assert mode_of(tmp_path / "lock") == 0o600
