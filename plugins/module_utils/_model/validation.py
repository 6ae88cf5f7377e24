# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Validate variables and convert them to typed values; errors are collected, and a placeholder is returned.

Ansible passes strings for ``-e name=value`` and native types from YAML; both are accepted.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from .errors import ClusterError
from .session import is_session_id

_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,62}[a-z0-9]")
_APP = re.compile(r"[a-z]([a-z0-9-]{0,30}[a-z0-9])?")
# Printable characters of URLs without those that end one in text.
_PAGE = re.compile(r"/(?!/)[A-Za-z0-9._~:/?#@!$&()*+,;=%-]{0,500}|/")


class ValidationError(ClusterError, ValueError):
    """The request is invalid; the message contains one sentence for each error."""


class ValidationErrors:
    """The validation errors of a request, in the order in which they were found."""

    def __init__(self) -> None:
        self._sentences: list[str] = []

    def add(self, sentence: str) -> None:
        """Add a sentence, without its full stop."""
        self._sentences.append(sentence)

    def add_invalid(self, option: str, value: object, reason: str) -> None:
        """Add the error that ``value`` of ``option`` is invalid, with the ``reason`` ("must be …", "is not …")."""
        shown = repr(value)
        # Long values may have been pasted by mistake, such as private keys.
        shown = shown if len(shown) <= 100 else f"{shown[:80]}…"
        self.add(f"{option}: {shown} {reason}" if value is not None else f"{option} is required")

    def raise_if_any(self) -> None:
        """Raise :class:`ValidationError` if there is any error."""
        if self._sentences:
            raise ValidationError(str(self))

    def __bool__(self) -> bool:
        return bool(self._sentences)

    def __str__(self) -> str:
        return "\n".join(sentence if sentence.endswith("?") else f"{sentence}." for sentence in self._sentences)


def string(problems: ValidationErrors, option: str, value: Any) -> str:
    """Return ``value`` as a non-empty line of text."""
    if isinstance(value, (str, int, float)) and not isinstance(value, bool):
        line = str(value).strip()
        if line and "\n" not in line:
            return line
    problems.add_invalid(option, value, "must be a line of text")
    return ""


def optional_string(problems: ValidationErrors, option: str, value: Any) -> str:
    """Return ``value`` as a line of text that may be empty."""
    return string(problems, option, value) if value not in ("", None) else ""


def parse_session_name(problems: ValidationErrors, option: str, value: Any) -> str:
    """Return ``value`` as the name of a session."""
    name = value if isinstance(value, str) else ""
    if not _NAME.fullmatch(name):
        allowed = "must have 2 to 64 characters of a-z, 0-9 and -, and neither begin nor end with -"
        problems.add_invalid(option, value, allowed)
    return name


def parse_session_id(problems: ValidationErrors, option: str, value: Any) -> str:
    """Return ``value`` as the id of a session; may be empty."""
    session_id = optional_string(problems, option, value)
    if session_id and not is_session_id(session_id):
        problems.add_invalid(option, value, "must be the id of a session, such as 5f0c6a52-3c0e-4f5e-9d0a-0f3c1d2e4b6a")
    return session_id


def parse_app_name(problems: ValidationErrors, option: str, value: Any) -> str:
    """Return ``value`` as the name of an app."""
    name = value if isinstance(value, str) else ""
    if not _APP.fullmatch(name):
        problems.add_invalid(option, value, "must have 1 to 32 of a-z, 0-9 and -, a letter first, no - last")
    return name


def parse_start_page(problems: ValidationErrors, option: str, value: Any) -> str:
    """Return ``value`` as the page that the links of an app open."""
    page = value if isinstance(value, str) else ""
    if not _PAGE.fullmatch(page):
        problems.add_invalid(option, value, "must be a path such as /status, with a query and a fragment if needed")
    return page


def choice(problems: ValidationErrors, option: str, value: Any, allowed: Sequence[str]) -> str:
    """Return ``value``, which must be one of ``allowed``."""
    if value in allowed:
        return str(value)
    problems.add_invalid(option, value, f"must be one of {', '.join(allowed)}")
    return allowed[0]


def integer(problems: ValidationErrors, option: str, value: Any, least: int, most: int) -> int:
    """Return ``value`` as a whole number from ``least`` to ``most``."""
    if not isinstance(value, bool) and re.fullmatch(r"\d{1,18}", str(value).strip()):
        number = int(value)
        if least <= number <= most:
            return number
    problems.add_invalid(option, value, f"must be a whole number from {least} to {most}")
    return least


def number_range(
    problems: ValidationErrors, option: str, value: Any, least: int, most: int, example: str
) -> tuple[int, int]:
    """Return the first and the last number of a range within ``least`` and ``most``; 0 and 0 if it is invalid."""
    text = string(problems, option, value)
    first, _dash, last = text.partition("-")
    if first.isdecimal() and last.isdecimal() and least <= int(first) <= int(last) <= most:
        return int(first), int(last)
    if text:
        problems.add_invalid(option, text, f"must be a range within {least}-{most}, such as {example}")
    return 0, 0


def string_list(problems: ValidationErrors, option: str, value: Any, separator: str = ",") -> tuple[str, ...]:
    """Return ``value`` as a tuple of strings; a plain string is split at ``separator``."""
    listed = _parse_json(value)
    if isinstance(listed, str):
        listed = [part for part in listed.split(separator) if part.strip()]
    if not isinstance(listed, Sequence):
        problems.add_invalid(option, value, "must be a list of texts")
        return ()
    return tuple(string(problems, f"{option}[{index}]", entry) for index, entry in enumerate(listed))


def list_of_mappings(
    problems: ValidationErrors, option: str, value: Any, allowed: Sequence[str]
) -> list[tuple[str, Mapping[str, Any]]]:
    """Return the mappings of a list, each with its path for messages; unknown keys are rejected."""
    decoded = _parse_json(value)
    if isinstance(decoded, str) or not isinstance(decoded, Sequence):
        problems.add_invalid(option, value, "must be a list of mappings")
        return []
    entries: list[tuple[str, Mapping[str, Any]]] = []
    for index, entry in enumerate(decoded):
        where = f"{option}[{index}]"
        if not isinstance(entry, Mapping):
            problems.add_invalid(where, entry, f"must be a mapping of {', '.join(allowed)}")
            continue
        for key in sorted(set(map(str, entry)) - set(allowed)):
            problems.add(f"{where}.{key} is not known; allowed are {', '.join(allowed)}")
        entries.append((where, entry))
    return entries


def _parse_json(value: Any) -> Any:
    """Return JSON text decoded, for values passed as ``-e name='{…}'``; other values unchanged."""
    if isinstance(value, str) and value.strip()[:1] in ("{", "["):
        try:
            return json.loads(value)
        except ValueError:
            return value
    return value
