# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Read the end of a container's log, and of files in it, whether it is running or not; compressed, to be kept."""

from __future__ import annotations

import contextlib
import gzip
import io
import tarfile
import threading
import time
import zlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, Literal, TypeVar

from .._model.errors import ClusterError, as_phrase, reason
from .sdk import docker

T = TypeVar("T")

# The maximum number of bytes that are returned from the end of a log.
LOG_BYTES = 1 << 20

# The maximum number of bytes that are read of a log or file: the engine sends whole files, from their beginning.
FILE_BYTES = 256 << 20

# How long the engine may take to send a log or file.
READ_SECONDS = 60

CHUNK_BYTES = 1 << 16

# The maximum size of half of a kept log, compressed and not: the older half is dropped when the newer one is full.
KEPT_BYTES = 4 << 20
KEPT_RAW_BYTES = 64 << 20

# How often a log is read of which the engine sent only a part.
READ_ATTEMPTS = 3

# The number of messages, of at most 16 KiB each, that are kept of a log that cannot be read whole within the limits.
END_LINES = 30_000


class LogReadError(ClusterError):
    """A log exists and cannot be read; the message is one sentence without its full stop."""


class LogLimitError(LogReadError):
    """A log is too long to be read whole, or the engine sends it too slowly; its end may be readable."""


class _LimitError(OSError):
    """The engine did not send all of it within the limits."""


def tail_of(
    client: docker.APIClient, container: str, lines: int, *, timestamps: bool = False, since: int = 0
) -> list[str]:
    """Return the last lines of a container's log, stdout and stderr in the order of their output.

    With ``timestamps`` each begins with its time in UTC and a space. Those before ``since``, in seconds since the
    epoch, are left out. Raises :class:`LogReadError` if the engine cannot return the log: the log driver does not
    support reading, or the container does not exist.
    """
    try:
        frames = client.logs(
            container,
            stdout=True,
            stderr=True,
            stream=True,
            follow=False,
            tail=lines,
            timestamps=timestamps,
            since=since or None,
        )
        # The SDK reads logs without a timeout.
        until = time.monotonic() + READ_SECONDS
        with _ended_at(until, frames.close):
            limited = _within_limits(frames, until)
            return _last_lines(_join_split_lines(limited) if timestamps else limited, lines)
    except (docker.errors.APIError, OSError) as error:
        raise _read_error("its log", error) from None


def compressed_log(client: docker.APIClient, container: str, tail: int | Literal["all"] = "all") -> bytes:
    """Return the log of a container that has ended, with timestamps, as a gzip file; only its end if it is too long.

    An engine that dies while it sends looks like the end of the log, so its last message must be the log's last one.
    Raises :class:`LogReadError`; :class:`LogLimitError` if its ``tail`` may be readable.
    """
    try:
        for _attempt in range(READ_ATTEMPTS):
            kept, last = _Kept(), b""
            for kept_frame, frame in _frames(client, container, tail):
                kept.add(kept_frame)
                last = frame
            if all(frame == last for _kept_frame, frame in _frames(client, container, 1)):
                return kept.content()
    except _LimitError as error:
        raise LogLimitError(str(_read_error("its log", error))) from None
    except (docker.errors.APIError, OSError) as error:
        raise _read_error("its log", error) from None
    raise LogReadError("its log cannot be read: the engine did not send all of it")


def _frames(client: docker.APIClient, container: str, tail: int | Literal["all"]) -> Iterator[tuple[bytes, bytes]]:
    """Yield the messages of a log, each without the timestamp of a continued line, and as the engine sent it."""
    frames = client.logs(container, stdout=True, stderr=True, stream=True, follow=False, tail=tail, timestamps=True)
    until = time.monotonic() + READ_SECONDS
    with _ended_at(until, frames.close):
        at_line_start = True
        for frame in _within_limits(frames, until):
            yield frame if at_line_start else frame.partition(b" ")[2], frame
            at_line_start = frame.endswith(b"\n")


def compressed_file(client: docker.APIClient, container: str, path: str) -> bytes | None:
    """Return a file of a container as a gzip file, only its end if it is too long; ``None`` if it does not exist.

    Raises :class:`LogReadError`.
    """

    def compress(chunks: Iterable[bytes]) -> bytes:
        kept = _Kept()
        for chunk in chunks:
            kept.add(chunk)
        return kept.content()

    return _read_file(client, container, path, compress)


def tail_of_kept(path: str, lines: int) -> list[str]:
    """Return the last lines of a log that was kept as a gzip file. Raises :class:`LogReadError`."""
    try:
        with gzip.open(path) as file:
            return _last_lines(iter(partial(file.read, CHUNK_BYTES), b""), lines)
    except (OSError, EOFError, zlib.error) as error:
        raise _read_error(path, OSError(str(error))) from None


class _Kept:
    """Compresses a log in two halves, of which the older one is dropped when the newer one is full."""

    def __init__(self) -> None:
        self._older = b""
        self._begin()

    def _begin(self) -> None:
        self._compressor = zlib.compressobj(1, wbits=zlib.MAX_WBITS | 16)
        self._chunks: list[bytes] = []
        self._size = self._raw_size = 0

    def add(self, chunk: bytes) -> None:
        """Add a chunk at the end of the log."""
        if self._size >= KEPT_BYTES or self._raw_size >= KEPT_RAW_BYTES:
            self._older = self._newer()
            self._begin()
        self._append(self._compressor.compress(chunk))
        self._raw_size += len(chunk)

    def _append(self, compressed: bytes) -> None:
        self._chunks.append(compressed)
        self._size += len(compressed)

    def _newer(self) -> bytes:
        self._append(self._compressor.flush())
        return b"".join(self._chunks)

    def content(self) -> bytes:
        """Return both halves: a gzip file may have several members."""
        return self._older + self._newer()


def tail_of_file(client: docker.APIClient, container: str, path: str, lines: int) -> list[str] | None:
    """Return the last lines of a file in a container; ``None`` if it does not exist.

    Raises :class:`LogReadError` if it is not a regular file, such as a link, or cannot be read.
    """
    return _read_file(client, container, path, lambda chunks: _last_lines(chunks, lines))


def _read_file(client: docker.APIClient, container: str, path: str, read: Callable[[Iterable[bytes]], T]) -> T | None:
    try:
        chunks, _stat = client.get_archive(container, path, chunk_size=CHUNK_BYTES)
        limited = _within_limits(chunks, time.monotonic() + READ_SECONDS)
        with tarfile.open(fileobj=_Stream(limited), mode="r|") as archive:
            return read(_read_member(archive, path))
    except docker.errors.NotFound:
        return None
    except (docker.errors.APIError, OSError, tarfile.TarError) as error:
        raise _read_error(path, error) from None


@contextlib.contextmanager
def _ended_at(until: float, end: Callable[[], None]) -> Iterator[None]:
    """Call ``end`` in another thread if the block runs at that time of the monotonic clock."""
    timer = threading.Timer(until - time.monotonic(), end)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _within_limits(chunks: Iterable[bytes], until: float) -> Iterator[bytes]:
    """Yield chunks; raise :class:`OSError` at the time ``until``, or after twice :data:`FILE_BYTES` with all headers.

    A connection that was closed because of the time limit looks like the end of the chunks: ``until`` is not later.
    """
    size = 0
    for chunk in chunks:
        size += len(chunk)
        if size > 2 * FILE_BYTES:
            raise _LimitError(f"it has more than {2 * FILE_BYTES} bytes")
        if time.monotonic() >= until:
            break
        yield chunk
    if time.monotonic() >= until:
        raise _LimitError(f"the engine did not send all of it within {READ_SECONDS} seconds")


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
