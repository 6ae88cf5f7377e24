# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The pipe to the user's part: one request, then events and a result, until either side ends it."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import threading
import time
from typing import Any

from ..errors import CancelledError, RefusedError
from ..protocol import (
    MAX_REQUEST,
    READER_SECONDS,
    REQUEST_SECONDS,
    Request,
    Result,
    event_line,
    parse_request,
    result_line,
)

WATCHER = "end of input"
"""The name of the thread that waits for the end of the user's part."""

_CHUNK = 1 << 16


class Channel:
    """Reads from ``source`` and writes to ``target``, which are file descriptors of pipes."""

    def __init__(self, source: int, target: int) -> None:
        self._source, self._target = source, target
        self._cancelled = threading.Event()
        self._writing = threading.Lock()
        #: Whether the user's part has read nothing for so long that no more is sent: a part of a line is.
        self.unread = False
        os.set_blocking(target, False)

    def read_request(self, seconds: float = REQUEST_SECONDS) -> Request:
        """Return the request. Raises :class:`RefusedError`, also if it is too large, or does not arrive in time."""
        deadline, received = time.monotonic() + seconds, b""
        while b"\n" not in received:
            ready = select.select([self._source], [], [], max(0.0, deadline - time.monotonic()))[0]
            if not ready:
                raise RefusedError(f"no request arrived within {seconds:g} seconds.")
            chunk = os.read(self._source, _CHUNK)
            if not chunk:
                raise RefusedError("the request ended before its line did.")
            received += chunk
            if len(received) > MAX_REQUEST + 1 and b"\n" not in received[: MAX_REQUEST + 1]:
                raise RefusedError(f"the request is larger than {MAX_REQUEST} bytes.")
        line, _newline, rest = received.partition(b"\n")
        if rest:
            raise RefusedError("the request has more than one line.")
        return parse_request(line)

    def watch(self) -> None:
        """From now on, cancel when the user's part ends its side, and by the signals that end programs."""
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, lambda _number, _frame: self._cancelled.set())
        threading.Thread(target=self._wait_for_end, name=WATCHER, daemon=True).start()

    def _wait_for_end(self) -> None:
        with contextlib.suppress(OSError):
            while os.read(self._source, _CHUNK):
                pass
        self._cancelled.set()

    @property
    def cancelled(self) -> bool:
        """Whether the user's part is gone, or has asked to stop."""
        return self._cancelled.is_set()

    def wait(self, seconds: float) -> None:
        """Wait. Raises :class:`CancelledError` as soon as the user's part is gone."""
        if self._cancelled.wait(seconds):
            raise CancelledError("cancelled.")

    def event(self, kind: str, **fields: Any) -> None:
        """Tell the user's part of something."""
        self._send(event_line(kind, fields))

    def result(self, result: Result) -> None:
        """Send the result, the last line."""
        self._send(result_line(result))

    def _send(self, line: bytes) -> None:
        """Write a line; a user's part that is gone, or does not read, cancels the command."""
        with self._writing:
            if self.unread:
                return
            deadline, remaining = time.monotonic() + READER_SECONDS, memoryview(line)
            try:
                while remaining:
                    ready = select.select([], [self._target], [], max(0.0, deadline - time.monotonic()))[1]
                    if not ready:
                        self.unread = True
                        self._cancelled.set()
                        return
                    with contextlib.suppress(BlockingIOError):
                        remaining = remaining[os.write(self._target, remaining) :]
            except OSError:
                self._cancelled.set()
