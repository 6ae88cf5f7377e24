# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Read a container's log, whether it is running or not, and a log that was kept of it."""

from __future__ import annotations

import contextlib
import gzip
import threading
import time
import zlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Literal

from .._model.errors import ClusterError, as_phrase, reason
from .sdk import docker

# The maximum number of bytes that are returned from the end of a log.
LOG_BYTES = 1 << 20

# The maximum number of bytes that are read of one log, with all headers.
READ_BYTES = 512 << 20

# How long reading a log may take.
READ_SECONDS = 60

CHUNK_BYTES = 1 << 16

# How often a log is read of which the engine sent only a part.
READ_ATTEMPTS = 3


class LogReadError(ClusterError):
    """A log exists and cannot be read; the message is one sentence without its full stop."""


class LogLimitError(LogReadError):
    """A log is too long to be read whole, or the engine sends it too slowly; its end may be readable."""


class _LimitError(OSError):
    """Not all of a log was read within the limits."""


class Allowance:
    """How many bytes may be read of logs, and for how long; ``read`` are those that were."""

    def __init__(self, size: int, seconds: float) -> None:
        self.size, self.seconds, self.read = size, seconds, 0
        self.until = time.monotonic() + seconds

    def within(self, chunks: Iterable[bytes]) -> Iterator[bytes]:
        """Yield chunks; raise :class:`OSError` when time or bytes are used up.

        A connection that was closed because of the time limit looks like the end of the chunks: ``until`` is not later.
        """
        for chunk in chunks:
            self.read += len(chunk)
            if self.read > self.size:
                raise _LimitError(f"it has more than {self.size} bytes")
            if time.monotonic() >= self.until:
                break
            yield chunk
        if time.monotonic() >= self.until:
            raise _LimitError(f"not all of it was read within {self.seconds:.3g} seconds")


def usual_allowance() -> Allowance:
    """Return the allowance for a log of which nothing is kept."""
    return Allowance(READ_BYTES, READ_SECONDS)


def tail_of(
    client: docker.APIClient,
    container: str,
    lines: int,
    *,
    timestamps: bool = False,
    since: int = 0,
    size: int = LOG_BYTES,
) -> list[str]:
    """Return the last lines of a container's log, at most ``size`` bytes, stdout and stderr in their order.

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
        allowance = usual_allowance()
        with _ended_at(allowance.until, frames.close):
            limited = allowance.within(frames)
            return last_lines(_join_split_lines(limited) if timestamps else limited, lines, size)
    except (docker.errors.APIError, ClusterError, OSError) as error:
        raise read_error("its log", error) from None


def read_log(
    client: docker.APIClient,
    container: str,
    begin: Callable[[], Callable[[bytes], None]],
    allowance: Allowance,
    tail: int | Literal["all"] = "all",
) -> None:
    """Read the log of a container that has ended, with timestamps, from its beginning or its last ``tail`` messages.

    ``begin`` returns what gets each message, again if the engine sent only a part: one that dies while it sends looks
    like the end of the log, so its last message must be the log's last one. Raises :class:`LogReadError`;
    :class:`LogLimitError` if a shorter ``tail`` may be readable.
    """
    try:
        for _attempt in range(READ_ATTEMPTS):
            add, last = begin(), b""
            for kept_frame, frame in _frames(client, container, tail, allowance):
                add(kept_frame)
                last = frame
            if all(frame == last for _kept_frame, frame in _frames(client, container, 1, allowance)):
                return
    except _LimitError as error:
        raise LogLimitError(str(read_error("its log", error))) from None
    except (docker.errors.APIError, ClusterError, OSError) as error:
        raise read_error("its log", error) from None
    raise LogReadError("its log cannot be read: the engine did not send all of it")


def _frames(
    client: docker.APIClient, container: str, tail: int | Literal["all"], allowance: Allowance
) -> Iterator[tuple[bytes, bytes]]:
    """Yield the messages of a log, each without the timestamp of a continued line, and as the engine sent it."""
    frames = client.logs(container, stdout=True, stderr=True, stream=True, follow=False, tail=tail, timestamps=True)
    with _ended_at(allowance.until, frames.close):
        at_line_start = True
        for frame in allowance.within(frames):
            yield frame if at_line_start else frame.partition(b" ")[2], frame
            at_line_start = frame.endswith(b"\n")


def tail_of_kept(path: str, lines: int, allowance: Allowance, size: int = LOG_BYTES) -> list[str]:
    """Return the last lines of a log that was kept as a gzip file. Raises :class:`LogReadError`."""
    try:
        with gzip.open(path) as file:
            return last_lines(allowance.within(iter(partial(file.read, CHUNK_BYTES), b"")), lines, size)
    except (OSError, EOFError, zlib.error) as error:
        raise read_error(path, OSError(str(error))) from None


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


def last_lines(chunks: Iterable[bytes], lines: int, most: int) -> list[str]:
    """Return the last lines of a log that is read in chunks; a truncated line begins with ``…``.

    No more than ``most`` bytes and one chunk are kept in memory. Invalid UTF-8 is replaced.
    """
    buffered: deque[bytes] = deque()
    size, truncated = 0, False
    for chunk in chunks:
        buffered.append(chunk)
        size += len(chunk)
        while size - len(buffered[0]) >= most:
            size -= len(buffered.popleft())
            truncated = True
    text = b"".join(buffered)[-most:].decode(errors="replace")
    tail = text.removesuffix("\n").split("\n") if text else []
    if truncated or size > most:
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


def read_error(subject: str, error: Exception) -> LogReadError:
    """Return the error for a log that cannot be read."""
    return LogReadError(f"{subject} cannot be read: {as_phrase(reason(error))}")
