"""Packages that labs and tests install on the machine: once, although several ask for them at the same time."""

from __future__ import annotations

import contextlib
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


@pytest.mark.parametrize(
    "words",
    [
        "Err:1 http://packages.example/debian bookworm/main\n  Could not resolve 'packages.example'",
        "E: Failed to fetch …  Temporary failure resolving 'packages.example'",
        "E: Failed to fetch …  Could not connect to packages.example:80 (192.0.2.1), connection timed out",
        "E: Failed to fetch …  Unable to connect to packages.example:https:",
        "E: Failed to fetch …  Cannot initiate the connection to packages.example:80 (2001:db8::1). - connect (101)",
    ],
)
def test_a_mirror_that_is_not_reached_is_named_at_once(monkeypatch: pytest.MonkeyPatch, words: str) -> None:
    commands: list[str] = []

    def fail(*argv: str, **_options: object) -> str:
        commands.append(argv[0])
        raise LabError(f"'apt-get install' failed (100): {words}")

    monkeypatch.setattr(debian, "output", fail)
    monkeypatch.setattr(debian, "_no_service_starts", contextlib.nullcontext)
    expected = r"^packages cannot be downloaded from packages\.example: this machine does not reach it$"
    with pytest.raises(LabError, match=expected):
        debian._install(["haproxy"])
    assert commands == ["apt-get"]


def test_outdated_package_lists_are_renewed(monkeypatch: pytest.MonkeyPatch) -> None:
    commands: list[str] = []

    def run(*argv: str, **_options: object) -> str:
        command = next(word for word in argv if word in {"install", "update"})
        commands.append(f"{command}{' --download-only' if '--download-only' in argv else ''}")
        if "update" not in commands:
            raise LabError("'apt-get install' failed (100): E: Failed to fetch …  404  Not Found")
        return ""

    monkeypatch.setattr(debian, "output", run)
    monkeypatch.setattr(debian, "_no_service_starts", contextlib.nullcontext)
    debian._install(["haproxy-none"])
    assert commands == ["install --download-only", "update", "install --download-only", "install"]


def test_images_need_a_mirror_that_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAB_DEBIAN_MIRROR", "file:///nowhere/debian/")
    debian.mirror.cache_clear()
    expected = r"^the Debian packages .* cannot be downloaded from file:///nowhere/debian/dists/bookworm/InRelease: "
    with pytest.raises(LabError, match=expected):
        debian.check_mirror("bookworm")
    debian.mirror.cache_clear()
