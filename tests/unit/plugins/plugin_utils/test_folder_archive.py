"""Folders that are copied to managers as one archive."""

from __future__ import annotations

import io
import os
import tarfile
from pathlib import Path

import pytest
import yaml

from ansible_collections.backendai.cluster.plugins.plugin_utils.folder_archive import pack_collection, pack_folder
from tests.unit.builders import REPOSITORY

COLLECTION = "ansible_collections/backendai/cluster"


def entries(archive: bytes) -> dict[str, tuple[int, bytes]]:
    """Return the mode and the content of each file of an archive."""
    with tarfile.open(fileobj=io.BytesIO(archive)) as packed:
        return {entry.name: (entry.mode, _content(packed, entry)) for entry in packed}


def _content(packed: tarfile.TarFile, entry: tarfile.TarInfo) -> bytes:
    stream = packed.extractfile(entry)
    assert stream is not None, entry.name
    return stream.read()


def test_the_collection_is_what_runs_and_nothing_else() -> None:
    names = entries(pack_collection()).keys()
    tops = {name.removeprefix(f"{COLLECTION}/").split("/")[0] for name in names}
    assert tops == {"LICENSE", "galaxy.yml", "meta", "playbooks", "plugins", "roles"}
    assert {f"{COLLECTION}/playbooks/create_session.yml", f"{COLLECTION}/roles/agent/files/kit/entrypoint"} <= names
    assert not [name for name in names if "__pycache__" in name or "/." in name or name.endswith(".pyc")]


def test_the_copy_has_the_version_of_the_original() -> None:
    _mode, content = entries(pack_collection())[f"{COLLECTION}/galaxy.yml"]
    assert yaml.safe_load(content)["version"] == yaml.safe_load((REPOSITORY / "galaxy.yml").read_text())["version"]


def test_the_same_files_are_the_same_archive_whenever_they_were_written(tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    for name in ("b/2", "a", ".hidden", "b/__pycache__"):
        (tmp_path / name).write_text(name)
    before = pack_folder(tmp_path)
    os.utime(tmp_path / "a", (1, 1))
    (tmp_path / "a").chmod(0o600)
    assert pack_folder(tmp_path) == before
    assert entries(before) == {"a": (0o644, b"a"), "b/2": (0o644, b"b/2"), "b/__pycache__": (0o644, b"b/__pycache__")}


def test_a_program_stays_one(tmp_path: Path) -> None:
    (tmp_path / "program").write_text("")
    (tmp_path / "program").chmod(0o700)
    assert entries(pack_folder(tmp_path)) == {"program": (0o755, b"")}


def test_a_folder_that_is_missing_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        pack_folder(tmp_path / "nowhere")
