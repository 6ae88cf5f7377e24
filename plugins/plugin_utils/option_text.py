# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Lists and mappings of options that arrive as texts: from inventories in INI format, or by ``-e name=value``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import yaml


def decode_brackets(value: Any) -> Any:
    """Return the list or mapping in a text that begins as one, in JSON or YAML; any other value unchanged.

    Raises :class:`ValueError` with a sentence.
    """
    if not isinstance(value, str) or value.strip()[:1] not in ("[", "{"):
        return value
    try:
        return yaml.safe_load(value)
    except (yaml.YAMLError, RecursionError):
        raise ValueError(f"{value!r} begins as a list or a mapping, and is none: write it in JSON") from None


def decode_list(value: Any) -> Any:
    """Return the list in a text: in brackets, or separated by commas. Raises :class:`ValueError` with a sentence."""
    found = decode_brackets(value)
    if isinstance(found, str):
        return [entry.strip() for entry in found.split(",") if entry.strip()]
    if isinstance(found, Sequence) or found is value:
        return found
    raise ValueError(f'{value!r} is no list: write it in JSON, as ["first", "second"]')


def decode_mapping(value: Any) -> Mapping[str, Any]:
    """Return the mapping in a text. Raises :class:`ValueError` with a sentence."""
    found = decode_brackets(value)
    if isinstance(found, Mapping):
        return found
    raise ValueError(f'{value!r} is no mapping: write it in JSON, as {{"name": "value"}}')
