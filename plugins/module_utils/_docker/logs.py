# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Read the end of a container's log, and of files in it, whether it is running or not."""

from __future__ import annotations

import contextlib
import io
import tarfile
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from .._model.errors import ClusterError, as_phrase, reason
from .sdk import docker

# The maximum number of bytes that are returned from the end of a log.
LOG_BYTES = 1 << 20

# The maximum number of bytes that are read of a log or file: the engine sends whole files, from their beginning.
FILE_BYTES = 256 << 20

# How long the engine may take to send a log or file.
READ_SECONDS = 60

CHUNK_BYTES = 1 << 16


class LogReadError(ClusterError):
    """A log exists and cannot be read; the message is one sentence without its full stop."""


def tail_of(client: docker.APIClient, container: str, lines: int, *, timestamps: bool = False) -> list[str]:
    """Return the last lines of a container's log, stdout and stderr in the order of their output.

    With ``timestamps`` each begins with its time in UTC and a space. Raises :class:`LogReadError` if the engine cannot
    return the log: the log driver does not support reading, or the container does not exist.
    """
    try:
        frames = client.logs(
            container, stdout=True, stderr=True, stream=True, follow=False, tail=lines, timestamps=timestamps
        )
        limited = _within_limits(frames, time.monotonic() + READ_SECONDS)
        # The SDK reads logs without a timeout.
        with _ended_after(READ_SECONDS, frames.close):
            return _last_lines(_join_split_lines(limited) if timestamps else limited, lines)
    except (docker.errors.APIError, OSError) as error:
        raise _read_error("its log", error) from None


def tail_of_file(client: docker.APIClient, container: str, path: str, lines: int) -> list[str] | None:
    """Return the last lines of a file in a container; ``None`` if it does not exist.

    Raises :class:`LogReadError` if it is not a regular file, such as a link, or cannot be read.
    """
    try:
        chunks, _stat = client.get_archive(container, path, chunk_size=CHUNK_BYTES)
        limited = _within_limits(chunks, time.monotonic() + READ_SECONDS)
        with tarfile.open(fileobj=_Stream(limited), mode="r|") as archive:
            return _last_lines(_read_member(archive, path), lines)
    except docker.errors.NotFound:
        return None
    except (docker.errors.APIError, OSError, tarfile.TarError) as error:
        raise _read_error(path, error) from None


@contextlib.contextmanager
def _ended_after(seconds: float, end: Callable[[], None]) -> Iterator[None]:
    """Call ``end`` in another thread if the block takes that long."""
    timer = threading.Timer(seconds, end)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _within_limits(chunks: Iterable[bytes], until: float) -> Iterator[bytes]:
    """Yield chunks; raise :class:`OSError` at ``until``, or after twice :data:`FILE_BYTES` with all headers.

    A connection that was closed because of the time limit looks like the end of the chunks: ``until`` is not later.
    """
    size = 0
    for chunk in chunks:
        size += len(chunk)
        if size > 2 * FILE_BYTES:
            raise OSError(f"it has more than {2 * FILE_BYTES} bytes")
        if time.monotonic() >= until:
            break
        yield chunk
    if time.monotonic() >= until:
        raise TimeoutError(f"the engine did not send all of it within {READ_SECONDS} seconds")


def _last_lines(chunks: Iterable[bytes], lines: int) -> list[str]:
    """Return the last lines of a log that is read in chunks; a truncated line begins with ``…``.

    No more than :data:`LOG_BYTES` and one chunk are kept in memory. Invalid UTF-8 is replaced.
    """
    buffered: deque[bytes] = deque()
    size, truncated = 0, False
    for chunk in chunks:
        buffered.append(chunk)
        size += len(chunk)
        while size - len(buffered[0]) >= LOG_BYTES:
            size -= len(buffered.popleft())
            truncated = True
    text = b"".join(buffered)[-LOG_BYTES:].decode(errors="replace")
    tail = text.removesuffix("\n").split("\n") if text else []
    if truncated or size > LOG_BYTES:
        tail[0] = f"…{tail[0]}"
    return tail[-lines:]


def _join_split_lines(frames: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the frames of a log without the timestamps that the engine inserts into long lines.

    The engine splits a long line into several messages, each with a frame and a timestamp of its own.
    """
    at_line_start = True
    for frame in frames:
        yield frame if at_line_start else frame.partition(b" ")[2]
        at_line_start = frame.endswith(b"\n")


def _read_member(archive: tarfile.TarFile, path: str) -> Iterator[bytes]:
    """Yield the only file of an archive in chunks."""
    member = archive.next()
    file = archive.extractfile(member) if member is not None and member.isreg() else None
    if member is None or file is None:
        raise LogReadError(f"{path} is not a regular file")
    if member.size > FILE_BYTES:
        raise LogReadError(f"{path} has {member.size} bytes, more than the limit of {FILE_BYTES}")
    while chunk := file.read(CHUNK_BYTES):
        yield chunk


class _Stream(io.RawIOBase):
    """A read-only file object over the chunks that the engine sends."""

    def __init__(self, chunks: Iterable[bytes]) -> None:
        self._chunks = iter(chunks)
        self._rest = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        self._rest = self._rest or next(self._chunks, b"")
        taken = self._rest[: len(buffer)]
        buffer[: len(taken)] = taken
        self._rest = self._rest[len(taken) :]
        return len(taken)


def _read_error(subject: str, error: Exception) -> LogReadError:
    return LogReadError(f"{subject} cannot be read: {as_phrase(reason(error))}")
