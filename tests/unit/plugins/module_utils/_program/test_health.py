"""The command that checks the health of an agent: what it runs, and what it writes to the journal."""

from __future__ import annotations

from pathlib import Path

import pytest

from ansible_collections.backendai.cluster.plugins.module_utils._host.health import read_health
from ansible_collections.backendai.cluster.plugins.module_utils._host.store import Store
from ansible_collections.backendai.cluster.plugins.module_utils._program.health import main
from tests.unit import agent

store, kernel = agent.store, agent.kernel


def look(store: Store, folder: Path) -> int:
    return main(["--state-path", str(store.root), "--docker-host", "unix:///nowhere", "--health", str(folder)])


def test_what_is_new_is_logged_once(store: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "health.d"
    folder.mkdir()
    check = folder / "disk"
    check.write_text("#!/bin/sh\necho full\nexit 1\n")
    check.chmod(0o755)
    assert look(store, folder) == 0
    assert capsys.readouterr() == ("<5>health check disk: missing -> full\n", "")
    assert [problem.reason for problem in read_health(store).problems] == ["full"]
    assert look(store, folder) == 0
    assert capsys.readouterr() == ("", "")


def test_a_refused_check_is_a_failure(store: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "health.d"
    folder.mkdir()
    (folder / "disk").touch()
    (folder / "disk").chmod(0o777)
    assert look(store, folder) == 1
    assert capsys.readouterr().err.startswith(f"<3>the health check {folder}/disk does not run: ")


def test_a_state_that_cannot_be_written_is_a_failure(
    store: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store.health_file.mkdir(parents=True)
    assert look(store, tmp_path) == 1
    assert capsys.readouterr().err == f"<3>{store.health_file} cannot be written: Is a directory.\n"
