# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The routes phase: manages the session routes of a gateway."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .._gateway.haproxy import Haproxy
from .._gateway.routes import parse_routes, parse_vacated
from .._gateway.routing import RoutesRequest, apply_routes
from .._gateway.store import GatewayStore
from .._model.change import as_diff


def routes(options: Mapping[str, Any], check_mode: bool) -> dict[str, Any]:
    """Add the routes of sessions in ``routes``, and remove those that ``ended`` or, with ``purge``, all others.

    ``vacated`` are sessions that an agent no longer holds, with its address. Returns ``changed``, ``diff``,
    ``warnings``, the ``links`` for users to the sessions of ``routes``, and the ids of ended and vacated sessions as
    ``unrouted``: they have no route any longer.
    """
    request = RoutesRequest(
        parse_routes(options["routes"]),
        options["ended"],
        options["purge"],
        vacated=parse_vacated(options["vacated"]),
    )
    result = apply_routes(GatewayStore(options["state_path"]), Haproxy(), request, check_mode=check_mode)
    changes = result.changes
    return {
        "changed": bool(changes),
        "diff": as_diff(changes),
        "links": result.links,
        "warnings": result.warnings,
        "unrouted": result.unrouted,
    }
