"""A kit is packed once from the same packages."""

from __future__ import annotations

import platform
from pathlib import Path

import pytest

from ansible_collections.backendai.cluster.plugins.module_utils._host.kit_archive import Part
from ansible_collections.backendai.cluster.plugins.modules import kit_archive
from tests.unit.module_runs import result_of


def test_the_file_is_written_if_it_differs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    built: list[Path] = []

    def build(folder: Path) -> tuple[bytes, list[Part]]:
        assert list(folder.iterdir()) == []
        built.append(folder)
        return b"kit", [Part("libc6", "2.36", ["LGPL-2.1"])]

    monkeypatch.setattr(kit_archive, "build_archive", build)
    path = tmp_path / "kit.tar.gz"
    assert result_of("kit_archive", {"path": str(path)}, capsys, check_mode=True)["changed"]
    assert not path.exists()
    result = result_of("kit_archive", {"path": str(path)}, capsys)
    assert path.read_bytes() == b"kit"
    assert (result["changed"], result["architecture"]) == (True, platform.machine())
    assert result["packages"] == [{"name": "libc6", "version": "2.36", "licences": ["LGPL-2.1"]}]
    assert not result_of("kit_archive", {"path": str(path)}, capsys)["changed"]
    assert not any(folder.exists() for folder in built)
