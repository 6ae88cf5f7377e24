"""The result of agent_homes."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ansible.module_utils.basic import AnsibleModule

from ansible_collections.backendai.cluster.plugins.module_utils._host.store import Store
from ansible_collections.backendai.cluster.plugins.modules import agent_homes
from tests.unit.module_runs import result_of


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """Return the folder of a file system of its own, with the data of the engine."""
    (tmp_path / "disk").mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "none", str(tmp_path / "disk")], check=True)
    yield tmp_path / "disk"
    subprocess.run(["umount", str(tmp_path / "disk")], check=True)


@pytest.fixture
def options(tmp_path: Path, disk: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Return the options for an agent whose engine has its data on a file system of its own."""

    class Engine:
        def info(self) -> dict[str, str]:
            return {"DockerRootDir": str(disk)}

    monkeypatch.setattr(agent_homes, "connect", lambda _address: Engine())
    (tmp_path / "state" / "sessions").mkdir(parents=True)
    return {"state_path": str(tmp_path / "state")}


@pytest.fixture
def warned(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the warnings of a module, which are not in its result in this process."""
    printed: list[str] = []
    monkeypatch.setattr(AnsibleModule, "warn", lambda _module, sentence: printed.append(sentence))
    return printed


def test_folder_is_made_once(
    options: dict[str, Any], warned: list[str], disk: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    planned = result_of("agent_homes", options, capsys, check_mode=True)
    assert (planned["changed"], planned["path"], (disk / "backendai-homes").exists()) == (
        True,
        f"{disk}/backendai-homes",
        False,
    )
    result = result_of("agent_homes", options, capsys)
    assert (result["diff"], result["path"], warned) == (planned["diff"], planned["path"], [])
    assert Store(options["state_path"]).homes.root == disk / "backendai-homes"
    assert not result_of("agent_homes", options, capsys)["changed"]


def test_the_file_system_of_the_state_is_a_warning(
    options: dict[str, Any], warned: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    result = result_of("agent_homes", {**options, "path": str(tmp_path / "homes")}, capsys)
    assert result["changed"]
    assert len(warned) == 1
    assert warned[0].startswith(
        f"agent_home_path: {tmp_path}/homes is on the file system of agent_state_path ({tmp_path}/state), so a session"
        " that fills its home leaves the agent no room for its own files: "
    )


def test_a_refusal_is_one_sentence(options: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    result = result_of("agent_homes", {**options, "path": f"{options['state_path']}/homes"}, capsys)
    assert result["failed"]
    assert "must not be in each other" in result["msg"]
