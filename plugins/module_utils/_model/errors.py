# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What may go wrong although nothing is wrong with the program: each is said in one sentence."""

from __future__ import annotations

import subprocess


class ClusterError(Exception):
    """Something that the operator can act upon; the message is one sentence."""


# What is raised when a host, or what is asked of it, is not as it should be.
#
# Errors of the Docker SDK are among them: those of ``requests`` are :class:`OSError`, and those of the engine's API are
# errors of ``requests``.
EXPECTED = (ClusterError, OSError, ValueError, subprocess.SubprocessError)


def reason(error: BaseException) -> str:
    """Return what went wrong as one line; the Docker engine's own words are in ``explanation``."""
    if isinstance(error, subprocess.CalledProcessError):
        return one_line(f"{error.cmd[0]} failed: {error.stderr or ''}")
    return one_line(getattr(error, "explanation", None) or error)


def sentence(error: Exception) -> str | None:
    """Return what went wrong as a sentence with its full stop; ``None`` for what nobody has expected."""
    if isinstance(error, subprocess.CalledProcessError):
        return as_sentence(reason(error))
    # The SDK is imported by the adapters, where it exists: here its errors are known by where they come from. They
    # are asked for first, because requests makes most of them an OSError.
    if type(error).__module__.startswith(("docker.", "requests.")):
        return as_sentence(f"the Docker engine refused: {reason(error)}")
    return as_sentence(str(error)) if isinstance(error, EXPECTED) else None


def as_sentence(text: str) -> str:
    """Return text with a full stop."""
    return text if text.endswith((".", "?")) else f"{text}."


def as_phrase(text: object) -> str:
    """Return text as one line without its full stop, to be a part of a sentence."""
    return one_line(text).rstrip(".")


def one_line(text: object) -> str:
    """Return text with each run of blanks and line ends as one blank."""
    return " ".join(str(text).split())
