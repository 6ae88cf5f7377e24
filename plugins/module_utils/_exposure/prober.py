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
from .._model.port_ranges import Ranges, as_text, each, ranges_of
from .model import PATIENCE
from .port_scan import Answer, Door, allowed_at_once, scan
from .probe_routes import Way, is_there, ways_to


@dataclasses.dataclass(frozen=True)
class Attempt:
    """What is tried of one host: ``own`` are all of its addresses, ``addresses`` those that are meant, or behind it.

    ``rate`` is how many connections are being opened at one moment, each for ``seconds``.
    """

    own: Sequence[str]
    addresses: Sequence[str]
    ports: Ranges
    udp_ports: Sequence[int]
    echo: bool
    rate: int
    seconds: float = PATIENCE


def probe(attempt: Attempt) -> dict[str, Any]:
    """Return what answers as plain data, and by which ways it was asked."""
    behind = [address for address in attempt.addresses if address not in attempt.own]
    with ways_to(attempt.own, behind) as found:
        ways = {way.destination: way for way in found.ways if way.address in attempt.addresses}
        hosts = {*attempt.own, *behind}
        heard = scan(_doors(attempt, list(ways)), hosts, allowed_at_once(attempt.rate), attempt.seconds)
        unseen = [way.address for way in ways.values() if _is_unseen(way)]
    refused = {ways[destination].address: why for destination, why in heard.refused.items()}
    return {
        "answers": _summed(heard.answers),
        "ways": {way.address: way.via for way in ways.values() if way.address not in refused},
        "missing": {**{one: why for one, why in found.missing.items() if one in attempt.addresses}, **refused},
        "unseen": unseen,
        "near": found.near,
    }


def _doors(attempt: Attempt, destinations: Sequence[str]) -> Iterator[Door]:
    """Return all doors; datagrams go out twice, first and last, for nobody else sends them again."""
    datagrams = [Door("udp", address, port) for port in attempt.udp_ports for address in destinations]
    datagrams += [Door("icmp", address, 0) for address in destinations if attempt.echo]
    connections = (Door("tcp", address, port) for port in each(attempt.ports) for address in destinations)
    return itertools.chain(datagrams, connections, datagrams)


def _is_unseen(way: Way) -> bool:
    """Return whether nobody answers for an address of this segment; over IPv6 a firewall may be what keeps silent."""
    return not way.via and not is_ipv6(way.address) and not is_there(way)


def _summed(answers: Iterable[Answer]) -> list[dict[str, Any]]:
    """Return one entry for each address, protocol and state, with all of its ports."""
    ports: dict[tuple[str, str, str], set[int]] = {}
    for answer in answers:
        address = answer.door.address.partition("%")[0]
        ports.setdefault((address, answer.door.protocol, answer.state), set()).add(answer.door.port)
    return [
        {"address": address, "protocol": protocol, "state": state, "ports": as_text(ranges_of(found - {0}))}
        for (address, protocol, state), found in sorted(ports.items())
    ]
