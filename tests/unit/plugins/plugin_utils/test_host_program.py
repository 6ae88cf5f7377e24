"""The program for hosts: one reproducible archive that only needs Python."""

from __future__ import annotations

import hashlib
import io
import json
import os
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from ansible.errors import AnsibleError

from ansible_collections.backendai.cluster.plugins.plugin_utils import host_program
from ansible_collections.backendai.cluster.plugins.plugin_utils.host_program import (
    PACKAGE,
    archive,
    program_digest,
    release,
)
from tests.unit.builders import REPOSITORY


@pytest.fixture(autouse=True)
def made_anew() -> Iterator[None]:
    """Clear the caches between tests."""
    yield
    archive.cache_clear()
    release.cache_clear()


@pytest.fixture
def copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a copy of the archive's sources with other dates."""
    for path in host_program.SOURCES.glob("_*/*.py"):
        copied = tmp_path / path.relative_to(host_program.SOURCES)
        copied.parent.mkdir(exist_ok=True)
        copied.write_bytes(path.read_bytes())
        os.utime(copied, (1_000_000_000, 1_000_000_000))
    monkeypatch.setattr(host_program, "SOURCES", tmp_path)
    archive.cache_clear()
    return tmp_path


def names() -> list[str]:
    return zipfile.ZipFile(io.BytesIO(archive())).namelist()


def test_same_sources_give_the_same_bytes_wherever_and_whenever_they_lie(
    copy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    of_copy = archive()
    archive.cache_clear()
    monkeypatch.setattr(host_program, "SOURCES", REPOSITORY / "plugins" / "module_utils")
    assert (archive(), copy.exists()) == (of_copy, True)


def test_digest_is_that_of_the_bytes_and_changes_with_any_source(copy: Path) -> None:
    before = program_digest()
    assert before == hashlib.sha256(archive()).hexdigest()
    path = copy / "_model" / "plan.py"
    path.write_text(f"{path.read_text()}\n")
    archive.cache_clear()
    assert program_digest() != before


def test_archive_has_every_package_and_nothing_else(copy: Path) -> None:
    (copy / "_module.py").write_text("import ansible")
    (copy / "_model" / "__pycache__").mkdir()
    (copy / "_model" / "__pycache__" / "plan.cpython-311.pyc").write_bytes(b"x")
    packages = {name.removeprefix(f"{PACKAGE}/") for name in names()[1:] if name.startswith(f"{PACKAGE}/")}
    copied = {str(path.relative_to(copy)) for path in copy.glob("_*/*.py")}
    assert packages == {*copied, "__init__.py"}
    folders = PACKAGE.split("/")
    above = {"/".join([*folders[:depth], "__init__.py"]) for depth in range(1, len(folders))}
    assert {*names()} == {"__main__.py", *above, *(f"{PACKAGE}/{name}" for name in packages)}
    assert len(names()) == len({*names()})


def test_archive_is_run_by_the_launcher() -> None:
    assert zipfile.ZipFile(io.BytesIO(archive())).read("__main__.py") == host_program.launcher()


def test_archive_is_made_once_for_all_tasks_of_a_process() -> None:
    assert archive() is archive()


@pytest.mark.parametrize(
    ("files", "number"),
    [
        ({"galaxy.yml": "version: 1.2.3"}, "1.2.3"),
        ({"MANIFEST.json": json.dumps({"collection_info": {"version": "1.2.4"}})}, "1.2.4"),
        ({"MANIFEST.json": json.dumps({"collection_info": {"version": "2.0.0"}}), "galaxy.yml": "version: 1"}, "2.0.0"),
    ],
    ids=["checkout", "installed", "both"],
)
def test_release_is_that_of_the_collection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: dict[str, str], number: str
) -> None:
    for name, content in files.items():
        (tmp_path / name).write_text(content)
    monkeypatch.setattr(host_program, "COLLECTION", tmp_path)
    release.cache_clear()
    assert release() == number


@pytest.mark.parametrize("files", [{}, {"MANIFEST.json": "{"}, {"MANIFEST.json": "{}"}, {"galaxy.yml": "{"}])
def test_release_that_cannot_be_read_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: dict[str, str]
) -> None:
    for name, content in files.items():
        (tmp_path / name).write_text(content)
    monkeypatch.setattr(host_program, "COLLECTION", tmp_path)
    release.cache_clear()
    with pytest.raises(AnsibleError, match=r"^the version of backendai\.cluster cannot be read in "):
        release()


def test_release_of_the_checkout_is_that_of_galaxy() -> None:
    assert f"version: {release()}\n" in (REPOSITORY / "galaxy.yml").read_text()
