"""Tests for detached processes."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable
from pathlib import Path

from ansible_collections.backendai.cluster.plugins.module_utils._host.processes import daemonize
from tests.integration.waiting import wait_until


def run_daemonized(tmp_path: Path, act: Callable[[], str]) -> str:
    """Run a function in a detached process, which holds a lock until it has finished, and return the result."""
    lock, output = tmp_path / "lock", tmp_path / "output"
    handle = os.open(lock, os.O_RDWR | os.O_CREAT)
    fcntl.flock(handle, fcntl.LOCK_EX)

    def write_output() -> None:
        output.write_text(act())

    daemonize(write_output, handle)
    os.close(handle)
    # Wait until the detached process releases its lock.
    lock_file = os.open(lock, os.O_RDWR)
    fcntl.flock(lock_file, fcntl.LOCK_EX)
    os.close(lock_file)
    return output.read_text()


def test_daemon_is_in_a_new_session_and_not_its_leader(tmp_path: Path) -> None:
    session, leader, pid = run_daemonized(tmp_path, lambda: f"{os.getsid(0)} {os.getpgrp()} {os.getpid()}").split()
    assert session == leader
    assert session not in (pid, str(os.getsid(0)))


def test_daemon_keeps_only_the_given_descriptor_open(tmp_path: Path) -> None:
    pipe, end = os.pipe()
    descriptors = run_daemonized(
        tmp_path, lambda: "\n".join(os.readlink(f"/proc/self/fd/{name}") for name in _descriptors())
    )
    os.close(end)
    os.close(pipe)
    assert descriptors.splitlines() == [*[os.devnull] * 3, str(tmp_path / "lock")]


def _descriptors() -> list[str]:
    """Return the open descriptors, without that of the listing itself."""
    return sorted((name for name in os.listdir("/proc/self/fd") if os.path.exists(f"/proc/self/fd/{name}")), key=int)


def test_daemon_runs_in_the_root_folder(tmp_path: Path) -> None:
    assert run_daemonized(tmp_path, os.getcwd) == "/"


def test_caller_does_not_wait_for_the_daemon(tmp_path: Path) -> None:
    handle = os.open(tmp_path / "lock", os.O_RDWR | os.O_CREAT)

    def wait() -> None:
        while not (tmp_path / "enough").exists():
            time.sleep(0.01)
        (tmp_path / "ended").touch()

    daemonize(wait, handle)
    os.close(handle)
    assert not (tmp_path / "ended").exists()
    (tmp_path / "enough").touch()
    wait_until((tmp_path / "ended").exists, 60, 0.01)


def test_errors_end_the_daemon_and_not_the_caller(tmp_path: Path) -> None:
    handle = os.open(tmp_path / "lock", os.O_RDWR | os.O_CREAT)
    fcntl.flock(handle, fcntl.LOCK_EX)

    def fail() -> None:
        raise ValueError("not here")

    daemonize(fail, handle)
    os.close(handle)
    lock_file = os.open(tmp_path / "lock", os.O_RDWR)
    fcntl.flock(lock_file, fcntl.LOCK_EX)
    os.close(lock_file)
