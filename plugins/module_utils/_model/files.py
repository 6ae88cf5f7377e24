# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Files that are replaced as a whole, and locks that processes hold on files and folders."""

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
    """Replace a file, so that readers and crashes meet the old content or the new one, never a part.

    Nobody else can read the new content before the file has its ``mode``. ``prepare`` is called with the open file
    while that is still empty. With ``durable`` the content is on the disk before the old file is gone. What fails is
    raised, and leaves nothing behind.
    """
    handle, staged = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".new")
    try:
        with os.fdopen(handle, "wb") as stream:
            os.fchmod(handle, mode)
            if prepare:
                prepare(handle)
            stream.write(content.encode() if isinstance(content, str) else content)
            stream.flush()
            if durable:
                os.fsync(handle)
        os.replace(staged, path)
    except BaseException:
        os.unlink(staged)
        raise


@contextlib.contextmanager
def locked(path: Path, seconds: float | None = None, *, create: bool = False) -> Iterator[int | None]:
    """Hold the lock (flock) of a file or folder, and give its open descriptor; a process that dies lets go by itself.

    Another holder is waited for as long as it takes, or for so many ``seconds``: then ``None`` is given. With
    ``create`` the file is made where it is missing. Raises :class:`OSError` where it cannot be opened.
    """
    flags = os.O_RDONLY if path.is_dir() else os.O_RDWR | (os.O_CREAT if create else 0)
    handle = os.open(path, flags, 0o600)
    try:
        yield handle if _acquired(handle, seconds) else None
    finally:
        os.close(handle)


def _acquired(handle: int, seconds: float | None) -> bool:
    until = time.monotonic() + (seconds or 0)
    while not _lock(handle, blocking=seconds is None):
        if time.monotonic() >= until:
            return False
        time.sleep(POLL_SECONDS)
    return True


def _lock(handle: int, *, blocking: bool) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX if blocking else fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
