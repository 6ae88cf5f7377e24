"""What an agent knows about images."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from ansible_collections.backendai.cluster.plugins.module_utils._host import image_records
from ansible_collections.backendai.cluster.plugins.module_utils._host.image_records import ImageRecords

ID, NAME = "sha256:1", "docker.io/lab/python:1"


@pytest.fixture
def records(tmp_path: Path) -> ImageRecords:
    return ImageRecords(tmp_path / "images")


def pulled_as(records: ImageRecords, image_id: str = ID) -> tuple[str, ...] | None:
    known = records.find(image_id)
    return known.pulled_as if known else None


def test_each_name_of_a_pull_is_recorded_once(records: ImageRecords) -> None:
    for name in (NAME, "docker.io/lab/python:2", NAME):
        records.add(ID, name)
    assert pulled_as(records) == (NAME, "docker.io/lab/python:2")
    assert pulled_as(records, "sha256:2") is None


def test_need_is_recorded_of_any_image_and_keeps_its_names(records: ImageRecords, tmp_path: Path) -> None:
    records.add(ID, NAME)
    (path,) = (tmp_path / "images").iterdir()
    os.utime(path, (0, 0))
    records.touch([ID, "sha256:2"])
    known = records.find(ID)
    assert known is not None
    assert (known.pulled_as, time.time() - known.needed_at < 60) == ((NAME,), True)
    assert pulled_as(records, "sha256:2") == ()


def test_need_that_cannot_be_written_stops_nothing(records: ImageRecords, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_file: object, **_how: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(image_records, "write_atomically", fail)
    records.touch([ID])
    assert pulled_as(records) is None


@pytest.mark.parametrize(
    "content", ["{", '{"version": 3, "id": "sha256:1"}', '{"version": 9, "id": "sha256:1", "pulled_as": []}']
)
def test_damaged_record_says_nothing(records: ImageRecords, tmp_path: Path, content: str) -> None:
    records.add(ID, NAME)
    (path,) = (tmp_path / "images").iterdir()
    path.write_text(content)
    assert pulled_as(records) is None


def test_records_of_images_that_are_gone_are_removed(records: ImageRecords, tmp_path: Path) -> None:
    records.keep_only([])
    records.add(ID, NAME)
    records.add("sha256:2", NAME)
    records.keep_only([ID])
    assert (pulled_as(records), pulled_as(records, "sha256:2")) == ((NAME,), None)
    records.forget(ID)
    records.forget(ID)
    assert [*(tmp_path / "images").iterdir()] == []


def test_records_are_for_root_only(records: ImageRecords, tmp_path: Path) -> None:
    records.add(ID, NAME)
    (path,) = (tmp_path / "images").iterdir()
    assert (path.stat().st_mode & 0o777, path.parent.stat().st_mode & 0o777) == (0o600, 0o700)
