# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The services of storage servers that an agent has mounted: to them, a container would be its agent."""

from __future__ import annotations

import dataclasses
import ipaddress
from collections.abc import Iterable

from .addressing import is_address, is_ipv6
from .port_ranges import parse_ranges

OPENED_BY = "agent_open_storage"
"""The variable of an agent that opens them."""


@dataclasses.dataclass(frozen=True)
class StorageService:
    """The service of ``kind`` at an IPv4 ``address``, from which the agent mounts what is at the path ``mount``.

    ``ports`` are like ``111`` or ``6800-7568``, those of ``tcp`` and of ``udp``.
    """

    kind: str
    address: str
    mount: str
    tcp: tuple[str, ...]
    udp: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Raise :class:`ValueError` for what must not become a rule."""
        if not is_address(self.address) or is_ipv6(self.address):
            raise ValueError(f"{self.address!r} is not an IPv4 address")
        for ports in (*self.tcp, *self.udp):
            parse_ranges(ports)
        if not self.kind.isprintable():
            raise ValueError("kind must be one printable line")

    @property
    def description(self) -> str:
        """The service as a phrase, such as ``NFS of 192.0.2.7 (tcp 111, 2049), mounted at /mnt/data``."""
        protocols = (("tcp", self.tcp), ("udp", self.udp))
        ports = "; ".join(f"{name} {', '.join(listed)}" for name, listed in protocols if listed)
        return f"{self.kind} of {self.address} ({ports}), mounted at {self.mount}"


def without_open(services: Iterable[StorageService], networks: Iterable[str]) -> tuple[StorageService, ...]:
    """Return the services that are in none of the networks."""
    opened = [ipaddress.ip_network(network) for network in networks]
    return tuple(
        service
        for service in services
        if not any(ipaddress.ip_address(service.address) in network for network in opened)
    )
