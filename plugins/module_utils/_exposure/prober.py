# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What an outsider does: it finds its ways to a host, tries all doors, and says what it heard."""

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
    """What is tried of one host: ``own`` are all of its addresses, ``addresses`` those that are meant, or behind it.

    ``rate`` is how many connections are being opened at one moment, each for ``seconds``.
    """

    own: Sequence[str]
    addresses: Sequence[str]
    ports: Ranges
    udp_ports: Sequence[int]
    echo: bool
    rate: int
    seconds: float = PROBE_TIMEOUT


def probe_host(attempt: ProbeRequest) -> dict[str, Any]:
    """Return what answers as plain data, and by which ways it was asked."""
    behind = [address for address in attempt.addresses if address not in attempt.own]
    with temporary_routes(attempt.own, behind) as routes:
        next_hops = {way.destination: way for way in routes.next_hops if way.address in attempt.addresses}
        hosts = {*attempt.own, *behind}
        heard = scan(_scan_targets(attempt, list(next_hops)), hosts, max_open_sockets(attempt.rate), attempt.seconds)
        unresolved = [way.address for way in next_hops.values() if _is_unseen(way)]
    refused = {next_hops[destination].address: reason for destination, reason in heard.refused.items()}
    return {
        "answers": _group_answers(heard.answers),
        "next_hops": {way.address: way.via for way in next_hops.values() if way.address not in refused},
        "missing": {**{address: reason for address, reason in routes.missing.items() if address in attempt.addresses}, **refused},
        "unresolved": unresolved,
        "on_link": routes.on_link,
    }


def _scan_targets(attempt: ProbeRequest, destinations: Sequence[str]) -> Iterator[ScanTarget]:
    """Return all doors; datagrams go out twice, first and last, for nobody else sends them again."""
    datagrams = [ScanTarget("udp", address, port) for port in attempt.udp_ports for address in destinations]
    datagrams += [ScanTarget("icmp", address, 0) for address in destinations if attempt.echo]
    connections = (ScanTarget("tcp", address, port) for port in iter_ports(attempt.ports) for address in destinations)
    return itertools.chain(datagrams, connections, datagrams)


def _is_unseen(way: NextHop) -> bool:
    """Return whether nobody answers for an address of this segment; over IPv6 a firewall may be what keeps silent."""
    return not way.via and not is_ipv6(way.address) and not is_resolved(way)


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
