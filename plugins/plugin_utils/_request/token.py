# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a user says who asks for a token: for which session, for how long, and where it goes."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from ansible_collections.backendai.cluster.plugins.module_utils._gateway.token import LEAST_SECONDS, MOST_SECONDS
from ansible_collections.backendai.cluster.plugins.module_utils._model.validation import (
    Problems,
    SpecError,
    id_of,
    name_of,
    text,
    whole_number,
)
from ansible_collections.backendai.cluster.plugins.plugin_utils._request.spec import refuse_unknown


@dataclasses.dataclass(frozen=True)
class TokenRequest:
    """One of ``name`` and ``session_id`` may be empty. ``seconds`` is for how long, ``path`` a file."""

    name: str
    session_id: str
    seconds: int
    path: str


def parse_token_request(args: Mapping[str, Any], variables: Mapping[str, Any]) -> TokenRequest:
    """Return what the options of ``gateway_token`` ask; raises :class:`SpecError`, which names the variables.

    Among the ``variables`` of the run, those that begin with ``session_`` have to be known.
    """
    problems = Problems()
    refuse_unknown(variables, problems)
    session_id = id_of(problems, "session_id", args.get("session_id"))
    name = name_of(problems, "session_name", args.get("name")) if args.get("name") or not session_id else ""
    seconds = whole_number(problems, "session_token_ttl", args.get("ttl", 3600), LEAST_SECONDS, MOST_SECONDS)
    path = text(problems, "session_token_path", args.get("path") or None)
    if problems:
        raise SpecError(str(problems))
    return TokenRequest(name, session_id, seconds, path)
