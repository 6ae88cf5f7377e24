"""The recorded ids of containers."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.backendai.cluster.plugins.module_utils._host import container_ids
from ansible_collections.backendai.cluster.plugins.module_utils._host.container_ids import ContainerIds


def test_ids_are_recorded_replaced_and_forgotten(tmp_path: Path) -> None:
    ids = ContainerIds(tmp_path / "containers")
    assert ids.read() == {}
    ids.record("main1", "a")
    ids.record("sub1", "b")
    ids.record("main1", "c")
    assert ids.read() == {"main1": "c", "sub1": "b"}
    ids.forget("main1")
    ids.forget("main1")
    assert ids.read() == {"sub1": "b"}
    assert (
        (tmp_path / "containers").stat().st_mode & 0o777,
        (tmp_path / "containers/sub1").stat().st_mode & 0o777,
    ) == (
        0o700,
        0o600,
    )


def test_a_file_that_was_being_written_is_no_record(tmp_path: Path) -> None:
    ids = ContainerIds(tmp_path)
    (tmp_path / ".main1.x.new").write_text("a")
    assert ids.read() == {}


def test_a_record_and_its_name_are_on_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[Any] = []
    monkeypatch.setattr(os, "fsync", lambda descriptor: synced.append(os.readlink(f"/proc/self/fd/{descriptor}")))
    ids = ContainerIds(tmp_path / "containers")
    ids.record("main1", "a")
    written, folder = synced
    assert (Path(written).parent, folder) == (tmp_path / "containers", str(tmp_path / "containers"))
    ids.forget("main1")
    assert synced[2:] == [str(tmp_path / "containers")]
    assert container_ids.FOLDER == "containers"
