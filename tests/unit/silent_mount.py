"""File systems in a mount namespace of the test's own, and one that never answers."""

from __future__ import annotations

import contextlib
import ctypes
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.integration.programs import source
from tests.integration.waiting import wait_until

CLONE_NEWNS, MS_REC, MS_PRIVATE, MNT_DETACH = 0x20000, 0x4000, 0x40000, 2
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_REMOUNT, MS_BIND = 1, 2, 4, 32, 4096

_LIBC = ctypes.CDLL(None, use_errno=True)


def _call(name: str, *arguments: object) -> None:
    if getattr(_LIBC, name)(*arguments):
        raise OSError(ctypes.get_errno(), f"{name}: {os.strerror(ctypes.get_errno())}")


@contextlib.contextmanager
def own_mounts() -> Iterator[None]:
    """Give this thread, and the processes that it starts, a mount namespace of their own."""
    before, folder = os.open("/proc/thread-self/ns/mnt", os.O_RDONLY), Path.cwd()
    _call("unshare", CLONE_NEWNS)
    try:
        _call("mount", b"none", b"/", None, MS_REC | MS_PRIVATE, None)
        yield
    finally:
        # The kernel refuses that while a thread that has just ended still shares this one's folder.
        wait_until(lambda: not _LIBC.setns(before, CLONE_NEWNS), 10)
        os.close(before)
        os.chdir(folder)


def mount_memory(folder: Path, flags: int = 0, size: str = "50%") -> Path:
    """Mount an empty file system at a folder, whose parents exist, and return it; ``size`` is as in tmpfs(5)."""
    folder.mkdir(exist_ok=True)
    _call("mount", b"tmpfs", os.fsencode(folder), b"tmpfs", flags, f"mode=0755,size={size}".encode())
    return folder


def unmount(folder: Path) -> None:
    """Unmount what is mounted last at a folder."""
    _call("umount2", os.fsencode(folder), MNT_DETACH)


def fill(folder: Path) -> Path:
    """Write into a file system until that is full, and return the file."""
    path = folder / "fill"
    with contextlib.suppress(OSError), path.open("wb", buffering=0) as stream:
        while True:
            stream.write(bytes(1 << 12))
    return path


def bind(source: Path, target: Path, *, read_only: bool = False) -> None:
    """Mount a folder at another one with all that is mounted below it, as engines do: read-only at its top alone."""
    target.mkdir(exist_ok=True)
    _call("mount", os.fsencode(source), os.fsencode(target), None, MS_BIND | MS_REC, None)
    if read_only:
        _call("mount", None, os.fsencode(target), None, MS_REMOUNT | MS_BIND | MS_RDONLY, None)


@contextlib.contextmanager
def silent_mount(folder: Path) -> Iterator[None]:
    """Mount a file system that never answers at a folder; processes that wait for it end afterwards."""
    folder.mkdir()
    with subprocess.Popen(
        [sys.executable, "-c", source("silent_mount"), str(folder)], stdout=subprocess.PIPE, text=True
    ) as server:
        assert server.stdout
        try:
            assert server.stdout.readline() == "mounted\n"
            yield
        finally:
            server.kill()
            unmount(folder)
