# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""How this host reaches the addresses of another one, and those behind it: with routes of its own, for a while."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from ipaddress import ip_address
from pathlib import Path

from .._model.addressing import is_ipv6
from .._model.change import Change
from .._model.files import locked
from .._network.iproute import LinkOperation, NetworkError, apply_operations, show

# What marks our routes (the field ``proto``): those of a run that was killed are known by it.
PROTOCOL = 186

LOCK = Path("/run/lock/backendai-detour")

# Why an address cannot be reached.
NO_ROUTE, OWN_NETWORK = "no route leads there", "a network of this host's own has that address"


@dataclasses.dataclass(frozen=True)
class NextHop:
    """How an address is reached: on this segment, or through the next hop ``via``. ``interface`` is this host's."""

    address: str
    interface: str
    via: str = ""

    @property
    def destination(self) -> str:
        """The address as sockets take it: one that is link-local with its zone."""
        return f"{self.address}%{self.interface}" if _is_link_local(self.address) else self.address


@dataclasses.dataclass(frozen=True)
class NextHops:
    """The ways to a host's addresses, and why there is none to some. ``near``: the host is on this host's segment."""

    next_hops: tuple[NextHop, ...]
    missing: dict[str, str]
    on_link: bool


@contextlib.contextmanager
def temporary_routes(own: Sequence[str], behind: Sequence[str]) -> Iterator[NextHops]:
    """Have ways to a host's ``own`` addresses and to those ``behind`` it, such as its containers', while this lasts.

    What is behind a host of the same segment is reached through that host. Each route that this takes is for one
    address; they go at the end, and those that a killed run has left go first. Raises :class:`NetworkError`.
    """
    with locked(LOCK, create=True):
        _remove_routes()
        try:
            near = _near(own)
            hops = {is_ipv6(way.address): way for way in reversed(near)}
            reached = {way.address for way in near}
            rest = [address for address in dict.fromkeys([*own, *behind]) if address not in reached and not _is_link_local(address)]
            apply_operations(_detours(rest, hops))
            hops_or_reasons = {address: _checked(address, hops, behind) for address in rest}
            ways = [*near, *(way for way in hops_or_reasons.values() if isinstance(way, NextHop))]
            yield NextHops(tuple(ways), {address: reason for address, reason in hops_or_reasons.items() if isinstance(reason, str)}, bool(near))
        finally:
            _remove_routes()


def is_resolved(way: NextHop) -> bool:
    """Return whether a host of this segment has told its hardware address (ARP, neighbour discovery)."""
    return any("lladdr" in neighbour for neighbour in show("ip", "-j", "neigh", "show", "to", way.address, "dev", way.interface))


def _near(addresses: Iterable[str]) -> list[NextHop]:
    """Return the ways to those addresses that are on this segment; link-local ones are where the others are."""
    listed = list(addresses)
    ways = [_way(address) for address in listed if not _is_link_local(address)]
    near = [way for way in ways if way and not way.via]
    return near + [NextHop(address, near[0].interface) for address in listed if near and _is_link_local(address)]


def _detours(addresses: Iterable[str], hops: dict[bool, NextHop]) -> list[LinkOperation]:
    steps = []
    for address in addresses:
        hop, way = hops.get(is_ipv6(address)), _way(address)
        if hop and (way is None or way.via != hop.address):
            length = 128 if is_ipv6(address) else 32
            line = f"route add {address}/{length} via {hop.address} dev {hop.interface} proto {PROTOCOL}"
            steps.append(LinkOperation(Change(f"route to {address}", None, f"via {hop.address}"), (line,)))
    return steps


def _checked(address: str, hops: dict[bool, NextHop], behind: Sequence[str]) -> NextHop | str:
    """Return the way that is taken to an address, or why it would not lead to the host that is meant."""
    way, hop = _way(address), hops.get(is_ipv6(address))
    if way is None:
        return OWN_NETWORK if hop else NO_ROUTE
    strays = way.via != hop.address if hop else address in behind and not way.via
    return OWN_NETWORK if strays else way


def _way(address: str) -> NextHop | None:
    """Return where this host sends what is for an address; ``None`` where it has no route, or the address itself."""
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
        lines = [f"route del {route['dst']} via {route['gateway']} dev {route['dev']} proto {PROTOCOL}" for route in routes]
        apply_operations(LinkOperation(Change("route", line, None), (line,)) for line in lines)


def _is_link_local(address: str) -> bool:
    return is_ipv6(address) and ip_address(address).is_link_local
