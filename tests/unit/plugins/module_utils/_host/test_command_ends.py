"""How an agent learns that a command has ended: from files and pipes that the session's user may do anything to."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from ansible_collections.backendai.cluster.plugins.module_utils._host import command_ends
from ansible_collections.backendai.cluster.plugins.module_utils._host.command_ends import (
    await_ends,
    awaited,
    make_wake,
    read_exit_code,
)


@pytest.fixture
def session(tmp_path: Path) -> Path:
    """Return the folder of a session that has begun its command in main1 and sub1."""
    for hostname in ("main1", "sub1", "sub2"):
        (tmp_path / "session" / hostname).mkdir(parents=True)
        (tmp_path / "homes" / hostname / "own").mkdir(parents=True)
        make_wake(tmp_path / "session" / hostname)
    for hostname in ("main1", "sub1"):
        (tmp_path / "session" / hostname / "go").touch()
    return tmp_path / "session"


@pytest.fixture
def homes(session: Path) -> Path:
    return session.parent / "homes"


@pytest.fixture
def first(session: Path) -> dict[str, int]:
    """Return the pipes as first processes have them open, by hostname."""
    return {name: os.open(session / name / "wake", os.O_RDWR) for name in ("main1", "sub1")}


def say(homes: Path, hostname: str, code: str) -> None:
    (homes / hostname / "own" / "exit-code").write_text(code)


def within(seconds: float, action: Callable[[], object]) -> None:
    """Run a function that must have returned after so many seconds."""
    thread = threading.Thread(target=action, daemon=True)
    thread.start()
    thread.join(seconds)
    assert not thread.is_alive()


def test_the_pipe_of_a_container_is_for_the_group_of_its_folder_and_is_made_once(tmp_path: Path) -> None:
    tmp_path.chmod(0o2750)
    os.chown(tmp_path, 0, 2345)
    make_wake(tmp_path)
    before = (tmp_path / "wake").stat()
    assert (before.st_mode & 0o777, before.st_uid, before.st_gid) == (0o660, 0, 2345)
    make_wake(tmp_path)
    assert (tmp_path / "wake").stat().st_ino == before.st_ino


def test_an_end_that_is_said_is_noticed_at_once(session: Path, homes: Path, first: dict[str, int]) -> None:
    def end() -> None:
        say(homes, "sub1", "7\n")
        os.write(first["sub1"], b"\n")

    threading.Timer(0.3, end).start()
    began = time.monotonic()
    assert await_ends(session, homes) == ["sub1"]
    assert 0.2 < time.monotonic() - began < 0.8


@pytest.mark.usefixtures("first")
def test_an_end_before_the_wait_needs_no_word(session: Path, homes: Path) -> None:
    say(homes, "main1", "0\n")
    say(homes, "sub1", "3\n")
    say(homes, "sub2", "4\n")
    assert await_ends(session, homes) == ["main1", "sub1"]


def test_a_first_process_that_is_killed_has_ended(session: Path, homes: Path, first: dict[str, int]) -> None:
    threading.Timer(0.3, os.close, [first["main1"]]).start()
    began = time.monotonic()
    assert await_ends(session, homes) == ["main1"]
    assert time.monotonic() - began < 0.8


@pytest.mark.usefixtures("first")
def test_a_byte_that_a_user_took_away_delays_the_end_until_the_next_look(
    session: Path, homes: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command_ends, "POLL_SECONDS", 0.3)
    threading.Timer(0.2, say, [homes, "main1", "0\n"]).start()
    assert await_ends(session, homes) == ["main1"]


def test_what_is_said_without_an_end_is_read_seldom_and_hides_no_end(
    session: Path, homes: Path, first: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    reads: list[int] = []
    real = os.read

    def read(pipe: int, size: int) -> bytes:
        reads.append(size)
        return real(pipe, size)

    monkeypatch.setattr(os, "read", read)
    monkeypatch.setattr(command_ends, "PAUSE_SECONDS", 0.2)
    flood = subprocess.Popen(["sh", "-c", f"exec yes > {session}/main1/wake"])
    try:
        threading.Timer(1.0, say, [homes, "sub1", "0\n"]).start()
        cpu = time.process_time()
        assert await_ends(session, homes) == ["sub1"]
        assert time.process_time() - cpu < 0.2
        assert 4 <= len(reads) <= 20
        assert max(reads) <= 1 << 16
    finally:
        flood.kill()
        flood.wait()
    assert first


def test_nothing_is_waited_for_once_all_is_kept_or_the_session_is_gone(session: Path, homes: Path) -> None:
    for hostname in ("main1", "sub1"):
        (session / hostname / "kept").touch()
    assert await_ends(session, homes) == []
    assert (awaited(session.parent / "nothing"), await_ends(session.parent / "nothing", homes)) == ([], [])


@pytest.mark.usefixtures("first")
def test_a_session_that_is_removed_meanwhile_is_left(
    session: Path, homes: Path, first: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command_ends, "POLL_SECONDS", 5)
    threading.Timer(0.2, session.rename, [session.parent / "elsewhere"]).start()
    threading.Timer(0.3, os.write, [first["main1"], b"\n"]).start()
    within(3, lambda: await_ends(session, homes))


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("0\n", 0),
        ("143", 143),
        ("255\n", 255),
        ("256\n", None),
        ("-1\n", None),
        ("", None),
        ("7\n7\n", None),
        ("x", None),
    ],
)
def test_only_an_exit_code_is_one(tmp_path: Path, text: str, code: int | None) -> None:
    (tmp_path / "exit-code").write_text(text)
    assert read_exit_code(tmp_path) == code


def test_nothing_else_than_a_small_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "exit-code"
    (tmp_path / "secret").write_text("7\n")

    def judge() -> None:
        within(1, lambda: read_exit_code(tmp_path))
        assert read_exit_code(tmp_path) is None
        path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()

    assert read_exit_code(tmp_path) is None
    path.symlink_to(tmp_path / "secret")
    judge()
    os.mkfifo(path)
    judge()
    path.mkdir()
    judge()
    path.write_bytes(b"7" * (1 << 20))
    judge()
    path.write_bytes(b"\xff\0")
    judge()


def test_the_process_that_waits_imports_little(session: Path) -> None:
    """There is one for each session with a command."""
    program = "ansible_collections.backendai.cluster.plugins.module_utils._program"
    script = f"""
import sys
sys.path[:0] = {sys.path!r}
import {program}.main, {program}.output
assert {program}.output.main(["--state-path", {str(session)!r}, "--docker-host", "x", "--output", "none"]) == 0
print(*sorted(name for name in sys.modules if "module_utils._" in name and not name.endswith("__init__")))
"""
    done = subprocess.run([sys.executable, "-I", "-c", script], capture_output=True, text=True, check=True)
    rooms = {name.split("module_utils.")[1] for name in done.stdout.split()}
    assert not {name for name in rooms if name.startswith(("_docker", "_session", "_network", "_host.store"))}
