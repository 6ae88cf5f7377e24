"""Health checks: which run, what they may do, and what is made of their output. Real programs."""

from __future__ import annotations

import os
import stat
import time
from pathlib import Path

import pytest

from ansible_collections.backendai.cluster.plugins.module_utils._host import health
from ansible_collections.backendai.cluster.plugins.module_utils._host.health import (
    find_checks,
    is_health_lost,
    read_health,
    run_checks,
    write_health,
)
from ansible_collections.backendai.cluster.plugins.module_utils._host.store import Store
from ansible_collections.backendai.cluster.plugins.module_utils._model.health import Health, HealthProblem
from tests.integration.waiting import wait_until
from tests.unit.silent_mount import fill, mount_memory, own_mounts, silent_mount

GPU = "GPU-5f0c6a52-3c0e-4f5e-9d0a-0f3c1d2e4b6a"
SICK = Health(1.0, (HealthProblem("disk", "full", (), 1.0),))


@pytest.fixture(autouse=True)
def verdict(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the file of the health that counts."""
    path = tmp_path / "run" / "health.json"
    monkeypatch.setattr(health, "VERDICT", path)
    return path


def check(folder: Path, body: str, name: str = "disk", mode: int = 0o755) -> Path:
    """Write a check, a shell script."""
    path = folder / name
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(mode)
    return path


def found(folder: Path, body: str) -> list[HealthProblem]:
    return run_checks([check(folder, body)], {})


@pytest.mark.parametrize(
    ("body", "problems"),
    [
        ("echo fine", []),
        ("echo full; exit 1", [HealthProblem("disk", "full")]),
        ("echo 1>&2 full; echo more; exit 2", [HealthProblem("disk", "full")]),
        ("exit 3", [HealthProblem("disk", "its exit code is 3")]),
        (f"echo device {GPU}: ECC; exit 1", [HealthProblem("disk", "ECC", (GPU,))]),
        (
            f"echo device {GPU}: ECC; echo the driver hangs; echo device /dev/fuse:; exit 1",
            [
                HealthProblem("disk", "the driver hangs"),
                HealthProblem("disk", "ECC", (GPU,)),
                HealthProblem("disk", "it is not healthy", ("/dev/fuse",)),
            ],
        ),
        (f"echo device {GPU}: ECC", []),
        (r"printf 'a\033[2Jb\n'; exit 1", [HealthProblem("disk", "a\\x1b[2Jb")]),
    ],
)
def test_a_check_that_fails_says_what_is_wrong_with_what(
    tmp_path: Path, body: str, problems: list[HealthProblem]
) -> None:
    assert found(tmp_path, body) == problems


def test_of_a_megabyte_only_the_beginning_is_read(tmp_path: Path) -> None:
    (problem,) = found(tmp_path, "head -c 1000000 /dev/zero | tr '\\0' x; exit 1")
    assert problem.reason == "x" * health.MAX_REASON


@pytest.mark.parametrize("body", ["sleep 60", "yes", "sleep 60 & exec sleep 60", "sleep 60 &"])
def test_a_check_that_does_not_end_is_killed_with_what_it_has_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: str
) -> None:
    monkeypatch.setattr(health, "CHECK_SECONDS", 0.5)
    mark = tmp_path / "pids"
    began = time.monotonic()
    problems = found(tmp_path, f"echo $$ > {mark}; {body}")
    assert problems == [HealthProblem("disk", "the check took more than 0.5 seconds")]
    assert time.monotonic() - began < 10
    session = int(mark.read_text())
    # The kernel ends them when it next runs them.
    wait_until(lambda: session not in {_session_of(int(pid)) for pid in filter(str.isdigit, os.listdir("/proc"))}, 10)


def test_a_check_that_hangs_in_the_kernel_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "CHECK_SECONDS", 0.5)
    began, starts = time.monotonic(), tmp_path / "starts"
    body = f"echo one more >> {starts}; exec ls {tmp_path}/silent"
    with own_mounts(), silent_mount(tmp_path / "silent"):
        problems = [found(tmp_path, body) for _look in range(3)]
        # As long as it is there, no other one is started.
        assert starts.read_text() == "one more\n"
    assert problems == [[HealthProblem("disk", "the check took more than 0.5 seconds")]] * 3
    assert time.monotonic() - began < 10
    wait_until(lambda: found(tmp_path, "exit 3") == [HealthProblem("disk", "its exit code is 3")], 10)


def _session_of(pid: int) -> int:
    try:
        state, _parent, _group, session = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[:4]
    except OSError:
        return 0
    return 0 if state == "Z" else int(session)


def test_a_program_that_cannot_run_is_a_problem(tmp_path: Path) -> None:
    path = tmp_path / "disk"
    path.write_bytes(b"\x7fELF")
    path.chmod(0o755)
    assert run_checks([path], {}) == [HealthProblem("disk", "it cannot be run: Exec format error")]


def test_a_check_gets_no_environment_but_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKEN", "secret")
    path = check(tmp_path, 'echo "$TOKEN,$STATE"; exit 1')
    assert run_checks([path], {"STATE": "/srv"}) == [HealthProblem("disk", ",/srv")]


def test_checks_run_by_name_and_backups_of_editors_do_not(tmp_path: Path) -> None:
    wanted = [check(tmp_path, "", name) for name in ("clock", "disk")]
    check(tmp_path, "", "disk.bak")
    check(tmp_path, "", "memory", 0o644)
    assert find_checks(tmp_path) == (wanted, [])
    assert find_checks(tmp_path / "absent") == ([], [])


@pytest.mark.parametrize("mode", [0o775, 0o757])
def test_a_check_that_others_can_write_is_refused(tmp_path: Path, mode: int) -> None:
    path = check(tmp_path, "", mode=mode)
    assert find_checks(tmp_path) == (
        [],
        [f"the health check {path} does not run: {path} is writable by others than root."],
    )


def test_checks_in_a_folder_that_others_can_write_are_refused(tmp_path: Path) -> None:
    path = check(tmp_path, "")
    tmp_path.chmod(0o777)
    assert find_checks(tmp_path) == (
        [],
        [f"the health check {path} does not run: {tmp_path} is writable by others than root."],
    )


def test_a_check_of_another_owner_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = check(tmp_path, "")
    monkeypatch.setattr(health.os, "geteuid", lambda: 12345)
    assert find_checks(tmp_path) == (
        [],
        [f"the health check {path} does not run: {path} does not belong to root."],
    )


def test_health_is_stored_and_a_damaged_file_is_written_again(tmp_path: Path, verdict: Path) -> None:
    store = Store(str(tmp_path))
    assert (read_health(store), is_health_lost()) == (Health(), False)
    for _time in range(2):
        assert write_health(store, SICK) == []
        assert (read_health(store), is_health_lost()) == (SICK, False)
        for path in (verdict, store.health_file):
            assert [stat.S_IMODE(at.stat().st_mode) for at in (path.parent, path)] == [0o700, 0o600]
            path.write_text("{")
        assert read_health(store) == Health()


def test_what_was_found_before_a_boot_counts_until_the_next_look(tmp_path: Path, verdict: Path) -> None:
    store = Store(str(tmp_path))
    write_health(store, SICK)
    verdict.unlink()
    assert (read_health(store), is_health_lost()) == (SICK, False)


def test_a_state_that_cannot_be_written_hides_no_problem(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    write_health(store, Health(0.5))
    store.health_file.unlink()
    store.health_file.mkdir()
    assert write_health(store, SICK) == [f"{store.health_file} cannot be written: Is a directory."]
    assert (read_health(store), is_health_lost()) == (SICK, False)


def test_a_look_that_cannot_be_stored_ends_what_the_one_before_has_found(tmp_path: Path, verdict: Path) -> None:
    store = Store(str(tmp_path / "state"))
    with own_mounts():
        mount_memory(store.root, size="64k")
        mount_memory(verdict.parent, size="64k")
        write_health(store, Health(0.5))
        full = [fill(folder) for folder in (store.root, verdict.parent)]
        assert write_health(store, SICK) == [
            f"{path} cannot be written: No space left on device." for path in (verdict, store.health_file)
        ]
        assert is_health_lost()
        for path in full:
            path.unlink()
        assert write_health(store, SICK) == []
        assert (read_health(store), is_health_lost()) == (SICK, False)
