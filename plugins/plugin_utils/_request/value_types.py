# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Strict type checks of option values.

Ansible converts too much: 1.0 and true to a number, a mapping to text, ``a=b`` to a mapping. Such values are rejected
here first.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from ...module_utils._model.validation import ValidationErrors, integer

TIME_OPTIONS = frozenset(
    f"session_{name}"
    for name in (
        *("pending_timeout", "stop_grace", "max_lifetime", "idle_timeout", "max_lifetime_limit", "idle_timeout_limit"),
        *("agent_lost_after", "claim_ttl", "token_ttl"),
    )
)
"""The options that are times: of type text in the specification, and then in seconds."""


def check_number(problems: ValidationErrors, option: str, value: Any, least: int, most: int) -> None:
    """Add a problem unless a value is a whole number from ``least`` to ``most``; of a time, in words of times."""
    if option not in TIME_OPTIONS:
        integer(problems, option, value, least, most)
    elif isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        known = {"30s": 30, "90m": 5400, "12h": 43200, "7d": 604_800}
        examples = ", ".join(text for text, seconds in known.items() if least <= seconds <= most)
        problems.add_invalid(option, value, f"must be a time from {least} to {most} seconds, such as {examples}")


_BOOLEANS = ("true", "yes", "on", "1", "false", "no", "off", "0")
_INTEGER = re.compile(r"-?\d{1,18}")


def decode_value(option: Mapping[str, Any], value: Any, separator: str = ",") -> Any:
    """Return the mapping or list in a string, as passed by ``-e name=value``.

    The string is JSON, or for lists of texts or words also separated by ``separator``; any other value is returned
    unchanged.
    """
    kind = option["type"]
    if kind not in ("dict", "list") or not isinstance(value, str):
        return value
    if value.strip()[:1] in ("{", "["):
        try:
            return json.loads(value)
        except ValueError:
            return value
    split = [entry.strip() for entry in value.split(separator) if entry.strip()]
    return split if option.get("elements") in ("str", "raw") else value


def find_type_error(option: Mapping[str, Any], value: Any) -> str:
    """Return the requirement of an option's type that a value violates; empty if it is valid."""
    kind = option.get("type", "str")
    if kind == "int":
        fits = not isinstance(value, bool) and bool(_INTEGER.fullmatch(str(value).strip()))
        return "" if fits else "must be a whole number"
    if kind == "bool":
        return "" if str(value).lower() in _BOOLEANS else "must be true or false"
    if kind == "dict":
        return "" if isinstance(value, Mapping) else "must be a mapping"
    if kind == "raw" and isinstance(value, Mapping):
        return ""
    if kind == "list":
        listed = isinstance(value, Sequence) and not isinstance(value, (str, bytes))
        return "" if listed else f"must be a list of {'mappings' if 'options' in option else 'texts'}"
    return _find_text_error(option, value)


def _find_text_error(option: Mapping[str, Any], value: Any) -> str:
    if option.get("no_log"):
        fits = isinstance(value, str) and "\0" not in value
        return "" if fits else "must be the text of a shell script"
    if isinstance(value, str) or (isinstance(value, (int, float)) and not isinstance(value, bool)):
        # A choice is used unchanged, any other text without surrounding whitespace.
        line = str(value) if "choices" in option else str(value).strip()
        number = option.get("required") and not isinstance(value, str)
        if "\n" not in line and (line or value == option.get("default") == "") and not number:
            return ""
    return "must be a line of text"
