"""Text on the terminals of a container, whatever is in the place of one."""

from __future__ import annotations

import os
import pty
import tty
from collections.abc import Iterator
from pathlib import Path

import pytest

from ansible_collections.backendai.cluster.plugins.module_utils._host import terminals
from ansible_collections.backendai.cluster.plugins.module_utils._host.terminals import write_to_terminals


@pytest.fixture
def pts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the terminals of process 7."""
    monkeypatch.setattr(terminals, "PROC", tmp_path)
    folder = tmp_path / "7" / "root" / "dev" / "pts"
    folder.mkdir(parents=True)
    return folder


@pytest.fixture
def terminal() -> Iterator[tuple[int, str]]:
    """Return the master of a new terminal of this process, and the terminal's name."""
    master, slave = pty.openpty()
    tty.setraw(slave)
    yield master, os.path.basename(os.ttyname(slave))
    os.close(master)
    os.close(slave)


def test_an_open_terminal_shows_the_text(terminal: tuple[int, str], monkeypatch: pytest.MonkeyPatch) -> None:
    master, number = terminal
    monkeypatch.setattr(os, "listdir", lambda _folder: [number, "ptmx"])
    assert write_to_terminals(os.getpid(), "it ends in 5 min") == 1
    assert os.read(master, 100) == b"\r\nit ends in 5 min\r\n"


@pytest.mark.parametrize("kind", ["file", "link", "pipe"])
def test_what_is_no_terminal_is_left_alone(pts: Path, tmp_path: Path, kind: str) -> None:
    victim = tmp_path / "victim"
    victim.write_text("mine")
    if kind == "file":
        (pts / "0").write_text("mine")
    elif kind == "link":
        (pts / "0").symlink_to(victim)
    else:
        os.mkfifo(pts / "0")
    assert write_to_terminals(7, "owned") == 0
    assert victim.read_text() == "mine"


def test_a_folder_that_is_a_link_is_not_followed(pts: Path) -> None:
    pts.rmdir()
    pts.symlink_to("/dev/pts")
    assert write_to_terminals(7, "owned") == 0
    assert pts.is_symlink()


def test_a_container_that_has_ended_has_no_terminals(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(terminals, "PROC", tmp_path)
    assert write_to_terminals(8, "anybody?") == 0
