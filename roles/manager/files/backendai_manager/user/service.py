# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Asks the manager's part, through sudo."""

from __future__ import annotations

import contextlib
import os
import pwd
import re
import select
import subprocess
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import IO, Any

from ..errors import CommandError, RefusedError
from ..paths import Paths
from ..protocol import MAX_REQUEST, READER_SECONDS, UNREAD, Result, parse_answer, request_line
from .readers import await_loss_of_readers

ACCOUNT = "backendai"

# What sudo says, and what it means. Of an account that may not be used it says that a password is required, too.
_SENTENCES: Sequence[tuple[str, str]] = (
    (
        r"account validation|account.*(expired|locked)|PAM account",
        "your account has expired, is locked, or is not valid: ask an operator.",
    ),
    (
        r"password is required|not allowed|may not run|not in the sudoers",
        "sudo does not let you: ask an operator to add you to the group of users.",
    ),
    (r"unknown user|unknown uid", "this host has no account of the manager: run backendai.cluster.provision_managers."),
    (
        r"command not found|No such file",
        "the manager's part is not installed: run backendai.cluster.provision_managers.",
    ),
)


class Service:
    """The manager's part. ``command`` starts it; without one, sudo does, as the owner of the manager's folder."""

    def __init__(self, paths: Paths, command: Sequence[str] = ()) -> None:
        self._command = [*command] or ["sudo", "-n", "-u", _account(paths), str(paths.serve)]

    def ask(
        self,
        verb: str,
        fields: Mapping[str, Any],
        take: Callable[[Mapping[str, Any]], None] = lambda _event: None,
        stopping: Callable[[], None] = lambda: None,
    ) -> Result:
        """Send a request, hand its events on, and return the result.

        The first Ctrl-C cancels the command, of which ``stopping`` is told, and its result is waited for; the second
        one does not wait. It is cancelled, too, when nobody can read what this process prints. Raises
        :class:`CommandError` if there is no result.
        """
        try:
            line = request_line(verb, fields)
        except (ValueError, RecursionError):
            raise RefusedError("the request has a character that is no text, or a value that is no number.") from None
        if len(line) > MAX_REQUEST:
            raise RefusedError(f"the request has {len(line)} bytes; {MAX_REQUEST} are the most.")
        with tempfile.TemporaryFile() as errors:
            try:
                # In a session of its own: Ctrl-C of the terminal is for this process only.
                process = subprocess.Popen(
                    self._command,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=errors,
                    start_new_session=True,
                    # Of the messages of sudo, only those in English are understood.
                    env={**os.environ, "LC_ALL": "C"},
                )
            except OSError:
                raise CommandError("sudo is not installed on this host: ask an operator.") from None
            if process.stdin is None or process.stdout is None:
                raise CommandError("the manager's part has no pipes.")
            try:
                result = _converse(process.stdin, process.stdout, line, take, stopping)
            except KeyboardInterrupt:
                raise CommandError("cancelled; the manager goes on to remove what has begun.") from None
            if result is None:
                code = process.wait()
                errors.seek(0)
                raise _failure(errors.read(1 << 16).decode(errors="replace"), code)
            return result


def _account(paths: Paths) -> str:
    try:
        return pwd.getpwuid(os.stat(paths.runtime).st_uid).pw_name
    except (OSError, KeyError):
        return ACCOUNT


def _converse(
    stdin: IO[bytes],
    stdout: IO[bytes],
    line: bytes,
    take: Callable[[Mapping[str, Any]], None],
    stopping: Callable[[], None],
) -> Result | None:
    answers = _Answers(stdout)
    stopped = False
    while True:
        try:
            if line:
                # A part that has refused already reads nothing.
                with contextlib.suppress(BrokenPipeError):
                    stdin.write(line)
                    stdin.flush()
                threading.Thread(target=_cancel_unread, args=[stdin, stdout.fileno()], daemon=True).start()
                line = b""
            return _read(answers, take)
        except KeyboardInterrupt:
            if stopped:
                raise
            stopped, line = True, b""
            with contextlib.suppress(OSError):
                stdin.close()
            stopping()


def _cancel_unread(stdin: IO[bytes], answers: int) -> None:
    """Cancel the command when standard output and standard error have lost their readers before it ends."""
    if await_loss_of_readers((1, 2), answers):
        with contextlib.suppress(OSError):
            stdin.close()


class _Answers:
    """Reads lines from a pipe. A Ctrl-C that falls between two waits is seen after the next one, of half a second."""

    def __init__(self, pipe: IO[bytes]) -> None:
        self._pipe = pipe
        self._read = bytearray()

    def next_line(self) -> bytes | None:
        """Return the next line without its end, or ``None`` after the last: a part of a line is none."""
        seen = 0
        while (end := self._read.find(b"\n", seen)) < 0:
            seen = len(self._read)
            if select.select([self._pipe], [], [], 0.5)[0]:
                data = os.read(self._pipe.fileno(), 1 << 16)
                if not data:
                    return None
                self._read += data
        line = bytes(self._read[:end])
        del self._read[: end + 1]
        return line


def _read(answers: _Answers, take: Callable[[Mapping[str, Any]], None]) -> Result | None:
    while (answer := answers.next_line()) is not None:
        try:
            data = parse_answer(answer)
        except (ValueError, TypeError):
            raise CommandError(
                "the manager's part has sent something that is no answer; an operator finds more in the system's log."
            ) from None
        if isinstance(data, Result):
            return data
        take(data)
    return None


def _failure(text: str, code: int) -> CommandError:
    """Return the reason why there is no result, from the exit code and what sudo says."""
    if code == UNREAD:
        return CommandError(
            f"what this command prints was not read for {READER_SECONDS:g} seconds, so the manager has cancelled it, as"
            " Ctrl-C does."
        )
    for pattern, sentence in _SENTENCES:
        if re.search(pattern, text, re.IGNORECASE):
            return RefusedError(sentence)
    last = text.strip().splitlines()[-1:]
    detail = f": {''.join(char for char in last[0] if char.isprintable())[:200]}" if last else ""
    return CommandError(f"the manager's part has ended with {code} and without a result{detail}.")
