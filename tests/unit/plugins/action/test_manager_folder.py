"""The module that installs a folder, and the action that packs it."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from ansible.errors import AnsibleActionFail

from ansible_collections.backendai.cluster.plugins.action.manager_folder import ActionModule
from ansible_collections.backendai.cluster.plugins.plugin_utils.folder_archive import pack_folder
from tests.unit.module_runs import result_of
from tests.unit.plugins.action.conftest import Run


class Installation(ActionModule):
    """The action, with the module in this process, on this machine."""

    capsys: pytest.CaptureFixture[str]
    uploaded: Path

    def _execute_module(self, *_: Any, module_args: dict[str, Any], **__: Any) -> dict[str, Any]:
        return result_of("manager_folder", module_args, self.capsys, check_mode=self._task.check_mode)

    def _make_tmp_path(self, *_: Any) -> str:
        self._connection._shell.join_path = os.path.join
        return str(self.uploaded)

    def _transfer_data(self, remote_path: str, data: bytes) -> str:
        Path(remote_path).write_bytes(data)
        return remote_path

    def _fixup_perms2(self, *_: Any, **__: Any) -> None:
        return

    def _remove_tmp_path(self, tmp_path: str, *_: Any, **__: Any) -> None:
        for path in Path(tmp_path).iterdir():
            path.unlink()


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Return a folder of the control node with one file."""
    folder = tmp_path / "source"
    folder.mkdir()
    (folder / "wheel").write_text("1")
    return folder


@pytest.fixture
def install(tmp_path: Path, capsys: pytest.CaptureFixture[str], run: Run) -> Callable[..., dict[str, Any]]:
    """Return a function that copies a folder to ``tmp_path/wheels``."""
    Installation.capsys, Installation.uploaded = capsys, tmp_path / "uploaded"
    Installation.uploaded.mkdir()

    def copy(source: Path, **options: bool) -> dict[str, Any]:
        return run(Installation, {"path": str(tmp_path / "wheels"), "source": str(source)}, {}, **options)

    return copy


def test_a_folder_is_copied_once(source: Path, tmp_path: Path, install: Callable[..., dict[str, Any]]) -> None:
    assert install(source)["changed"] is True
    digest = hashlib.sha256(pack_folder(source)).hexdigest()
    assert (tmp_path / "wheels").readlink() == Path(f"wheels-{digest[:16]}")
    assert (tmp_path / "wheels/wheel").read_text() == "1"
    assert install(source)["changed"] is False
    assert list((tmp_path / "uploaded").iterdir()) == []


def test_check_mode_compares_and_copies_nothing(
    source: Path, tmp_path: Path, install: Callable[..., dict[str, Any]]
) -> None:
    assert install(source, check_mode=True)["changed"] is True
    assert not (tmp_path / "wheels").exists()
    install(source)
    assert install(source, check_mode=True)["changed"] is False


def test_a_folder_that_cannot_be_read_is_named(tmp_path: Path, install: Callable[..., dict[str, Any]]) -> None:
    with pytest.raises(AnsibleActionFail, match=r"/nowhere: cannot be read on the control node: No such file or dir"):
        install(tmp_path / "nowhere")


def test_a_path_that_is_taken_is_one_sentence(
    source: Path, tmp_path: Path, install: Callable[..., dict[str, Any]]
) -> None:
    (tmp_path / "wheels").mkdir()
    result = install(source)
    assert result["failed"] is True
    assert result["msg"] == f"{tmp_path}/wheels is not a link to a folder of this collection; move it away."
