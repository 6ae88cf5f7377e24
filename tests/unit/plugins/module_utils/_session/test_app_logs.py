"""The logs of apps are read on their agent: what a user puts in their place harms nobody."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from io import FileIO
from pathlib import Path

import pytest

from ansible_collections.backendai.cluster.plugins.module_utils._docker import logs
from ansible_collections.backendai.cluster.plugins.module_utils._docker.logs import Allowance, LogReadError
from ansible_collections.backendai.cluster.plugins.module_utils._host.store import Store
from ansible_collections.backendai.cluster.plugins.module_utils._session import app_logs
from ansible_collections.backendai.cluster.plugins.module_utils._session.app_logs import AppLogs, TooLargeError
from tests.unit.builders import SESSION_ID
from tests.unit.plugins.module_utils._session.test_logs import write_app_logs

PATH = "/var/log/backendai/jupyter.log"


@pytest.fixture
def folder(store: Store) -> Path:
    """Return the folder of the logs."""
    return write_app_logs(store)


@pytest.fixture
def of(store: Store, folder: Path) -> AppLogs:
    assert folder.is_dir()
    return AppLogs(store, SESSION_ID)


def content(of: AppLogs, size: int = 1 << 20) -> bytes | None:
    """Return the whole log; ``None`` if there is none."""
    chunks: list[bytes] = []
    return b"".join(chunks) if of.read("jupyter", chunks.append, Allowance(size, 60.0)) else None


def test_a_log_is_read_whole_or_its_last_lines(of: AppLogs, folder: Path) -> None:
    text = b"".join(b"line %d\n" % number for number in range(50_000))
    (folder / "jupyter.log").write_bytes(text)
    assert of.tail("jupyter", 2) == ["line 49998", "line 49999"]
    assert content(of) == text
    (folder / "jupyter.log").write_bytes(b"")
    assert (of.tail("jupyter", 2), content(of)) == ([], b"")


@pytest.mark.parametrize("missing", ["log", "folder", "session"])
def test_a_missing_log_is_none(of: AppLogs, folder: Path, missing: str) -> None:
    if missing != "log":
        folder.rmdir()
    if missing == "session":
        folder.parent.rmdir()
    assert (of.tail("jupyter", 2), content(of)) == (None, None)


def test_of_a_long_log_the_end_is_shown_and_marked(of: AppLogs, folder: Path) -> None:
    (folder / "jupyter.log").write_bytes((b"x" * 10 + b"\n") * 3)
    assert of.tail("jupyter", 9, size=15) == ["…xxx", "x" * 10]
    assert of.tail("jupyter", 9, size=33) == ["x" * 10] * 3


def link_to_a_file(path: Path) -> None:
    (path.parent.parent / "secret").write_text("secret")
    path.symlink_to("../secret")


def listen(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(os.path.relpath(path))


ODD: list[Callable[[Path], None]] = [
    os.mkfifo,
    link_to_a_file,
    lambda path: path.symlink_to("nothing"),
    Path.mkdir,
    listen,
]


@pytest.mark.parametrize("make", ODD, ids=["pipe", "link", "broken link", "folder", "socket"])
def test_only_regular_files_are_read_and_nothing_else_is_waited_for(
    of: AppLogs, folder: Path, make: Callable[[Path], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    make(folder / "jupyter.log")
    began = time.monotonic()
    for read in (lambda: of.tail("jupyter", 2), lambda: content(of)):
        with pytest.raises(LogReadError) as raised:
            read()
        assert str(raised.value) == f"{PATH} is not a regular file"
    assert time.monotonic() - began < 1


def test_a_link_in_place_of_the_folder_is_not_followed(of: AppLogs, folder: Path) -> None:
    folder.rmdir()
    (folder.parent / "other").mkdir()
    (folder.parent / "other/jupyter.log").write_bytes(b"secret")
    folder.symlink_to("other")
    with pytest.raises(LogReadError, match=f"^{PATH} cannot be read: Not a directory$"):
        of.tail("jupyter", 2)


def test_a_sparse_log_of_terabytes_is_read_from_its_end(of: AppLogs, folder: Path) -> None:
    log = folder / "jupyter.log"
    log.touch()
    os.truncate(log, 1 << 42)
    with log.open("ab") as file:
        file.write(b"\nlast\n")
    began = time.monotonic()
    assert of.tail("jupyter", 1) == ["last"]
    assert time.monotonic() - began < 1


def test_of_a_log_above_what_may_be_read_nothing_is_read(of: AppLogs, folder: Path) -> None:
    (folder / "jupyter.log").write_bytes(b"x" * 900_000)
    allowance = Allowance(500_000, 60.0)
    with pytest.raises(TooLargeError, match=rf"^{PATH} has 900000 bytes, more than the limit of 500000$") as refused:
        of.read("jupyter", lambda _chunk: None, allowance)
    assert (refused.value.size, allowance.read) == (900_000, 0)


def test_a_log_that_grows_is_read_as_far_as_it_was_there(of: AppLogs, folder: Path) -> None:
    log, chunks = folder / "jupyter.log", []
    log.write_bytes(b"x" * 100_000)

    def add(chunk: bytes) -> None:
        chunks.append(chunk)
        with log.open("ab") as file:
            file.write(chunk)

    assert of.read("jupyter", add, Allowance(1 << 20, 60.0))
    assert sum(map(len, chunks)) == 100_000


def test_a_log_that_is_shortened_meanwhile_is_no_error(
    of: AppLogs, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = folder / "jupyter.log"
    log.write_bytes(b"x" * 5000)

    def shorten(file: FileIO) -> int:
        size = os.fstat(file.fileno()).st_size
        os.truncate(log, 0)
        return size

    monkeypatch.setattr(app_logs, "_size", shorten)
    assert of.tail("jupyter", 9, size=100) == []


def test_a_log_that_is_read_slowly_is_read_for_a_limited_time(
    of: AppLogs, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "jupyter.log").write_bytes(b"one\n")
    monkeypatch.setattr(logs, "READ_SECONDS", 0)
    with pytest.raises(LogReadError, match=rf"^{PATH} cannot be read: not all of it was read within 0 seconds$"):
        of.tail("jupyter", 2)


LEASE = """
import fcntl, signal, sys, time
signal.signal(signal.SIGIO, signal.SIG_IGN)
file = open(sys.argv[1])
fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_WRLCK)
print(1, flush=True)
time.sleep(60)
"""


@pytest.fixture
def leased(folder: Path) -> Iterator[None]:
    """A process of somebody who has a lease on the log, and does not give it up."""
    (folder / "jupyter.log").write_bytes(b"one\n")
    command = [sys.executable, "-c", LEASE, str(folder / "jupyter.log")]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout
        assert process.stdout.readline() == b"1\n"
        yield
        process.kill()


@pytest.mark.usefixtures("leased")
def test_nobody_waits_for_a_lease_on_a_log(of: AppLogs) -> None:
    began = time.monotonic()
    with pytest.raises(LogReadError, match=f"^{PATH} cannot be read: Resource temporarily unavailable$"):
        of.tail("jupyter", 2)
    assert time.monotonic() - began < 5
