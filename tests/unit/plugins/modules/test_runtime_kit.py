"""The kit of an agent is built of an archive, or not at all."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ansible_collections.backendai.cluster.plugins.module_utils._host.kit_archive import pack
from ansible_collections.backendai.cluster.plugins.modules import runtime_kit
from tests.unit.module_runs import result_of
from tests.unit.plugins.module_utils._host.test_kit_archive import FILES, listing


@pytest.fixture
def options(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The options for an agent that mounts no kit yet and has an archive; its own programs are not looked at."""
    monkeypatch.setattr(runtime_kit, "connect", lambda _address: None)
    monkeypatch.setattr(runtime_kit, "mounted_paths", lambda _client: set())
    monkeypatch.setattr(runtime_kit.kit_programs, "find_files", lambda: pytest.fail("the host was asked"))
    (tmp_path / "state/kit").mkdir(parents=True)
    (tmp_path / "kit.tar.gz").write_bytes(pack(FILES, [], {}))
    scripts = {"bin/entrypoint": "#!/bin/sh\nexit 0\n"}
    return {"state_path": f"{tmp_path}/state", "archive": f"{tmp_path}/kit.tar.gz", "scripts": scripts}


def test_a_kit_is_installed_once_of_an_archive(
    options: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert result_of("runtime_kit", options, capsys, check_mode=True)["changed"]
    assert list((tmp_path / "state/kit").iterdir()) == []
    first = result_of("runtime_kit", options, capsys)
    assert first["changed"]
    folder = Path(first["path"])
    assert (folder / "libexec/sshd").read_bytes() == b"libexec/sshd"
    assert (folder / "bin/entrypoint").read_text().startswith("#!/opt/backendai/bin/busybox sh\n")
    assert not result_of("runtime_kit", options, capsys)["changed"]


def test_an_archive_that_cannot_be_used_changes_nothing(
    options: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    listing(tmp_path / "kit.tar.gz", architecture="riscv64")
    result = result_of("runtime_kit", options, capsys)
    assert "is for riscv64, and this host is " in result["msg"]
    assert list((tmp_path / "state/kit").iterdir()) == []


def test_a_host_without_an_archive_gives_its_own_programs(
    options: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "program").write_bytes(b"of the host")
    files = {"bin/busybox": tmp_path / "program", "libexec/ssh": tmp_path / "program"}
    monkeypatch.setattr(runtime_kit.kit_programs, "find_files", lambda: files)
    result = result_of("runtime_kit", {**options, "archive": ""}, capsys)
    assert (Path(result["path"]) / "libexec/ssh").read_bytes() == b"of the host"
