"""The launcher: installs a missing or damaged program, and returns its reply."""

from __future__ import annotations

import ast
import fcntl
import os
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.backendai.cluster.plugins.module_utils._program import launcher
from ansible_collections.backendai.cluster.plugins.plugin_utils import host_program
from tests.unit.program import ECHO, Host, archive_of, reply_of

ARCHIVE = archive_of()
PROGRAM = {launcher.SOURCE, launcher.PROGRAM, launcher.RELEASE}


def files_of(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


# ---- installation


def test_missing_program_is_requested_and_nothing_is_written(host: Host) -> None:
    assert host.ask(ARCHIVE, send=False) == {"missing": True}
    assert not host.home.exists()


def test_program_folder_is_named_by_digest_and_interpreter(host: Host) -> None:
    first = host.ask(ARCHIVE, request={"phase": "survey"})
    again = host.ask(ARCHIVE, send=False, request={"phase": "survey"})
    assert (first.pop("installed"), again.pop("installed")) == (True, False)
    assert first == again
    assert first["result"]["request"] == {"phase": "survey"}
    assert first["result"]["ran"].startswith(f"{host.folder(ARCHIVE)}/{launcher.PROGRAM}/")
    assert host.names() == {host.folder(ARCHIVE).name}
    assert files_of(host.folder(ARCHIVE)) == PROGRAM


def test_program_is_world_readable_with_any_umask(host: Host) -> None:
    host.home.mkdir(parents=True)
    host.before = "umask 077"
    host.ask(ARCHIVE)
    folder = host.folder(ARCHIVE)
    assert {stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()} == {0o644}
    assert stat.S_IMODE(folder.stat().st_mode) == 0o755


def test_programs_with_other_digests_coexist(host: Host) -> None:
    other = archive_of(f"{ECHO}\n# changed\n")
    host.ask(ARCHIVE)
    host.ask(other)
    assert host.names() == {host.folder(ARCHIVE).name, host.folder(other).name}
    assert host.folder(other).name in host.ask(other, send=False)["result"]["ran"]


def cut(program: Path) -> None:
    program.write_bytes(program.read_bytes()[:-10])


def alter(program: Path) -> None:
    content = bytearray(program.read_bytes())
    content[len(content) // 2] ^= 1
    program.write_bytes(content)


def empty(program: Path) -> None:
    program.write_bytes(b"")


def bare(program: Path) -> None:
    for path in program.parent.iterdir():
        path.unlink()


@pytest.mark.parametrize("damage", [cut, alter, empty, Path.unlink, bare])
def test_damaged_program_is_replaced_by_the_same_task(host: Host, damage: Callable[[Path], None]) -> None:
    host.ask(ARCHIVE)
    damage(host.folder(ARCHIVE) / launcher.PROGRAM)
    assert host.ask(ARCHIVE, send=False) == {"missing": True}
    assert host.ask(ARCHIVE)["installed"] is True
    assert host.ask(ARCHIVE, send=False)["installed"] is False
    assert (host.names(), files_of(host.folder(ARCHIVE))) == ({host.folder(ARCHIVE).name}, PROGRAM)


def test_file_at_the_program_path_is_replaced(host: Host) -> None:
    host.home.mkdir(parents=True)
    host.folder(ARCHIVE).write_text("x")
    assert host.ask(ARCHIVE)["installed"] is True


@pytest.mark.parametrize(
    "sent", [ARCHIVE[:-1], ARCHIVE.replace(b"def reply_to", b"def reply_to_")], ids=["cut short", "changed"]
)
def test_corrupted_archive_is_refused(host: Host, sent: bytes) -> None:
    assert host.ask(ARCHIVE, sent=sent) == {
        "failed": f"the program of this collection cannot be installed in {host.home}: it was corrupted in transfer."
    }
    assert not host.home.exists()


# ---- concurrent tasks


@pytest.mark.parametrize("damaged", [False, True], ids=["missing", "damaged"])
def test_concurrent_installations_succeed(host: Host, damaged: bool) -> None:
    if damaged:
        host.ask(ARCHIVE)
        cut(host.folder(ARCHIVE) / launcher.PROGRAM)
    tasks = [host.begin(ARCHIVE, request={"task": number}) for number in range(8)]
    replies = [reply_of(task) for task in tasks]
    assert [reply["result"]["request"]["task"] for reply in replies] == list(range(8))
    assert (host.names(), files_of(host.folder(ARCHIVE))) == ({host.folder(ARCHIVE).name}, PROGRAM)


def test_task_waits_for_another_one_that_installs(host: Host) -> None:
    host.home.mkdir(parents=True)
    handle = os.open(host.home, os.O_RDONLY)
    fcntl.flock(handle, fcntl.LOCK_EX)
    task = host.begin(ARCHIVE)
    time.sleep(0.5)
    assert (host.names(), task.poll()) == (set(), None)
    os.close(handle)
    assert reply_of(task)["installed"] is True


def test_task_does_not_wait_forever_for_another_one(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launcher, "LOCK_SECONDS", 0.05)
    host.home.mkdir(parents=True)
    held, handle = (os.open(host.home, os.O_RDONLY) for _lock in range(2))
    fcntl.flock(held, fcntl.LOCK_EX)
    with pytest.raises(OSError, match=r"^another process has held the lock of \S+ for 0\.05 seconds$"):
        launcher.acquire(handle, str(host.home))
    os.close(held)
    launcher.acquire(handle, str(host.home))
    os.close(handle)


def test_running_an_installed_program_takes_no_lock(host: Host) -> None:
    host.ask(ARCHIVE)
    handle = os.open(host.home, os.O_RDONLY)
    fcntl.flock(handle, fcntl.LOCK_EX)
    assert host.ask(ARCHIVE, send=False)["installed"] is False
    os.close(handle)


# ---- failed installation


def of_another_python(host: Host) -> None:
    host.text = host.text.replace(b"OLDEST_PYTHON = (3, 9)", b"OLDEST_PYTHON = (9, 9)")


def home_is_a_file(host: Host) -> None:
    host.home.parent.mkdir()
    host.home.write_text("x")


def parent_is_a_file(host: Host) -> None:
    host.home.parent.write_text("x")


def disk_is_full(host: Host) -> None:
    # A full disk cannot be simulated here.
    host.before = "ulimit -f 0"


VERSION = ".".join(map(str, sys.version_info[:2]))


@pytest.mark.parametrize("provision", [False, True])
@pytest.mark.parametrize(
    ("trouble", "reason"),
    [
        (of_another_python, f"{sys.executable} is Python {VERSION}, and 9.9 or later is needed."),
        (home_is_a_file, "[Errno 17] File exists: "),
        (parent_is_a_file, "[Errno 20] Not a directory: "),
        (disk_is_full, "[Errno 27] File too large"),
    ],
)
def test_failed_installation_is_one_sentence(
    host: Host, trouble: Callable[[Host], None], reason: str, provision: bool
) -> None:
    trouble(host)
    sentence = host.ask(ARCHIVE, provision=provision)["failed"]
    assert sentence.startswith(f"the program of this collection cannot be installed in {host.home}: {reason}")
    assert (sentence[-1], sentence.count("\n")) == (".", 0)
    places = (host.cwd, host.home, host.home.parent)
    assert [path for path in host.cwd.parent.rglob("*") if path not in places] == []


@pytest.mark.parametrize("trouble", [of_another_python, disk_is_full])
def test_failed_check_mode_run_is_one_sentence(host: Host, trouble: Callable[[Host], None]) -> None:
    trouble(host)
    sentence = host.ask(ARCHIVE, check=True)["failed"]
    assert sentence.startswith("the program of this collection cannot be installed in ")
    assert (sentence[-1], sentence.count("\n")) == (".", 0)


def test_installed_program_runs_on_a_read_only_disk(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    host.ask(ARCHIVE)

    def refuse(*_path: Any, **_how: Any) -> None:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(os, "utime", refuse)
    launcher.mark_used(str(host.folder(ARCHIVE)))
    assert launcher.program_for_unit(str(host.folder(ARCHIVE) / launcher.SOURCE)).endswith(f"/{launcher.PROGRAM}")


# ---- the reply


@pytest.mark.parametrize("printed", ["noise", "noise\n", f"{launcher.MARK}{{}}x\nnoise"])
def test_reply_is_on_its_own_line(host: Host, printed: str) -> None:
    process = host.begin(ARCHIVE, request={"print": printed})
    output, _errors = process.communicate(timeout=60)
    assert output.decode().startswith(f"{printed}\n{launcher.MARK}" if printed[-1] != "\n" else printed)
    assert output.decode().splitlines()[-1].startswith(f'{launcher.MARK}{{"installed": true, "result": ')


def test_hanging_thread_does_not_block_the_exit(host: Host) -> None:
    assert host.ask(ARCHIVE, request={"hang": True})["installed"] is True


@pytest.mark.parametrize("name", ["json", "hashlib", "zipfile"])
def test_nothing_is_imported_from_the_working_directory(host: Host, name: str) -> None:
    (host.cwd / f"{name}.py").write_text("raise SystemExit('imported')")
    assert str(host.cwd) not in host.ask(ARCHIVE)["result"]["path"]


def test_too_old_python_is_refused_with_a_reason() -> None:
    # 3.7 is the first version that supports ``from __future__ import annotations``.
    ast.parse(host_program.launcher(), feature_version=(3, 7))


def test_the_real_program_is_compiled_and_runs_without_ansible(host: Host) -> None:
    archive = host_program.archive()
    host.ask(archive, request=None)
    script = f"import sys; sys.path.insert(0, sys.argv[1]); import {launcher.MAIN} as main; print(main.__file__)"
    command = [sys.executable, "-I", "-S", "-c", script, str(host.folder(archive) / launcher.PROGRAM)]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    assert result.stdout.endswith("/_program/main.pyc\n")


# ---- programs of the host

SHOWS_PATH = "import os\ndef reply_to(request):\n return {'result': os.environ['PATH']}\n"


@pytest.mark.parametrize(
    ("given", "used"),
    [
        (
            "PATH=/opt/site/bin:/usr/bin:/bin",
            "/opt/site/bin:/usr/bin:/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/sbin",
        ),
        ("-u PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"),
    ],
    ids=["without sbin", "without any"],
)
def test_programs_of_root_are_found_whatever_path_the_login_has(host: Host, given: str, used: str) -> None:
    host.before = f'set -- env {given} "$@"'
    assert host.ask(archive_of(SHOWS_PATH), request={"phase": "survey"})["result"] == used
