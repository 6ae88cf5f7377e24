# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Scans one host from a probe host: sets up routes, probes all ports and returns the answers."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from .._model.addressing import is_ipv6
from .._model.port_ranges import Ranges, format_ranges, iter_ports, ranges_of
from .model import PROBE_TIMEOUT
from .port_scan import Answer, ScanTarget, max_open_sockets, scan
from .probe_routes import NextHop, is_resolved, temporary_routes


@dataclasses.dataclass(frozen=True)
class ProbeRequest:
    """A scan of one host: ``own`` are all of its addresses, ``addresses`` those to scan, its own or behind it.

    ``rate`` is the number of concurrent probes, each of which takes up to ``seconds``.
    """

    own: Sequence[str]
    addresses: Sequence[str]
    ports: Ranges
    udp_ports: Sequence[int]
    echo: bool
    rate: int
    seconds: float = PROBE_TIMEOUT


def probe_host(request: ProbeRequest) -> dict[str, Any]:
    """Return the answers and the routes that were used, as plain data."""
    behind = [address for address in request.addresses if address not in request.own]
    with temporary_routes(request.own, behind) as routes:
        next_hops = {hop.destination: hop for hop in routes.next_hops if hop.address in request.addresses}
        hosts = {*request.own, *behind}
        result = scan(_scan_targets(request, list(next_hops)), hosts, max_open_sockets(request.rate), request.seconds)
        unresolved = [hop.address for hop in next_hops.values() if _is_unresolved(hop)]
    missing = {address: reason for address, reason in routes.missing.items() if address in request.addresses}
    refused = {next_hops[destination].address: reason for destination, reason in result.refused.items()}
    return {
        "answers": _group_answers(result.answers),
        "next_hops": {hop.address: hop.via for hop in next_hops.values() if hop.address not in refused},
        "missing": {**missing, **refused},
        "unresolved": unresolved,
        "on_link": routes.on_link,
    }


def _scan_targets(request: ProbeRequest, destinations: Sequence[str]) -> Iterator[ScanTarget]:
    """Return all targets; datagrams are sent twice, first and last, because no protocol repeats them."""
    datagrams = [ScanTarget("udp", address, port) for port in request.udp_ports for address in destinations]
    datagrams += [ScanTarget("icmp", address, 0) for address in destinations if request.echo]
    connections = (ScanTarget("tcp", address, port) for port in iter_ports(request.ports) for address in destinations)
    return itertools.chain(datagrams, connections, datagrams)


def _is_unresolved(hop: NextHop) -> bool:
    """Return whether no host of this segment answers ARP for an address; over IPv6 a firewall may drop that."""
    return not hop.via and not is_ipv6(hop.address) and not is_resolved(hop)


def _group_answers(answers: Iterable[Answer]) -> list[dict[str, Any]]:
    """Return one entry for each address, protocol and state, with all of its ports."""
    ports: dict[tuple[str, str, str], set[int]] = {}
    for answer in answers:
        address = answer.target.address.partition("%")[0]
        ports.setdefault((address, answer.target.protocol, answer.state), set()).add(answer.target.port)
    return [
        {"address": address, "protocol": protocol, "state": state, "ports": format_ranges(ranges_of(numbers - {0}))}
        for (address, protocol, state), numbers in sorted(ports.items())
    ]
