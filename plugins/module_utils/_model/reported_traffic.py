# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the firewall of a host in report mode would have dropped."""

from __future__ import annotations

import dataclasses

from .addressing import is_address

OFF = "off"
"""The mode of a host without a firewall, beside those of ``firewall_mode``."""


@dataclasses.dataclass(frozen=True)
class ReportedTraffic:
    """How many ``packets`` of a source would have been dropped. Only those of TCP and UDP have a ``port``.

    ``destination`` is set for packets that are routed to a container or virtual machine. ``program`` is what listens at
    the port of this host, ``None`` if nothing does.
    """

    source: str
    protocol: str
    port: int | None
    destination: str | None
    packets: int
    program: str | None = None

    def __post_init__(self) -> None:
        """Raise :class:`ValueError` for what could become another line of an inventory than the one that it is for."""
        for address in filter(None, (self.source, self.destination)):
            if not is_address(address):
                raise ValueError(f"{address!r} is not an address")
        if self.port is not None and not 0 <= self.port <= 65535:
            raise ValueError(f"{self.port} is not a port")
        if not all(text.isprintable() for text in (self.protocol, self.program or "")):
            raise ValueError("protocol and program must be one printable line")
