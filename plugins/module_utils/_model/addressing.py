# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Select subnets, addresses, MACs, VNIs and MTUs of session networks that are not in use on any agent."""

from __future__ import annotations

import functools
import hashlib
import ipaddress
from collections.abc import Collection, Iterable, Iterator, Sequence

# Ethernet 14 + IPv4 20 + UDP 8 + VXLAN 8 bytes (RFC 7348).
VXLAN_OVERHEAD_V4 = 50

# As over IPv4, with the 40 bytes of an IPv6 header.
VXLAN_OVERHEAD_V6 = 70

# The minimum MTU of IPv6 links (RFC 8200); smaller ones are rarely tested by frameworks.
MIN_MTU = 1280

DEFAULT_MTU = 1500


def pick_subnet(pool: str, containers: int, used: Iterable[str], seed: str) -> str | None:
    """Return the smallest IPv4 subnet of ``pool`` for that many containers that overlaps no network in ``used``.

    A subnet holds the network address, the gateway address of the engine, the containers and the broadcast address.
    The search begins at an offset derived from ``seed``, so that concurrent runs rarely select the same subnet.
    Returns ``None`` if the pool is exhausted.
    """
    network = ipaddress.IPv4Network(pool)
    prefix = 32 - (containers + 2).bit_length()
    if prefix < network.prefixlen:
        return None
    step = 1 << (32 - prefix)
    first, last = int(network.network_address), int(network.broadcast_address)
    taken = _used_ranges(first, last, used)
    slots = 1 << (prefix - network.prefixlen)
    start = first + _hash(seed) % slots * step
    base = _next_free(start, last, step, taken)
    base = _next_free(first, start + step - 1, step, taken) if base is None else base
    return None if base is None else f"{ipaddress.IPv4Address(base)}/{prefix}"


def pick_vni(first: int, last: int, used: Collection[int], seed: str) -> int | None:
    """Return an unused VXLAN network identifier from ``first`` to ``last``; ``None`` if all are used."""
    span = last - first + 1
    start = _hash(seed) % span
    taken = {vni for vni in used if first <= vni <= last}
    candidates = (first + (start + offset) % span for offset in range(min(span, len(taken) + 1)))
    return next((vni for vni in candidates if vni not in taken), None)


def free_ports(first: int, last: int, used: Collection[int], seed: str) -> Iterator[int]:
    """Yield each unused port from ``first`` to ``last``, beginning at an offset derived from ``seed``."""
    span = last - first + 1
    start = _hash(seed) % span
    candidates = (first + (start + offset) % span for offset in range(span))
    return (port for port in candidates if port not in used)


def address_of(subnet: str, rank: int) -> str:
    """Return the address of the container of that zero-based rank; the first host address is the gateway."""
    return str(ipaddress.IPv4Network(subnet)[rank + 2])


def mac_of(address: str) -> str:
    """Return the MAC for an IPv4 address: locally administered, unicast, with the address as its last four bytes."""
    return "02:ba:" + ":".join(f"{byte:02x}" for byte in ipaddress.IPv4Address(address).packed)


def vxlan_mtu(underlays: Sequence[tuple[str, int]]) -> int:
    """Return the MTU of an overlay on underlays of (address, MTU): the smallest after VXLAN encapsulation."""
    return min(mtu - overhead(address) for address, mtu in underlays)


def overhead(address: str) -> int:
    """Return the bytes that VXLAN encapsulation adds to a frame sent to that underlay address."""
    return VXLAN_OVERHEAD_V6 if is_ipv6(address) else VXLAN_OVERHEAD_V4


@functools.lru_cache(maxsize=4096)
def is_ipv6(text: str) -> bool:
    """Return whether a text is an IPv6 address, with or without a zone, or an IPv6 network."""
    try:
        return ipaddress.ip_interface(text).version == 6
    except ValueError:
        return False


def is_address(text: str) -> bool:
    """Return whether a text is an IPv4 or IPv6 address, without a zone."""
    try:
        return "%" not in text and bool(ipaddress.ip_address(text))
    except ValueError:
        return False


def bracketed(host: str) -> str:
    """Return a host in the form used before a port and in URLs: an IPv6 address is put in brackets."""
    return f"[{host}]" if is_ipv6(host) else host


def collapse(addresses: Iterable[str]) -> tuple[str, ...]:
    """Return the minimal list of networks that cover exactly these addresses, IPv4 before IPv6."""
    networks = [ipaddress.ip_network(address) for address in addresses]
    v4 = ipaddress.collapse_addresses(network for network in networks if isinstance(network, ipaddress.IPv4Network))
    v6 = ipaddress.collapse_addresses(network for network in networks if isinstance(network, ipaddress.IPv6Network))
    return tuple(str(network) for network in (*v4, *v6))


def _hash(seed: str) -> int:
    return int.from_bytes(hashlib.sha256(seed.encode()).digest()[:8], "big")


def _used_ranges(first: int, last: int, used: Iterable[str]) -> list[tuple[int, int]]:
    """Return the used address ranges that overlap the pool, sorted by their first address."""
    ranges = []
    for text in used:
        network = ipaddress.ip_network(text, strict=False)
        if network.version == 4 and network.prefixlen:
            low, high = int(network.network_address), int(network.broadcast_address)
            if low <= last and high >= first:
                ranges.append((low, high))
    return sorted(ranges)


def _next_free(start: int, last: int, step: int, taken: Sequence[tuple[int, int]]) -> int | None:
    """Return the first address from ``start``, in steps of ``step``, that starts a free step."""
    position = start
    for low, high in taken:
        if high < position:
            continue
        if low > position + step - 1:
            break
        position = (high // step + 1) * step
    return position if position + step - 1 <= last else None
