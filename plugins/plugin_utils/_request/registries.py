# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Validates ``session_registries``, the credentials of image registries."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ...module_utils._model.images import Credential, normalize_host
from ...module_utils._model.validation import ValidationErrors
from .containers import parse_mapping

OPTION = "session_registries"
KEYS = ("username", "password")
WHAT = "a mapping of registries to username and password"

_HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?(:\d{1,5})?|\[[0-9A-Fa-f:]+\](:\d{1,5})?")


def parse_registries(problems: ValidationErrors, value: Any) -> dict[str, Credential]:
    """Return the credentials by registry; problems contain the path of a wrong value, never the value."""
    credentials = {}
    for host, entry in parse_mapping(problems, OPTION, value, WHAT).items():
        if not _HOST.fullmatch(host):
            problems.add(f"{OPTION}: {host!r} is not a registry host, such as registry.example.com:5000")
        credentials[normalize_host(host)] = _parse_credential(problems, f"{OPTION}.{host}", entry)
    return credentials


def _parse_credential(problems: ValidationErrors, where: str, value: Any) -> Credential:
    if not isinstance(value, Mapping):
        problems.add(f"{where} must be a mapping of {' and '.join(KEYS)}")
        return Credential("", "")
    for key in sorted(set(map(str, value)) - set(KEYS)):
        problems.add(f"{where}.{key} is not known; allowed are {', '.join(KEYS)}")
    return Credential(*(_parse_line(problems, f"{where}.{key}", value.get(key)) for key in KEYS))


def _parse_line(problems: ValidationErrors, where: str, value: Any) -> str:
    if isinstance(value, (str, int)) and not isinstance(value, bool) and re.fullmatch(r"[^\r\n\0]+", str(value)):
        return str(value)
    problems.add(f"{where} must be one line of text")
    return ""
