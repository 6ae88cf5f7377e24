# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The description of a session: a YAML file of the user, and options of the command line, which win."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml

from ..errors import RefusedError
from ..files import read_regular_file
from ..options import PREFIX
from ..protocol import MAX_REQUEST

MAX_VALUES = 100_000
"""How many values a spec may have once its aliases are followed."""


def read_spec(path: str) -> dict[str, Any]:
    """Return the options in a YAML file, or on standard input for ``-``, by their names without ``session_``.

    Raises :class:`RefusedError` for a file that is none, too large, or no mapping.
    """
    try:
        content = _read_stdin() if path == "-" else read_regular_file(Path(path), MAX_REQUEST)
        data = yaml.safe_load(content.decode())
    except OSError as error:
        raise RefusedError(f"{path} cannot be read: {error.strerror}.") from None
    except yaml.MarkedYAMLError as error:
        where = f" in line {error.problem_mark.line + 1}" if error.problem_mark else ""
        raise RefusedError(f"{path} is not YAML{where}: {error.problem}.") from None
    except (UnicodeDecodeError, yaml.YAMLError, RecursionError):
        raise RefusedError(f"{path} is not YAML in UTF-8.") from None
    except ValueError as error:
        raise RefusedError(f"{path} cannot be read: {error}.") from None
    if not isinstance(data, dict):
        raise RefusedError(f"{path} must be a mapping of a session's words; backendai template prints one.")
    _check_plain(path, data)
    return {str(name).removeprefix(PREFIX): value for name, value in data.items()}


def _read_stdin() -> bytes:
    if stat.S_ISREG(os.fstat(0).st_mode) or not sys.stdin.isatty():
        content = sys.stdin.buffer.read(MAX_REQUEST + 1)
        if len(content) > MAX_REQUEST:
            raise ValueError(f"it is larger than {MAX_REQUEST} bytes")
        return content
    raise ValueError("standard input is a terminal")


def _check_plain(path: str, data: Any) -> None:
    """Refuse what JSON does not have, such as dates, and aliases that make a small file a huge value."""
    remaining, open_values = MAX_VALUES, [data]
    while open_values:
        value = open_values.pop()
        remaining -= 1
        if remaining < 0:
            raise RefusedError(f"{path} has more than {MAX_VALUES} values; its aliases count as what they stand for.")
        if isinstance(value, dict):
            if not all(isinstance(name, (str, int, float, bool)) for name in value):
                raise RefusedError(f"{path} has a key that is not a text.")
            open_values += value.values()
        elif isinstance(value, list):
            open_values += value
        elif value is not None and not isinstance(value, (str, int, float, bool)):
            raise RefusedError(
                f"{path} has the value {str(value)[:40]!r}, which is no text or number: put it in quotes."
            )


def parse_assignments(flag: str, texts: Iterable[str]) -> dict[str, str]:
    """Return ``NAME=VALUE`` texts as a mapping. Raises :class:`RefusedError` for others."""
    pairs = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise RefusedError(f"{flag} takes NAME=VALUE, not {text[:80]!r}.")
        pairs[name] = value
    return pairs


def merge(spec: dict[str, Any], flags: Mapping[str, Any]) -> dict[str, Any]:
    """Return a spec with the options of the command line: mappings are completed, all else is replaced."""
    merged = dict(spec)
    for name, value in flags.items():
        before = merged.get(name)
        merged[name] = {**before, **value} if isinstance(before, dict) and isinstance(value, dict) else value
    return merged
