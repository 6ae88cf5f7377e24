"""Removing the folders of ended sessions: real ones, as users leave them."""

from __future__ import annotations

import os
import subprocess
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.backendai.cluster.plugins.module_utils._host import home_removal, units
from ansible_collections.backendai.cluster.plugins.module_utils._host.home_removal import (
    lacks_space,
    remove_retired,
    start_removal,
)
from ansible_collections.backendai.cluster.plugins.module_utils._host.homes import Homes
from tests.unit.builders import SESSION_ID

ALL = 1 << 62
"""A reserve that no file system has."""


@pytest.fixture
def homes(tmp_path: Path) -> Homes:
    """Return the homes of an agent."""
    (tmp_path / "homes" / "removed").mkdir(parents=True)
    return Homes(str(tmp_path / "homes"))


def make(homes: Homes) -> None:
    """Make the home of a container."""
    homes.make_new(SESSION_ID, "main1", 12345, 23456)
    homes.renew(SESSION_ID, "main1")


def end_session(homes: Homes) -> Path:
    """Return the home of a session that has ended."""
    make(homes)
    before = {*homes.removed.iterdir()}
    assert homes.retire(SESSION_ID)
    (retired,) = {*homes.removed.iterdir()} - before
    return retired / "main1" / "home"


def test_everything_of_ended_sessions_goes_and_others_stay(homes: Homes) -> None:
    for _session in range(3):
        (end_session(homes) / "file").touch()
    make(homes)
    assert remove_retired(homes, 0) == []
    assert (homes.has_retired(), homes.exists(SESSION_ID, "main1")) == (False, True)
    assert remove_retired(homes, 0) == []


def test_no_link_is_followed_and_no_mode_keeps_anything(homes: Homes, tmp_path: Path) -> None:
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious" / "file").touch()
    home = end_session(homes)
    (home / "link").symlink_to(tmp_path / "precious")
    (home / "-rf").symlink_to(tmp_path / "precious" / "file")
    (home / "closed").mkdir()
    (home / "closed" / "file").touch()
    (home / "closed").chmod(0)
    os.mkfifo(home / "pipe")
    assert remove_retired(homes, 0) == []
    assert (homes.has_retired(), (tmp_path / "precious" / "file").exists()) == (False, True)


def test_folders_in_each_other_at_any_depth_are_removed(homes: Homes) -> None:
    here = os.open(end_session(homes), os.O_RDONLY)
    for _level in range(3000):
        os.mkdir("d" * 200, dir_fd=here)
        inner = os.open("d" * 200, os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = inner
    os.close(here)
    assert remove_retired(homes, 0) == []
    assert not homes.has_retired()


def test_files_that_vanish_meanwhile_are_no_problem(homes: Homes) -> None:
    home = end_session(homes)
    for number in range(3000):
        (home / str(number)).touch()

    def remove_too() -> None:
        subprocess.run(["rm", "-rf", str(home)], check=False, capture_output=True)

    other = threading.Thread(target=remove_too)
    other.start()
    assert remove_retired(homes, 0) == []
    other.join()
    assert not homes.has_retired()


def test_a_session_that_ends_meanwhile_is_removed_too(homes: Homes, monkeypatch: pytest.MonkeyPatch) -> None:
    end_session(homes)
    remove = home_removal._remove

    def remove_one(*arguments: Any) -> None:
        monkeypatch.setattr(home_removal, "_remove", remove)
        end_session(homes)
        remove(*arguments)

    monkeypatch.setattr(home_removal, "_remove", remove_one)
    assert remove_retired(homes, 0) == []
    assert not homes.has_retired()


def test_what_cannot_be_removed_is_named_once_and_keeps_nothing_else(homes: Homes) -> None:
    stuck = end_session(homes)
    subprocess.run(["mount", "-t", "tmpfs", "none", str(stuck)], check=True)
    try:
        (stuck / "file").touch()
        end_session(homes)
        left = stuck.parent.parent
        assert remove_retired(homes, 0) == [f"{left} cannot be removed: see why with rm -r on it"]
        assert ([*homes.removed.iterdir()], (stuck / "file").exists()) == ([left], True)
    finally:
        subprocess.run(["umount", str(stuck)], check=True)


@pytest.mark.parametrize(("reserve", "nice"), [(0, 19), (ALL, 0)], ids=["enough", "too little"])
def test_priority_is_the_lowest_unless_space_is_needed(
    homes: Homes, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, reserve: int, nice: int
) -> None:
    slow = tmp_path / "bin" / "rm"
    slow.parent.mkdir()
    slow.write_text(f'#!/bin/sh\nsleep 0.3\ncut -d " " -f 19 /proc/self/stat >{tmp_path}/nice\nexec /bin/rm "$@"\n')
    slow.chmod(0o755)
    monkeypatch.setenv("PATH", f"{slow.parent}:{os.environ['PATH']}")
    monkeypatch.setattr(home_removal, "POLL_SECONDS", 0.05)
    end_session(homes)
    pid = os.fork()
    if pid == 0:
        os.nice(19)
        remove_retired(homes, reserve)
        os._exit(0)
    os.waitpid(pid, 0)
    assert int((tmp_path / "nice").read_text()) == nice
    assert not homes.has_retired()


def test_space_is_lacking_only_while_something_is_to_be_removed(homes: Homes) -> None:
    assert not lacks_space(homes, ALL)
    end_session(homes)
    assert (lacks_space(homes, ALL), lacks_space(homes, 0)) == (True, False)


@pytest.mark.parametrize("script", ["exit 5", "sleep 60"], ids=["fails", "hangs"])
def test_a_unit_that_cannot_be_started_keeps_nothing_waiting(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, script: str
) -> None:
    (tmp_path / "systemctl").write_text(f'#!/bin/sh\necho "$@" >{tmp_path}/called\n{script}\n')
    (tmp_path / "systemctl").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(units, "SECONDS", 0.3)
    began = time.monotonic()
    start_removal()
    assert time.monotonic() - began < 10
    assert (tmp_path / "called").read_text() == "start --no-block backendai-homes.service\n"


def test_a_host_without_systemd_is_no_problem(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    start_removal()
