# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The version of the engine's API that every call names: the newest that the engine and this collection know."""

from __future__ import annotations

import re
from typing import Any

OLDEST, NEWEST = "1.41", "1.56"
"""The versions of the API by whose descriptions this collection calls engines: from that of engine 20.10 on."""

ENDPOINT_MAC = RECURSIVE = UNIQUE_NAMES = "1.44"
"""Since then a MAC address belongs to an endpoint, engines make read-only mounts read-only as a whole, and refuse
networks with names that exist, whatever the request says."""

_VERSION = re.compile(r"\d+\.\d+", re.ASCII)


def is_version(text: str) -> bool:
    """Return whether a text is a version of the API."""
    return _VERSION.fullmatch(text) is not None


def agree(newest_of_engine: str) -> str | None:
    """Return the version to name, given the newest that the engine knows; ``None`` if it knows none of ours."""
    if _parts(newest_of_engine) < _parts(OLDEST):
        return None
    return min(newest_of_engine, NEWEST, key=_parts)


def speaks(client: Any, version: str) -> bool:
    """Return whether a client names this version of the API or a newer one."""
    return _parts(str(client.api_version)) >= _parts(version)


def newer_than_known(newest_of_engine: str) -> str:
    """Return a sentence about an engine that is newer than this collection; empty if it is not."""
    if _parts(newest_of_engine) <= _parts(NEWEST):
        return ""
    return (
        f"the engine is newer than this version of backendai.cluster: it knows API {newest_of_engine}, and is called by"
        f" API {NEWEST}, the newest that has been looked at; upgrade backendai.cluster when there is a newer version."
    )


def _parts(version: str) -> tuple[int, int]:
    major, minor = version.split(".")[:2]
    return int(major), int(minor)
