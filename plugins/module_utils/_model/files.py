# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Atomic file replacement, and file locks."""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

LOCKS = Path("/proc/locks")

# How long to wait for a lock, in seconds: longer than any holder may take that does not hang.
LOCK_SECONDS = 100.0

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
    # Most requests to hosts write nothing, and the import takes milliseconds.
    import tempfile

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
def locked(path: Path, timeout: float, *, create: bool = False) -> Iterator[int | None]:
    """Hold the lock (flock) of a file or folder and yield its descriptor; the kernel releases it if the process dies.

    Waits for other holders; after ``timeout`` seconds it yields ``None``. With ``create`` a missing file is created.
    Raises :class:`OSError` if it cannot be opened.
    """
    flags = os.O_RDONLY if path.is_dir() else os.O_RDWR | (os.O_CREAT if create else 0)
    descriptor = os.open(path, flags, 0o600)
    try:
        yield descriptor if _acquire(descriptor, timeout) else None
    finally:
        os.close(descriptor)


def _acquire(descriptor: int, timeout: float) -> bool:
    deadline = time.monotonic() + timeout
    while not _lock(descriptor):
        if time.monotonic() >= deadline:
            return False
        time.sleep(POLL_SECONDS)
    return True


def _lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def describe_held_lock(path: Path, timeout: float) -> str:
    """Return one sentence about a lock that was not released within ``timeout`` seconds, with its holder if known."""
    holder = _lock_holder(path) or "another process"
    return f"{holder} has held the lock {path} for more than {timeout:g} seconds; end it first."


def _lock_holder(path: Path) -> str:
    """Return the process of this host that locked a file, such as ``process 17 (python3)``; empty if it is unknown.

    The name is that of the program: its command line may contain secrets.
    """
    try:
        inode = os.stat(path).st_ino
        # Without the device, whose number is another one on file systems such as btrfs.
        entries = (line.split() for line in LOCKS.read_text().splitlines())
        pids = [entry[4] for entry in entries if entry[1] == "FLOCK" and entry[5].rpartition(":")[2] == str(inode)]
        return f"process {pids[0]} ({Path(f'/proc/{pids[0]}/comm').read_text().strip()})" if pids else ""
    except (OSError, IndexError):
        return ""
