# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Makes text from hosts, containers and registries safe to print: a terminal obeys nothing of it.

Escaped are the control characters C0 and C1, with which all escape sequences begin, except newline and tab; characters
that reorder text or hide in it (bidirectional controls, line separators, tags); and surrogates, which no file can
contain. They appear as in Python: ``\\x1b``, ``\\u202e``.
"""

from __future__ import annotations

import re
from typing import Any

_UNSAFE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\ud800-\udfff\U000e0000-\U000e007f]"
)

# The escapes of a JSON text that may be unsafe characters: all but those of newline, tab, quote and backslash.
_UNSAFE_JSON = re.compile(r"\\[ubfr]|[^\x00-\x7e]")

PLAN, PLAN_INPUTS = "plan", frozenset({"command", "mounts"})
"""The key of a session's plan, and the fields in it that are a user's own text: agents get them back as they are."""


def printable(text: str) -> str:
    """Return text with each unsafe character escaped; newlines and tabs remain."""
    return _UNSAFE.sub(_escape, text)


def printable_line(text: str) -> str:
    """Return text that is shown as one line, with each unsafe character escaped, and newlines too."""
    return printable(text.rstrip("\r")).replace("\n", "\\n")


def printable_data(value: Any, json_text: str | None = None) -> Any:
    """Return plain data with all of its text made safe, keys included, except :data:`PLAN_INPUTS`.

    ``json_text`` is the JSON that the data was parsed from: mostly it shows that there is nothing to escape.
    """
    if json_text is not None and not _UNSAFE_JSON.search(json_text):
        return value
    return _convert(value, in_plan=False)


def _convert(value: Any, *, in_plan: bool) -> Any:
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, list):
        return [_convert(item, in_plan=in_plan) for item in value]
    if isinstance(value, dict):
        return {
            printable(key): item if in_plan and key in PLAN_INPUTS else _convert(item, in_plan=in_plan or key == PLAN)
            for key, item in value.items()
        }
    return value


def _escape(match: re.Match[str]) -> str:
    return ascii(match[0])[1:-1]
