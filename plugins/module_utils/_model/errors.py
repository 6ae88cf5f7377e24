# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Errors that are not bugs, and their messages of one sentence."""

from __future__ import annotations

import subprocess

from .printable import printable


class ClusterError(Exception):
    """An error that the operator can act upon; the message is one sentence.

    ``printed`` are lines of a container that explain it. They are for the terminal only, and never stored: programs
    print secrets.
    """

    printed: tuple[str, ...] = ()


class CheckFailedError(ClusterError):
    """The check of a session failed. The message has one sentence for each failure."""


# Exceptions that are caused by the host or the request, not by a bug.
#
# They include the errors of the Docker SDK: its API errors derive from those of ``requests``, which are
# :class:`OSError`.
EXPECTED = (ClusterError, OSError, ValueError, subprocess.SubprocessError)


def reason(error: BaseException) -> str:
    """Return the message of an error as one line; the Docker engine's message is in ``explanation``."""
    if isinstance(error, subprocess.CalledProcessError):
        return one_line(f"{error.cmd[0]} failed: {error.stderr or ''}")
    return one_line(getattr(error, "explanation", None) or error)


def sentence(error: Exception) -> str | None:
    """Return the message of an error as a sentence with a full stop; ``None`` for unexpected errors."""
    if isinstance(error, subprocess.CalledProcessError):
        return as_sentence(reason(error))
    # Only the adapters import the SDK, so its errors are recognized by their module here. They are checked first,
    # because most of them are OSErrors too.
    if type(error).__module__.startswith(("docker.", "requests.")):
        return as_sentence(f"the Docker engine failed: {reason(error)}")
    return as_sentence(printable(str(error))) if isinstance(error, EXPECTED) else None


def cause(error: BaseException) -> str:
    """Return why something ended, as a phrase: the message of an error, or its class, or both if it is a bug.

    The message of a bug says little by itself: that of a :class:`KeyError` is the key.
    """
    text, name = as_phrase(error), type(error).__name__
    is_bug = type(error).__module__ == "builtins" and not isinstance(error, EXPECTED)
    return f"{name}: {text}" if text and is_bug else text or name


def as_sentence(text: str) -> str:
    """Return text with a full stop at its end, unless it ends with one or with a question mark."""
    return text if text.endswith((".", "?")) else f"{text}."


def as_phrase(text: object) -> str:
    """Return text as one line without a full stop, for use within a sentence."""
    return one_line(text).rstrip(".")


def one_line(text: object) -> str:
    """Return text with each run of whitespace replaced by one space, and control characters escaped."""
    return printable(" ".join(str(text).split()))
