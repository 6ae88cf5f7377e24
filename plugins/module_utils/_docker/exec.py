# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Run commands inside a container, under all of its limits, and for a limited time."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Iterator, Sequence
from typing import Any

from .._model.errors import ClusterError
from .._model.printable import printable
from .light_client import HEADER_BYTES
from .sdk import docker

KIT_PROGRAMS = "/opt/backendai/bin"
BUSYBOX = f"{KIT_PROGRAMS}/busybox"

OUTPUT_BYTES = 1 << 20
"""The maximum size of a command's output, with the engine's headers."""

KILL_SECONDS = 3
"""How long the engine may take to report the end of a killed command."""

_CHUNK_BYTES = 1 << 16

_STDOUT = 1


class ExecLimitError(ClusterError):
    """A command ran too long or printed too much. ``output`` is its standard output until then."""

    def __init__(self, message: str, output: str) -> None:
        super().__init__(message)
        self.output = output


def run_as_work(client: docker.APIClient, container: str, command: Sequence[str], seconds: int) -> str:
    """Run a command as user work, whom the container runs as, and return its standard output.

    What a shell or a loader of the image says on standard error is no answer. Control characters are escaped, except
    newlines and tabs. After ``seconds`` the command is killed. Raises :class:`ExecLimitError` if it did not end by
    itself, or printed more than :data:`OUTPUT_BYTES`; a process that it leaves behind with its output open counts as
    not ended, whatever signals that ignores.

    Entering the namespaces directly would take 3 ms instead of the engine's 35 to 50, but would bypass the container's
    cgroup, seccomp filter and capability limits, which is unsafe for commands that may read a user's files.
    """
    limited = [BUSYBOX, "timeout", "-s", "KILL", str(seconds), *command]
    limit = seconds + KILL_SECONDS
    execution = client.exec_create(container, limited)
    received = bytearray()
    with _connection(client, execution["Id"]) as connection:
        problem = _receive(connection, received, limit)
    output = printable(_payload(received).decode(errors="replace"))
    if problem:
        raise ExecLimitError(f"a command in {container} {problem}", output)
    return output


@contextlib.contextmanager
def _connection(client: docker.APIClient, execution: str) -> Iterator[Any]:
    """Start a command and yield the connection with its output.

    The SDK's own functions read without a timeout. Their connection is a file over the socket, or with TLS a socket.
    """
    file: Any = client.exec_start(execution, socket=True)
    connection = getattr(file, "_sock", file)
    try:
        yield connection
    finally:
        # The SDK would use the connection again, while the engine still sends.
        with contextlib.suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)
        file.close()
        connection.close()


def _receive(connection: Any, received: bytearray, seconds: int) -> str:
    """Read until the end of the output; return what limit it exceeded, or an empty string."""
    until, late = time.monotonic() + seconds, f"did not end within {seconds} seconds"
    while len(received) <= OUTPUT_BYTES:
        remaining = until - time.monotonic()
        if remaining <= 0:
            return late
        connection.settimeout(remaining)
        try:
            chunk = connection.recv(_CHUNK_BYTES)
        except socket.timeout:  # Before Python 3.10 it is no TimeoutError.
            return late
        if not chunk:
            return ""
        received += chunk
    return f"printed more than {OUTPUT_BYTES} bytes"


def _payload(received: bytearray) -> bytes:
    """Return the standard output without the engine's headers."""
    chunks, position = [], 0
    while position < len(received):
        start = position + HEADER_BYTES
        size = int.from_bytes(received[start - 4 : start], "big")
        if received[position] == _STDOUT:
            chunks.append(bytes(received[start : start + size]))
        position = start + size
    return b"".join(chunks)
