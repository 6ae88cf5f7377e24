# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Tells the variables that were derived for a container from an image's own, in images that were made of containers.

A label of the container, which such images keep, has their names with digests of their values. What was set again
since, as in an image that was built from such an image, has another value, and counts as the image's own.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping

_LENGTH = 16


def describe_derived(derived: Mapping[str, str]) -> str:
    """Return the text of the label for variables that are derived for a container."""
    return json.dumps({name: _digest(value) for name, value in sorted(derived.items())})


def still_derived(label: str | None, environment: Mapping[str, str]) -> frozenset[str]:
    """Return which variables of an image were derived; none if it has no such label, or one that cannot be read."""
    try:
        described = json.loads(label or "{}")
    except ValueError:
        return frozenset()
    if not isinstance(described, dict):
        return frozenset()
    return frozenset(name for name, value in environment.items() if described.get(name) == _digest(value))


def _digest(value: str) -> str:
    return hashlib.sha256(value.encode(errors="surrogateescape")).hexdigest()[:_LENGTH]
