# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""User access to main1: the routes for gateways, and the links and SSH configuration for users."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ...module_utils._model.plan import SessionPlan
from ...module_utils._model.printable import printable_line
from ...module_utils._model.session import SSH


def build_gateway_route(plan: SessionPlan) -> dict[str, Any]:
    """Return the published endpoints of a session as a route for ``backendai.cluster.gateway_routes``."""
    endpoints = {port.name: {"address": port.address, "port": port.host_port} for port in plan.published}
    ssh = endpoints.pop(SSH, None)
    apps = [
        {"name": app.name, "protocol": app.protocol, "path": app.path, "start": app.start, **endpoints[app.name]}
        for app in plan.apps
        if app.name in endpoints
    ]
    return {"id": plan.id, "name": plan.name, "apps": apps, "ssh": ssh}


def session_links(session_id: str, gateways: Mapping[str, Iterable[Mapping[str, Any]]]) -> list[dict[str, Any]]:
    """Return the links to one session, one for each gateway; ``gateways`` are the links that each returned, by name.

    A link has ``gateway`` (its name), ``ssh`` (``host`` and ``port``, or ``None``) and ``apps`` (``name`` and ``url``,
    which is ``None`` for an app that does not use HTTP).
    """
    return [
        {
            "gateway": gateway,
            "ssh": link["ssh"],
            "apps": [{"name": app["name"], "url": app["url"]} for app in link["apps"]],
        }
        for gateway, links in sorted(gateways.items())
        for link in links
        if link["id"] == session_id
    ]


def render_access(name: str, links: Iterable[Mapping[str, Any]], host_key: str = "") -> list[str]:
    """Return the links as lines of text; the links of apps contain no token but the command that creates one.

    ``host_key`` is that of main1, such as ``ssh-ed25519 AAAA…``; empty if it is not known.
    """
    lines: list[str] = []
    apps = []
    for link in links:
        if link["ssh"]:
            lines += [
                f"Put this into ~/.ssh/config for `ssh {name}`, through {link['gateway']}:",
                f"  Host {name}",
                f"    HostName {link['ssh']['host']}",
                f"    Port {link['ssh']['port']}",
                "    User work",
            ]
            known_host = f"  [{link['ssh']['host']}]:{link['ssh']['port']} {host_key}"
            lines += ["and this into ~/.ssh/known_hosts:", known_host] if host_key else []
        apps += [f"  {app['name']:<16} {app['url'] or f'no link, use ssh -L: {name}'}" for app in link["apps"]]
    if apps:
        token = f"backendai.cluster.session_token -e session_name={name} -e session_token_path=FILE"
        lines += ["Its apps require a token:", *apps, f"Create a token with ansible-playbook -i INVENTORY {token}"]
    return [printable_line(line) for line in lines]
