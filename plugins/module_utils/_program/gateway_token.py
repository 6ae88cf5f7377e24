# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The token phase: a gateway signs tokens. Apart from its routes, which need no cryptography."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .._gateway.store import GatewayStore
from .._gateway.token import issue_token


def token(options: Mapping[str, Any], check_mode: bool) -> dict[str, Any]:
    """Sign a token for the session of that ``name`` or ``session_id``, which is valid for ``ttl`` seconds.

    Returns the ``token``, which check mode has none of, the ``session``, its ``links`` and when the token
    ``expires_at``.
    """
    store, seconds = GatewayStore(options["state_path"]), options["ttl"]
    issued = issue_token(store, options["name"], options["session_id"], seconds, check_mode=check_mode)
    return {"changed": True, **issued}
