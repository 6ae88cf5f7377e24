# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Applies routes on a gateway: its files, the maps of the running HAProxy, the firewall table."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from .._firewall.table import Table
from .._host.files import DesiredFile, plan_files, write_files
from .._model.change import Change
from .haproxy import Haproxy, HaproxyNotRunningError, MapChange
from .model import Gateway
from .routes import (
    Map,
    Route,
    Vacated,
    build_app_links,
    build_haproxy_maps,
    describe_without_port,
    merge_routes,
)
from .store import GatewayStore

GATEWAYS_TABLE = Table("backendai_gateway", "provision_gateways")


def render_gateway_table(ports: Iterable[int], gateway: Gateway) -> str:
    """Return an ``nft`` file for a table that allows new connections only at these ports of the SSH port range.

    Loading it replaces the table atomically.
    """
    listed = ", ".join(str(port) for port in sorted(ports))
    elements = f"\n        elements = {{ {listed} }}" if listed else ""
    span = f"{gateway.first_ssh_port}-{gateway.last_ssh_port}"
    return f"""\
# Written by the module backendai.cluster.gateway_routes.
{GATEWAYS_TABLE}
delete {GATEWAYS_TABLE}
{GATEWAYS_TABLE} {{
    set ssh_ports {{
        type inet_service{elements}
    }}
    chain input {{
        type filter hook input priority filter; policy accept;
        # Established connections of a terminated session are not dropped here: they end with its containers.
        tcp dport {span} tcp dport != @ssh_ports ct state new counter drop
    }}
}}
"""


NOT_RUNNING = (
    "HAProxy is not running on this gateway: its routes take effect when it starts"
    " (see systemctl status backendai-gateway)."
)


@dataclasses.dataclass(frozen=True)
class RoutesRequest:
    """Routes to add to a gateway, and those to remove: with ``purge`` all others, else those of ended sessions.

    ``ended`` are the ids of ended sessions. ``vacated`` are sessions whose agents no longer hold them.
    """

    routes: Sequence[Route]
    ended: Collection[str]
    purge: bool
    vacated: Collection[Vacated] = ()


@dataclasses.dataclass(frozen=True)
class RoutesResult:
    """The changes, the links of the requested sessions, and warnings for the operator.

    ``unrouted`` are the ids of the sessions of which nothing leads to the agent any longer, nor will: those of the
    request's ``ended`` and ``vacated``.
    """

    changes: list[Change]
    links: list[dict[str, Any]]
    warnings: list[str]
    unrouted: list[str] = dataclasses.field(default_factory=list)


def apply_routes(store: GatewayStore, haproxy: Haproxy, request: RoutesRequest, *, check_mode: bool) -> RoutesResult:
    """Apply the requested routes on a gateway; with ``check_mode``, only return the changes.

    Files are written first, so that services that start meanwhile read the new state. Running services are then
    compared with the files. A session that has ended gets no route again unless with ``purge``: another run may have
    read its agents before the end. A session for whose sshd no port is left has its apps. Raises GatewayError and
    FirewallError.
    """
    with store.lock():
        gateway = store.gateway()
        existing, damaged = store.routes()
        ended = {*request.ended} | (set() if request.purge else store.ended())
        requested = [route for route in request.routes if route.id not in ended]
        removed = {*ended, *_find_vacated(existing, request.vacated)}
        routes = merge_routes(existing, requested, removed, request.purge, gateway)
        # Nothing is deleted that cannot be read, unless its session has ended.
        over = {*ended, *(session.id for session in request.vacated)}
        kept = {} if request.purge else {name: damaged[name] for name in damaged.keys() - {*over, *routes}}
        maps = build_haproxy_maps(routes.values(), gateway)
        table = render_gateway_table(
            (route.ssh_port for route in routes.values() if route.ssh_port is not None), gateway
        )
        files = plan_files(
            [*store.plan_route_files(routes, kept), *_map_files(store, maps), DesiredFile(store.table, table)]
        )
        table_changes = GATEWAYS_TABLE.plan(table)
        running = _plan_running_maps(store, haproxy, maps)
        if not check_mode:
            store.save_ended(request.ended, purge=request.purge)
            write_files(file for file, _change in files)
            if table_changes:
                GATEWAYS_TABLE.apply(table)
            haproxy.apply([map_change for map_change, _change in running or []])
    changes = [*(change for _file, change in files), *table_changes, *(change for _map, change in running or [])]
    links = [build_app_links(routes[route.id], gateway) for route in requested]
    unrouted = sorted({*request.ended, *(session.id for session in request.vacated)})
    warnings = [
        f"routes: session {route.name} ({route.id}) has ended, so it gets no route."
        for route in request.routes
        if route.id in ended
    ]
    warnings += describe_without_port(routes.values(), gateway)
    warnings += [*sorted(kept.values()), *([NOT_RUNNING] if running is None and routes else [])]
    return RoutesResult(changes, links, warnings, unrouted)


def _find_vacated(existing: Mapping[str, Route], vacated: Iterable[Vacated]) -> set[str]:
    """Return the ids of routes that lead to an agent that no longer holds the session."""
    return {
        session.id
        for session in vacated
        if session.id in existing and session.address in {end.address for end in existing[session.id].endpoints}
    }


def _map_files(store: GatewayStore, maps: dict[str, Map]) -> list[DesiredFile]:
    return [
        DesiredFile(store.maps / name, "".join(f"{key} {value}\n" for key, value in entries.items()))
        for name, entries in maps.items()
    ]


def _plan_running_maps(
    store: GatewayStore, haproxy: Haproxy, maps: dict[str, Map]
) -> list[tuple[MapChange, Change]] | None:
    """Return the differences of the maps of the running HAProxy; ``None`` if it is not running."""
    try:
        planned = [haproxy.plan(store.maps / name, entries) for name, entries in maps.items()]
    except HaproxyNotRunningError:
        return None
    return [change for change in planned if change]
