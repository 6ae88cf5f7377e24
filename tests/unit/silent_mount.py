"""File systems that never answer, in a mount namespace of the test's own."""

from __future__ import annotations

import contextlib
import ctypes
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.integration.programs import source

CLONE_NEWNS, MS_REC, MS_PRIVATE, MNT_DETACH = 0x20000, 0x4000, 0x40000, 2

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
        _call("setns", before, CLONE_NEWNS)
        os.close(before)
        os.chdir(folder)


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
            _call("umount2", os.fsencode(folder), MNT_DETACH)
