# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The phases that verify isolation: hosts return their addresses, which probe hosts and containers scan."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .._docker.client import connect
from .._exposure.inside import probe_from_containers
from .._exposure.model import InsideTarget, Separation
from .._exposure.prober import ProbeRequest, probe_host
from .._exposure.targets import collect_agent_targets, collect_gateway_targets
from .._firewall.audit import audit_zones
from .._firewall.policy import ENFORCE
from .._firewall.state import FirewallState
from .._firewall.surroundings import read_zones
from .._host.store import Store
from .._model.addressing import is_address
from .._model.plain_data import from_plain, to_plain
from .._model.port_ranges import parse_ranges


def targets(options: Mapping[str, Any], _check_mode: bool) -> dict[str, Any]:
    """Return the ``addresses`` of this host and its containers, each with a description, and its ``udp_ports``.

    ``kind`` is ``agent``, with ``docker_host``, ``wireguard_port``, and the networks and address of its
    ``separation``, or ``gateway``, with ``state_path`` and ``https_port``; the ``firewall_mode`` is read from
    ``firewall_state_path``. ``expected`` are the TCP ports that may be open, each with its purpose, ``unread`` the
    errors of reading any of these.
    """
    firewall = FirewallState(Store(options["firewall_state_path"]))
    mode = {"firewall_mode": firewall.mode}
    if options["kind"] == "gateway":
        return {**collect_gateway_targets(options["state_path"], options["https_port"]), **mode}
    separation = _read_separation(options, firewall)
    collected = collect_agent_targets(options["docker_host"], options["wireguard_port"])
    return {**collected, **mode, "separation": to_plain(separation)}


def _read_separation(options: Mapping[str, Any], state: FirewallState) -> Separation:
    zones = read_zones(options["management_networks"], options["compute_networks"], options["underlay_address"])
    firewall, declared = state.active(), (zones.management, zones.compute)
    return Separation(
        declared=any(declared),
        problems=tuple(finding.message for finding in audit_zones(zones)),
        enforced=bool(
            firewall
            and firewall.mode == ENFORCE
            and all(declared)
            and (firewall.management, firewall.compute) == declared
        ),
    )


def inside(options: Mapping[str, Any], check_mode: bool) -> dict[str, Any]:
    """Probe ``targets`` from a container of each session on this agent; in check mode nothing is probed."""
    targets = [from_plain(InsideTarget, target, "targets") for target in options["targets"]]
    for target in targets:
        if not is_address(target.address) or not 0 < target.port < 1 << 16:
            raise ValueError(f"targets: {target.address!r} and {target.port} must be an address and a port")
    if check_mode:
        return {"probes": [], "skipped": 0}
    client, store = connect(options["docker_host"]), Store(options["state_path"])
    return dict(to_plain(probe_from_containers(client, store, targets)))


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
