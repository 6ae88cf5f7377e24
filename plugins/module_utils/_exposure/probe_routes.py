# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Adds temporary routes to the addresses of another host and to those behind it."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from ipaddress import ip_address
from pathlib import Path

from .._model.addressing import is_ipv6
from .._model.change import Change
from .._model.files import LOCK_SECONDS, describe_held_lock, locked
from .._network.iproute import LinkOperation, NetworkError, apply_operations, show

# Marks our routes (the field ``proto``), so that routes of a killed run can be removed.
PROTOCOL = 186

LOCK = Path("/run/lock/backendai-detour")

# Why an address cannot be reached.
NO_ROUTE, OWN_NETWORK = "no route leads there", "a network of this host's own has that address"


@dataclasses.dataclass(frozen=True)
class NextHop:
    """Route to an address: on this segment, or through ``via``. ``interface`` is one of this host."""

    address: str
    interface: str
    via: str = ""

    @property
    def destination(self) -> str:
        """The address for a socket; a link-local one has its zone."""
        return f"{self.address}%{self.interface}" if _is_link_local(self.address) else self.address


@dataclasses.dataclass(frozen=True)
class NextHops:
    """Routes to addresses, and the reason for those without. ``on_link``: the host is on a segment of this host."""

    next_hops: tuple[NextHop, ...]
    missing: dict[str, str]
    on_link: bool


@contextlib.contextmanager
def temporary_routes(own: Sequence[str], behind: Sequence[str]) -> Iterator[NextHops]:
    """Provide routes to a host's ``own`` addresses and to those ``behind`` it, such as those of its containers.

    Addresses behind a host of the same segment are routed through that host. Each added route is for one address and
    is removed at the end; those of a killed run are removed first. Raises :class:`NetworkError`.
    """
    with locked(LOCK, LOCK_SECONDS, create=True) as handle:
        if handle is None:
            raise NetworkError(describe_held_lock(LOCK, LOCK_SECONDS))
        _remove_routes()
        try:
            on_link = _find_on_link(own)
            gateways = {is_ipv6(hop.address): hop for hop in reversed(on_link)}
            reached = {hop.address for hop in on_link}
            rest = [
                address
                for address in dict.fromkeys([*own, *behind])
                if address not in reached and not _is_link_local(address)
            ]
            apply_operations(_plan_routes(rest, gateways))
            checked = {address: _check_route(address, gateways, behind) for address in rest}
            next_hops = [*on_link, *(hop for hop in checked.values() if isinstance(hop, NextHop))]
            missing = {address: reason for address, reason in checked.items() if isinstance(reason, str)}
            yield NextHops(tuple(next_hops), missing, bool(on_link))
        finally:
            _remove_routes()


def is_resolved(hop: NextHop) -> bool:
    """Return whether the neighbour table has a hardware address for a host of this segment."""
    neighbours = show("ip", "-j", "neigh", "show", "to", hop.address, "dev", hop.interface)
    return any("lladdr" in neighbour for neighbour in neighbours)


def _find_on_link(addresses: Iterable[str]) -> list[NextHop]:
    """Return the addresses on this segment; link-local ones are on the interface of the others."""
    listed = list(addresses)
    hops = [_read_route(address) for address in listed if not _is_link_local(address)]
    on_link = [hop for hop in hops if hop and not hop.via]
    link_local = [address for address in listed if on_link and _is_link_local(address)]
    return on_link + [NextHop(address, on_link[0].interface) for address in link_local]


def _plan_routes(addresses: Iterable[str], gateways: dict[bool, NextHop]) -> list[LinkOperation]:
    steps = []
    for address in addresses:
        gateway, current = gateways.get(is_ipv6(address)), _read_route(address)
        if gateway and (current is None or current.via != gateway.address):
            length = 128 if is_ipv6(address) else 32
            line = f"route add {address}/{length} via {gateway.address} dev {gateway.interface} proto {PROTOCOL}"
            steps.append(LinkOperation(Change(f"route to {address}", None, f"via {gateway.address}"), (line,)))
    return steps


def _check_route(address: str, gateways: dict[bool, NextHop], behind: Sequence[str]) -> NextHop | str:
    """Return the active route to an address, or why it would not lead to the scanned host."""
    current, gateway = _read_route(address), gateways.get(is_ipv6(address))
    if current is None:
        return OWN_NETWORK if gateway else NO_ROUTE
    diverted = current.via != gateway.address if gateway else address in behind and not current.via
    return OWN_NETWORK if diverted else current


def _read_route(address: str) -> NextHop | None:
    """Return the route of the kernel to an address; ``None`` without one, or if it is an address of this host."""
    try:
        route = next(iter(show("ip", "-j", "route", "get", address)), {})
    except NetworkError:
        return None
    if route.get("type", "unicast") != "unicast":
        return None
    return NextHop(address, route["dev"], route.get("gateway") or route.get("via", {}).get("host", ""))


def _remove_routes() -> None:
    for family in ("-4", "-6"):
        routes = show("ip", "-j", family, "route", "show", "proto", str(PROTOCOL))
        lines = [
            f"route del {route['dst']} via {route['gateway']} dev {route['dev']} proto {PROTOCOL}" for route in routes
        ]
        apply_operations(LinkOperation(Change("route", line, None), (line,)) for line in lines)


def _is_link_local(address: str) -> bool:
    return is_ipv6(address) and ip_address(address).is_link_local
