"""The rollback timer: a systemd timer, or a background process."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.backendai.cluster.plugins.module_utils._firewall import trial
from ansible_collections.backendai.cluster.plugins.module_utils._firewall.trial import schedule_rollback
from ansible_collections.backendai.cluster.plugins.module_utils._host.store import NotProvisionedError

NONCE = "0123456789abcdef" * 2


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the installed program of a host with systemd."""
    path = tmp_path / "restore.pyz"
    path.touch()
    monkeypatch.setattr(trial, "PROGRAM", path)
    (tmp_path / "systemd").mkdir()
    monkeypatch.setattr(trial, "SYSTEMD", tmp_path / "systemd")
    return path


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Return the commands that were run and succeeded."""
    commands: list[list[str]] = []

    def run(command: list[str], *, check: bool, capture_output: bool, text: bool) -> None:
        assert check, "a timer that was not started is a failure"
        assert (capture_output, text) == (True, True), "its output is part of the error"
        commands.append(command)

    monkeypatch.setattr(subprocess, "run", run)
    return commands


def detached(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Callable[[], None], str]]:
    """Return the actions of background processes, each with the file that it keeps open."""
    processes: list[tuple[Callable[[], None], str]] = []
    monkeypatch.setattr(
        trial, "daemonize", lambda act, keep: processes.append((act, os.readlink(f"/proc/self/fd/{keep}")))
    )
    return processes


def command(program: Path) -> list[str]:
    """Return the command that rolls back the trial."""
    arguments = ["--state-path", "/state", "--docker-host", "unix:///engine.sock", "--withdraw", NONCE]
    return [sys.executable, str(program), *arguments]


def start() -> None:
    schedule_rollback("/state", "unix:///engine.sock", NONCE, 60)


def test_a_systemd_timer_rolls_back_a_trial(
    program: Path, ran: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(trial, "daemonize")
    start()
    unit = ["--unit=backendai-firewall-01234567", "--on-active=60", "--timer-property=AccuracySec=100ms"]
    assert ran == [["systemd-run", "--quiet", *unit, *command(program)]]


def test_errors_of_systemd_are_raised(program: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    refused = subprocess.CalledProcessError(1, ["systemd-run"], stderr="Failed to start transient timer unit")

    def run(*_command: Any, **_how: Any) -> None:
        raise refused

    monkeypatch.setattr(subprocess, "run", run)
    with pytest.raises(subprocess.CalledProcessError) as raised:
        start()
    assert raised.value is refused
    assert program.exists()


def test_without_systemd_a_background_process_rolls_back(
    program: Path, ran: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    (program.parent / "systemd").rmdir()
    processes = detached(monkeypatch)
    actions: list[object] = []
    monkeypatch.setattr(trial.time, "sleep", actions.append)
    monkeypatch.setattr(trial.os, "execv", lambda path, argv: actions.append((path, argv)))
    start()
    ((act, _kept),) = processes
    assert (ran, actions) == ([], [])
    act()
    assert actions == [60, (sys.executable, command(program))]


def test_the_background_process_inherits_no_files(program: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (program.parent / "systemd").rmdir()
    processes = detached(monkeypatch)
    before = os.listdir("/proc/self/fd")
    start()
    assert [kept for _act, kept in processes] == [os.devnull]
    assert len(os.listdir("/proc/self/fd")) == len(before)


@pytest.mark.parametrize("with_systemd", [True, False])
def test_without_the_program_no_rollback_is_scheduled(
    program: Path, ran: list[list[str]], monkeypatch: pytest.MonkeyPatch, with_systemd: bool
) -> None:
    if not with_systemd:
        (program.parent / "systemd").rmdir()
    processes = detached(monkeypatch)
    program.unlink()
    with pytest.raises(NotProvisionedError) as refused:
        start()
    assert str(refused.value) == f"{program} is missing: apply the role backendai.cluster.firewall to this host."
    assert (ran, processes) == ([], [])
