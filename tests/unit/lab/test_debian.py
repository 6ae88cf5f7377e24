"""Packages that labs and tests install on the machine: once, although several ask for them at the same time."""

from __future__ import annotations

import shutil
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.lab import debian
from tests.lab.command import LabError


@pytest.fixture(name="installed")
def installed_packages(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[list[str]]:
    """The installations, each a list of packages; one at a time, or it fails."""
    installed: list[list[str]] = []
    running = threading.Lock()

    def install(packages: list[str]) -> None:
        assert running.acquire(blocking=False), "two installations at once"
        time.sleep(0.1)
        installed.append(packages)
        running.release()

    def which(command: str) -> str | None:
        present = {"apt-get"} | {name for packages in installed for name in packages}
        return command if command in present else None

    monkeypatch.setattr(debian, "_install", install)
    monkeypatch.setattr(shutil, "which", which)
    monkeypatch.setattr(debian, "POLICY", tmp_path / "policy-rc.d")
    return installed


def test_a_package_that_several_need_at_once_is_installed_once(installed: list[list[str]]) -> None:
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(debian.require, ["haproxy", "cmake", "haproxy", "cmake"]))
    assert sorted(installed) == [["cmake"], ["haproxy"]]


def test_what_is_there_is_not_installed_again(installed: list[list[str]]) -> None:
    debian.require("haproxy")
    debian.require("haproxy")
    assert installed == [["haproxy"]]


def test_a_machine_without_apt_is_told_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda _command: None)
    with pytest.raises(LabError, match=r"^install cmake, haproxy: this machine has no apt-get$"):
        debian.require("haproxy", "cmake")
