# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Atomic file replacement, and file locks."""

from __future__ import annotations

import contextlib
import fcntl
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

POLL_SECONDS = 0.005


def write_atomically(
    path: Path,
    content: str | bytes,
    mode: int = 0o600,
    *,
    durable: bool = True,
    prepare: Callable[[int], None] | None = None,
) -> None:
    """Replace a file atomically: after a crash, and for readers, it has either the old content or the new one.

    The new content is not readable by other users before the file has its ``mode``. ``prepare`` is called with the
    descriptor of the file while that is empty. With ``durable`` the content is on the disk before the old file is
    replaced. On errors, the temporary file is removed.
    """
    descriptor, staged = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".new")
    try:
        with os.fdopen(descriptor, "wb") as stream:
            os.fchmod(descriptor, mode)
            if prepare:
                prepare(descriptor)
            stream.write(content.encode() if isinstance(content, str) else content)
            stream.flush()
            if durable:
                os.fsync(descriptor)
        os.replace(staged, path)
    except BaseException:
        os.unlink(staged)
        raise


@contextlib.contextmanager
def locked(path: Path, timeout: float | None = None, *, create: bool = False) -> Iterator[int | None]:
    """Hold the lock (flock) of a file or folder and yield its descriptor; the kernel releases it if the process dies.

    Waits for other holders, without ``timeout`` indefinitely; after ``timeout`` seconds it yields ``None``. With
    ``create`` a missing file is created. Raises :class:`OSError` if it cannot be opened.
    """
    flags = os.O_RDONLY if path.is_dir() else os.O_RDWR | (os.O_CREAT if create else 0)
    descriptor = os.open(path, flags, 0o600)
    try:
        yield descriptor if _acquire(descriptor, timeout) else None
    finally:
        os.close(descriptor)


def _acquire(descriptor: int, timeout: float | None) -> bool:
    deadline = time.monotonic() + (timeout or 0)
    while not _lock(descriptor, blocking=timeout is None):
        if time.monotonic() >= deadline:
            return False
        time.sleep(POLL_SECONDS)
    return True


def _lock(descriptor: int, *, blocking: bool) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX if blocking else fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
