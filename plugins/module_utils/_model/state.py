# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The text of state files: JSON with the version of its form, so that a release knows what it cannot read."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

# Raised when a release can no longer read what the one before it wrote, or the other way round.
VERSION = 1


def dump_state(data: Mapping[str, Any], indent: int | None = None) -> str:
    """Return plain data as the text of a state file."""
    return json.dumps({"version": VERSION, **data}, indent=indent)


def load_state(text: str | bytes) -> dict[str, Any]:
    """Return the data of a state file. Files without a version are of the first one.

    Raises :class:`ValueError` for what is no mapping, and for a file of a newer release.
    """
    data = json.loads(text)
    if not isinstance(data, dict):
        raise ValueError("it holds no mapping")
    version = data.pop("version", 1)
    if not isinstance(version, int) or version > VERSION:
        raise ValueError(
            f"it is of a newer release, whose state has version {version!r}: update backendai.cluster here"
        )
    return data
