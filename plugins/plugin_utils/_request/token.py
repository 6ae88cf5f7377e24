# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Validates the request for a token: its session, lifetime and output path."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from ...module_utils._gateway.token import MAX_TTL, MIN_TTL
from ...module_utils._model.validation import ValidationErrors, integer, parse_session_id, parse_session_name, string


@dataclasses.dataclass(frozen=True)
class TokenRequest:
    """One of ``name`` and ``session_id`` may be empty. ``seconds`` is the lifetime, ``path`` a file."""

    name: str
    session_id: str
    seconds: int
    path: str


def parse_token_request(problems: ValidationErrors, args: Mapping[str, Any]) -> TokenRequest:
    """Return the request from the options of ``gateway_token``; problems contain the names of variables."""
    session_id = parse_session_id(problems, "session_id", args.get("session_id"))
    name = parse_session_name(problems, "session_name", args.get("name")) if args.get("name") or not session_id else ""
    seconds = integer(problems, "session_token_ttl", args.get("ttl", 3600), MIN_TTL, MAX_TTL)
    path = string(problems, "session_token_path", args.get("path") or None)
    return TokenRequest(name, session_id, seconds, path)
