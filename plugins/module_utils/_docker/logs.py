# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a container printed, and what programs in it wrote to files: the end of each, whether it runs or not."""

from __future__ import annotations

import io
import tarfile
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any

from .._model.errors import ClusterError, as_phrase, reason
from .sdk import docker

# How much of the end of one log is given at most, in bytes.
LOG_BYTES = 1 << 20

# How large a file may be to be read, in bytes: the engine gives files whole, from their beginning.
FILE_BYTES = 256 << 20

CHUNK_BYTES = 1 << 16


class LogReadError(ClusterError):
    """A log is there and cannot be read; the message is one sentence without its full stop."""


def tail_of(client: docker.APIClient, container: str, lines: int, *, timestamps: bool = False) -> list[str]:
    """Return the last lines that a container printed, output and errors in the order in which they came.

    With ``timestamps`` each begins with the time at which it was printed, in UTC, and a space. Raises
    :class:`LogUnreadable` where the engine does not give it: the log's driver cannot read, or the container is gone.
    """
    try:
        frames = client.logs(
            container, stdout=True, stderr=True, stream=True, follow=False, tail=lines, timestamps=timestamps
        )
        return _last_lines(_join_split_lines(frames) if timestamps else frames, lines)
    except (docker.errors.APIError, OSError) as error:
        raise _read_error("its log", error) from None


def tail_of_file(client: docker.APIClient, container: str, path: str, lines: int) -> list[str] | None:
    """Return the last lines of a file in a container; ``None`` where there is no such file.

    A link is not followed, and nothing but an ordinary file is read. Raises :class:`LogUnreadable`.
    """
    try:
        chunks, _stat = client.get_archive(container, path, chunk_size=CHUNK_BYTES)
        with tarfile.open(fileobj=_Stream(chunks), mode="r|") as archive:
            return _last_lines(_read_member(archive, path), lines)
    except docker.errors.NotFound:
        return None
    except (docker.errors.APIError, OSError, tarfile.TarError) as error:
        raise _read_error(path, error) from None


def _last_lines(chunks: Iterable[bytes], lines: int) -> list[str]:
    """Return the last lines of a log that comes in pieces; a line that has lost its beginning begins with ``…``.

    No more than :data:`LOG_BYTES` and one piece are held at once. What is not UTF-8 is replaced.
    """
    kept: deque[bytes] = deque()
    size, cut = 0, False
    for chunk in chunks:
        kept.append(chunk)
        size += len(chunk)
        while size - len(kept[0]) >= LOG_BYTES:
            size -= len(kept.popleft())
            cut = True
    text = b"".join(kept)[-LOG_BYTES:].decode(errors="replace")
    tail = text.removesuffix("\n").split("\n") if text else []
    if cut or size > LOG_BYTES:
        tail[0] = f"…{tail[0]}"
    return tail[-lines:]


def _join_split_lines(frames: Iterable[bytes]) -> Iterator[bytes]:
    """Return the frames of a log without the times that the engine puts into the middle of long lines.

    It keeps a long line as several messages, and gives each of them in a frame of its own, with a time.
    """
    begins = True
    for frame in frames:
        yield frame if begins else frame.partition(b" ")[2]
        begins = frame.endswith(b"\n")


def _read_member(archive: tarfile.TarFile, path: str) -> Iterator[bytes]:
    """Return the one file of an archive piece by piece."""
    member = archive.next()
    file = archive.extractfile(member) if member is not None and member.isreg() else None
    if member is None or file is None:
        raise LogReadError(f"{path} is not a regular file")
    if member.size > FILE_BYTES:
        raise LogReadError(f"{path} has {member.size} bytes, and what is larger than {FILE_BYTES} is not read")
    while chunk := file.read(CHUNK_BYTES):
        yield chunk


class _Stream(io.RawIOBase):
    """What the engine sends in pieces, as a file that can be read once."""

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
