# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Names the programs that listen on a host, by protocol and port."""

from __future__ import annotations

import ipaddress

from .._host.processes import socket_programs
from .sockets import Socket, sockets

KERNEL = "the kernel"
"""What listens at a socket of no process, as the server of NFS does."""


def listening_programs() -> dict[tuple[str, int], str]:
    """Return the programs at the TCP and UDP ports of this host that other hosts can reach."""
    programs = socket_programs()
    return {
        (protocol, entry.port): programs.get(entry.inode, KERNEL)
        for protocol in ("tcp", "udp")
        for entry in sockets(protocol)
        if _serves(protocol, entry)
    }


def _serves(protocol: str, entry: Socket) -> bool:
    bound = entry.listening if protocol == "tcp" else not entry.established
    return bound and not ipaddress.ip_address(entry.address).is_loopback
