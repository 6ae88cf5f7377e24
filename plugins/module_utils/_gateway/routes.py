# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Routes of a gateway to sessions, and the HAProxy maps and user links that follow from them.

A route consists of the endpoints of a session and the gateway's port for its sshd.
"""

from __future__ import annotations

import dataclasses
import ipaddress
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from .._model.addressing import free_ports, is_address
from .._model.session import KEEP, PATHS, STRIP, link_prefix
from .._model.validation import (
    ValidationError,
    ValidationErrors,
    choice,
    integer,
    list_of_mappings,
    parse_app_name,
    parse_session_id,
    parse_session_name,
    parse_start_page,
    string,
)
from .model import Gateway

# The maps, by the names of their files.
APPS, HOSTS, SSH = "apps.map", "hosts.map", "ssh.map"

Map = dict[str, str]

_PROTOCOLS = ("http", "tcp")


@dataclasses.dataclass(frozen=True)
class Endpoint:
    """Address and TCP port of a service of main1: an IPv4 or IPv6 address of its agent."""

    address: str
    port: int


@dataclasses.dataclass(frozen=True)
class RoutedApp:
    """An app of main1. Only apps with protocol ``http`` are reachable through HTTPS.

    ``path`` and ``start`` are those of :class:`App`.
    """

    name: str
    protocol: str
    endpoint: Endpoint
    path: str = STRIP
    start: str = "/"


@dataclasses.dataclass(frozen=True)
class Route:
    """The route to one session; ``ssh_port`` is the port of the gateway that leads to ``ssh``, once assigned."""

    id: str
    name: str
    apps: tuple[RoutedApp, ...] = ()
    ssh: Endpoint | None = None
    ssh_port: int | None = None

    @property
    def endpoints(self) -> list[Endpoint]:
        """All endpoints of the session."""
        return [*([self.ssh] if self.ssh else []), *(app.endpoint for app in self.apps)]

    def without_endpoints(self, taken: Collection[Endpoint]) -> Route:
        """Return the route without endpoints that now belong to other sessions."""
        return dataclasses.replace(
            self,
            apps=tuple(app for app in self.apps if app.endpoint not in taken),
            ssh=None if self.ssh in taken else self.ssh,
            ssh_port=None if self.ssh in taken else self.ssh_port,
        )


def parse_routes(value: Any) -> list[Route]:
    """Return the routes of the option ``routes``; raises :class:`ValidationError` with a sentence for each problem."""
    problems = ValidationErrors()
    routes = [
        _parse_route(problems, where, entry) for where, entry in list_of_mappings(problems, "routes", value, _KEYS)
    ]
    for field, values in (
        ("id", [route.id for route in routes]),
        ("name", [route.name for route in routes]),
        ("endpoint", [f"{end.address} port {end.port}" for route in routes for end in route.endpoints]),
    ):
        for duplicate in sorted({value for value in values if values.count(value) > 1}):
            problems.add_invalid("routes", duplicate, f"is the {field} of more than one route")
    if problems:
        raise ValidationError(str(problems))
    return routes


@dataclasses.dataclass(frozen=True)
class Vacated:
    """A session that an agent no longer holds, and the address of that agent: only a route to it is removed."""

    id: str
    address: str


def parse_vacated(value: Any) -> list[Vacated]:
    """Return the sessions of the option ``vacated``. Raises :class:`ValidationError`."""
    problems = ValidationErrors()
    vacated = [
        Vacated(
            parse_session_id(problems, f"{where}.id", entry.get("id")),
            _parse_address(problems, f"{where}.address", entry.get("address")),
        )
        for where, entry in list_of_mappings(problems, "vacated", value, ("id", "address"))
    ]
    problems.raise_if_any()
    return vacated


def check_route(route: Route) -> None:
    """Raise :class:`ValidationError` for a route that :func:`parse_routes` would not have returned."""
    option: dict[str, Any] = {
        "id": route.id,
        "name": route.name,
        "apps": [_plain_app(app) for app in route.apps],
        "ssh": _plain(route.ssh) if route.ssh else None,
    }
    parse_routes([option])
    if not 0 < (1 if route.ssh_port is None else route.ssh_port) < 65536:
        raise ValidationError("ssh_port must be a port.")


def _plain_app(app: RoutedApp) -> dict[str, Any]:
    own = {"name": app.name, "protocol": app.protocol, "path": app.path, "start": app.start}
    return {**own, **_plain(app.endpoint)}


def _plain(endpoint: Endpoint) -> dict[str, Any]:
    return {"address": endpoint.address, "port": endpoint.port}


def merge_routes(
    existing: Mapping[str, Route], requested: Sequence[Route], removed: Collection[str], purge: bool, gateway: Gateway
) -> dict[str, Route]:
    """Return the routes by session id: ``existing`` without those in ``removed``, plus ``requested``.

    With ``purge``, only the requested ones are kept. A name or an endpoint belongs to one session: the latest that
    requests it. If no port is left, the sshd of a new session has none.
    """
    requested_ids = {route.id for route in requested}
    names = {route.name for route in requested}
    taken = {endpoint for route in requested for endpoint in route.endpoints}
    retained = [
        route.without_endpoints(taken)
        for route in existing.values()
        if not purge and route.id not in requested_ids and route.id not in removed and route.name not in names
    ]
    ports = {route.id: route.ssh_port for route in existing.values() if route.ssh_port is not None}
    return _assign_ports([*retained, *requested], ports, gateway)


def describe_without_port(routes: Iterable[Route], gateway: Gateway) -> list[str]:
    """Return a sentence for each session whose sshd has no port of the gateway."""
    pool = f"{gateway.first_ssh_port}-{gateway.last_ssh_port}"
    return [
        f"gateway_ssh_ports: {pool} has no port left for session {route.name} ({route.id}): it cannot be reached by SSH"
        " until another one ends and schedule_sessions has run; set a larger range."
        for route in routes
        if route.ssh and route.ssh_port is None
    ]


def build_haproxy_maps(routes: Iterable[Route], gateway: Gateway) -> dict[str, Map]:
    """Return the maps of HAProxy by file name: ``ID@PORT@ADDRESS``, of apps with their path, and apps by host name."""
    maps: dict[str, Map] = {APPS: {}, HOSTS: {}, SSH: {}}
    for route in sorted(routes, key=lambda entry: entry.name):
        for app in _http_apps(route):
            target = f"{route.name}/{app.name}"
            maps[APPS][target] = f"{_format_target(route, app.endpoint)}@{app.path}"
            host = gateway.app_hostname(route.name, app.name)
            if host:
                maps[HOSTS][host] = target
        if route.ssh and route.ssh_port is not None:
            maps[SSH][str(route.ssh_port)] = _format_target(route, route.ssh)
    return maps


def build_app_links(route: Route, gateway: Gateway) -> dict[str, Any]:
    """Return the links of a session: ``id``, ``name``, ``ssh`` with ``host`` and ``port``, and the ``url`` of apps.

    An app without HTTP has no URL: users reach it through SSH port forwarding.
    """
    return {
        "id": route.id,
        "name": route.name,
        "ssh": {"host": gateway.hostname, "port": route.ssh_port} if route.ssh_port is not None else None,
        "apps": [
            {"name": app.name, "protocol": app.protocol, "url": _app_url(route, app, gateway)} for app in route.apps
        ],
    }


_KEYS = ("id", "name", "apps", "ssh")
_APP_KEYS = ("name", "protocol", "address", "port", "path", "start")
_SSH_KEYS = ("address", "port")


def _parse_route(problems: ValidationErrors, where: str, entry: Mapping[str, Any]) -> Route:
    session_id = parse_session_id(problems, f"{where}.id", entry.get("id"))
    if not entry.get("id"):
        problems.add(f"{where}.id is required")
    name = parse_session_name(problems, f"{where}.name", entry.get("name"))
    listed = list_of_mappings(problems, f"{where}.apps", entry.get("apps") or [], _APP_KEYS)
    apps = tuple(_parse_app(problems, place, app) for place, app in listed)
    for duplicate in sorted({app.name for app in apps if [other.name for other in apps].count(app.name) > 1}):
        problems.add_invalid(f"{where}.apps", duplicate, "is the name of more than one app")
    ssh_entries = list_of_mappings(problems, f"{where}.ssh", [entry["ssh"]] if entry.get("ssh") else [], _SSH_KEYS)
    ssh = [_parse_endpoint(problems, f"{where}.ssh", ssh_entry) for _place, ssh_entry in ssh_entries]
    return Route(session_id, name, apps, ssh[0] if ssh else None)


def _parse_app(problems: ValidationErrors, where: str, entry: Mapping[str, Any]) -> RoutedApp:
    name = parse_app_name(problems, f"{where}.name", entry.get("name"))
    protocol = choice(problems, f"{where}.protocol", entry.get("protocol", "http"), _PROTOCOLS)
    path = choice(problems, f"{where}.path", entry.get("path", STRIP), PATHS)
    start = parse_start_page(problems, f"{where}.start", entry.get("start", "/"))
    return RoutedApp(name, protocol, _parse_endpoint(problems, where, entry), path, start)


def _parse_endpoint(problems: ValidationErrors, where: str, entry: Mapping[str, Any]) -> Endpoint:
    address = _parse_address(problems, f"{where}.address", entry.get("address"))
    return Endpoint(address, integer(problems, f"{where}.port", entry.get("port"), 1, 65535))


def _parse_address(problems: ValidationErrors, where: str, value: Any) -> str:
    address = string(problems, where, value)
    if address and not is_address(address):
        problems.add_invalid(where, address, "must be an IPv4 or IPv6 address")
    return str(ipaddress.ip_address(address)) if is_address(address) else ""


def _assign_ports(routes: Sequence[Route], ports: Mapping[str, int], gateway: Gateway) -> dict[str, Route]:
    """Return the routes with a port for each sshd while there are any; a session keeps its current one in ``ports``."""
    first, last = gateway.first_ssh_port, gateway.last_ssh_port
    kept = {route.id: ports[route.id] for route in routes if route.ssh and first <= ports.get(route.id, 0) <= last}
    used = set(kept.values())
    for route in routes:
        if route.ssh and route.id not in kept:
            port = next(free_ports(first, last, used, route.id), None)
            if port is not None:
                kept[route.id] = port
                used.add(port)
    return {route.id: dataclasses.replace(route, ssh_port=kept.get(route.id)) for route in routes}


def _http_apps(route: Route) -> list[RoutedApp]:
    return [app for app in route.apps if app.protocol == "http"]


def _format_target(route: Route, endpoint: Endpoint) -> str:
    return f"{route.id}@{endpoint.port}@{endpoint.address}"


def _app_url(route: Route, app: RoutedApp, gateway: Gateway) -> str | None:
    if app not in _http_apps(route):
        return None
    origins = gateway.app_origins(route.name, app.name, app.path)
    by_host, prefix = gateway.app_hostname(route.name, app.name), link_prefix(route.name, app.name)
    return f"{origins[0]}{prefix if app.path == KEEP or not by_host else ''}{app.start}" if origins else None
