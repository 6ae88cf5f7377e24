# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The phases that verify isolation: agents and gateways return their addresses, probe hosts scan them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .._exposure.prober import ProbeRequest, probe_host
from .._exposure.targets import collect_agent_targets, collect_gateway_targets
from .._firewall.state import FirewallState
from .._host.store import Store
from .._model.addressing import is_address
from .._model.port_ranges import parse_ranges


def targets(options: Mapping[str, Any], _check_mode: bool) -> dict[str, Any]:
    """Return the ``addresses`` of this host and its containers, each with a description, and its ``udp_ports``.

    ``kind`` is ``agent``, with ``docker_host`` and ``wireguard_port``, or ``gateway``, with ``state_path`` and
    ``https_port``; the ``firewall_mode`` is read from ``firewall_state_path``. ``expected`` are the TCP ports that may
    be open, each with its purpose, ``unread`` the errors of reading any of these.
    """
    mode = {"firewall_mode": FirewallState(Store(options["firewall_state_path"])).mode}
    if options["kind"] == "gateway":
        return {**collect_gateway_targets(options["state_path"], options["https_port"]), **mode}
    return {**collect_agent_targets(options["docker_host"], options["wireguard_port"]), **mode}


def probe(options: Mapping[str, Any], check_mode: bool) -> dict[str, Any]:
    """Probe ``ports``, ``udp_ports`` and, with ``echo``, ICMP of ``addresses``, and return the answers.

    ``own`` are all addresses of the target host, ``rate`` is the number of connections that are opened in parallel. In
    check mode nothing is probed. Raises :class:`ValueError` for malformed options: they come from other hosts and
    become arguments of commands here.
    """
    request = _parse_request(options)
    if check_mode:
        return {"answers": [], "next_hops": {}, "missing": {}, "unresolved": [], "on_link": False}
    return probe_host(request)


def _parse_request(options: Mapping[str, Any]) -> ProbeRequest:
    try:
        ports = parse_ranges(options["ports"])
    except ValueError as error:
        raise ValueError(f"ports: {options['ports']!r} {error}") from None
    for name in ("own", "addresses"):
        for address in options[name]:
            if not is_address(address):
                raise ValueError(f"{name}: {address!r} must be an IPv4 or IPv6 address")
    if options["rate"] < 1:
        raise ValueError(f"rate: {options['rate']} must be at least 1")
    arguments = {name: options[name] for name in ("own", "addresses", "udp_ports", "echo", "rate")}
    return ProbeRequest(ports=ports, **arguments)
