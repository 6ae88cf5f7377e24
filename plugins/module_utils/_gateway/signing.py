# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A token for one of the sessions that a gateway leads to, sealed for whoever asked for it."""

from __future__ import annotations

import time
from typing import Any

from ansible_collections.backendai.cluster.plugins.module_utils._gateway.errors import GatewayFault
from ansible_collections.backendai.cluster.plugins.module_utils._gateway.routes import Route, links_of
from ansible_collections.backendai.cluster.plugins.module_utils._gateway.sealed import seal
from ansible_collections.backendai.cluster.plugins.module_utils._gateway.store import GatewayStore
from ansible_collections.backendai.cluster.plugins.module_utils._gateway.token import (
    LEAST_SECONDS,
    MOST_SECONDS,
    claims_of,
    sign,
)


def sealed_token(store: GatewayStore, name: str, session_id: str, seconds: int, reader: str) -> dict[str, Any]:
    """Return ``session``, ``links``, ``expires_at`` and the token ``sealed`` for a reader; not that without a reader.

    Raises GatewayFault where there is no such session, and ValueError for a lifetime that is not allowed.
    """
    if not LEAST_SECONDS <= seconds <= MOST_SECONDS:
        raise ValueError(f"ttl: {seconds} must be a whole number from {LEAST_SECONDS} to {MOST_SECONDS}")
    with store.lock():
        gateway = store.gateway()
        route = _find(store, name, session_id)
    claims = claims_of(route.id, route.name, int(time.time()), seconds)
    sealed = {"sealed": seal(reader, sign(store.key, claims))} if reader else {}
    session = {"id": route.id, "name": route.name}
    return {"session": session, "links": links_of(route, gateway), "expires_at": claims["exp"], **sealed}


def _find(store: GatewayStore, name: str, session_id: str) -> Route:
    found = [
        route
        for route in store.routes().values()
        if name in ("", route.name) and session_id in ("", route.id) and (name or session_id)
    ]
    if len(found) != 1:
        asked = " and ".join(f"{key} {value!r}" for key, value in (("name", name), ("id", session_id)) if value)
        raise GatewayFault(f"there is no session with the {asked} behind this gateway")
    return found[0]
