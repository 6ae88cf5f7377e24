"""Tests for the limits of containers, read from containerd's files in /proc."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from ansible_collections.backendai.cluster.plugins.module_utils._host.limits import (
    SOCKETS,
    effective_limits,
    read_limits,
)

ALL, WITHOUT = "000001ffffffffff", "000001fffeffffff"
HOST, INNER = "         0          0 4294967295\n", "         0     100000      65536\n"
# Engines would give what a container does not name, such as a number of processes for all sessions of one user id.
OF_HOST = {"sigpending": 94000, "msgqueue": 819200}
LOWER = {"nproc": 30000, **OF_HOST}
DESIRED_LIMITS = {"nofile": 1048576, "memlock": -1, "core": 0, "nproc": -1, **OF_HOST}
OWN, SYSTEM = SOCKETS
Listen = Callable[[str], None]


def limits(nofile: str, memlock: str) -> str:
    return (
        "Limit                     Soft Limit           Hard Limit           Units     \n"
        f"Max open files            1024                 {nofile:<20} files     \n"
        "Max core file size        0                    unlimited            bytes     \n"
        f"Max locked memory         65536                {memlock:<20} bytes     \n"
        "Max processes             15000                30000                processes \n"
        "Max pending signals       94000                94000                signals   \n"
        "Max msgqueue size         819200               819200               bytes     \n"
    )


def status(bounding: str) -> str:
    return f"Name:\tcontainerd\nCapEff:\t{ALL}\nCapBnd:\t{bounding}\nNoNewPrivs:\t0\n"


@pytest.mark.parametrize(
    ("nofile", "memlock", "expected"),
    [
        ("20000", "8388608", {"nofile": 20000, "memlock": 8388608, "core": 0, **LOWER}),
        ("1073741816", "unlimited", {**DESIRED_LIMITS, **LOWER}),
        ("unlimited", "0", {"nofile": 1048576, "memlock": 0, "core": 0, **LOWER}),
    ],
)
def test_engine_that_cannot_raise_limits_passes_on_its_own(nofile: str, memlock: str, expected: dict[str, int]) -> None:
    assert effective_limits(limits(nofile, memlock), status(WITHOUT), HOST, 1 << 30) == expected


@pytest.mark.parametrize(
    ("nr_open", "nofile"), [(1 << 30, 1048576), (524288, 524288)], ids=["as desired", "no more than the kernel allows"]
)
def test_engine_that_can_raise_limits_sets_the_desired_ones(nr_open: int, nofile: int) -> None:
    assert effective_limits(limits("1024", "65536"), status(ALL), HOST, nr_open) == {**DESIRED_LIMITS, "nofile": nofile}


def test_limits_are_not_raised_in_a_user_namespace() -> None:
    assert effective_limits(limits("1024", "65536"), status(ALL), INNER, 1 << 30) == {
        "nofile": 1024,
        "memlock": 65536,
        "core": 0,
        **LOWER,
    }


@pytest.fixture
def listen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Listen]:
    """Return a function that makes this process listen as containerd, on a host in the current folder."""
    monkeypatch.chdir(tmp_path)  # The address of a socket has a hundred characters at most.
    Path("proc/sys/fs").mkdir(parents=True)
    Path("proc/sys/fs/nr_open").write_text("1048576\n")
    opened: list[socket.socket] = []

    def as_containerd(path: str) -> None:
        Path(path).parent.mkdir(parents=True)
        server = socket.socket(socket.AF_UNIX)
        server.bind(path)
        server.listen()
        opened.append(server)

    yield as_containerd
    for listener in opened:
        listener.close()


def process(memlock: str) -> None:
    """Write files of the listening process to /proc of the host."""
    folder = Path("proc") / str(os.getpid())
    folder.mkdir()
    for name, text in {"limits": limits("20000", memlock), "status": status(WITHOUT), "uid_map": HOST}.items():
        (folder / name).write_text(text)


@pytest.mark.parametrize("path", SOCKETS, ids=["dockerd's own", "the host's"])
def test_limits_are_those_of_the_process_on_the_containerd_socket(listen: Listen, path: str) -> None:
    listen(path)
    process("8388608")
    assert read_limits(Path()) == {"nofile": 20000, "memlock": 8388608, "core": 0, **LOWER}


def test_stale_containerd_socket_is_ignored(listen: Listen) -> None:
    listen(SYSTEM)
    process("8388608")
    Path(OWN).parent.mkdir(parents=True)
    with closing(socket.socket(socket.AF_UNIX)) as closed:
        closed.bind(OWN)
    assert read_limits(Path()) == {"nofile": 20000, "memlock": 8388608, "core": 0, **LOWER}


def test_without_containerd_the_limits_of_the_engine_apply(tmp_path: Path) -> None:
    assert read_limits(tmp_path) == {}
