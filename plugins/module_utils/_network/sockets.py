# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Reads the sockets of this host from ``/proc/net`` (proc(5))."""

from __future__ import annotations

import ipaddress
import socket
import struct
from pathlib import Path
from typing import NamedTuple

from .._host.processes import PROC

_ESTABLISHED, _LISTEN = "01", "0A"


class Socket(NamedTuple):
    """A socket of this host. ``local`` is its own address, as hexadecimal words in the host's byte order.

    ``remote`` is the address of its peer, in the same form.
    """

    local: str
    port: int
    listening: bool
    inode: str
    established: bool = False
    remote: str = ""

    @property
    def address(self) -> str:
        """Its own address in the usual notation."""
        return _format_address(self.local)

    @property
    def serves_others(self) -> bool:
        """Whether it is a connection with another host."""
        peer = ipaddress.ip_address(_format_address(self.remote))
        return self.established and not (getattr(peer, "ipv4_mapped", None) or peer).is_loopback


def sockets(protocol: str, proc: Path = PROC) -> list[Socket]:
    """Return the sockets of ``tcp`` or ``udp``, over IPv4 and IPv6."""
    tables = [proc / "net" / name for name in (protocol, f"{protocol}6")]
    return [_socket(line) for table in tables if table.exists() for line in table.read_text().splitlines()[1:]]


def listens(pid: int, port: int) -> bool:
    """Return whether a program listens at a TCP port, in the network namespace of a process."""
    try:
        return any(entry.listening and entry.port == port for entry in sockets("tcp", PROC / str(pid)))
    except OSError:
        # The process has ended.
        return False


def _socket(line: str) -> Socket:
    fields = line.split()
    local, _colon, port = fields[1].rpartition(":")
    state, remote = fields[3], fields[2].rpartition(":")[0]
    return Socket(local, int(port, 16), state == _LISTEN, fields[9], state == _ESTABLISHED, remote)


def _format_address(text: str) -> str:
    words = [int(text[start : start + 8], 16) for start in range(0, len(text), 8)]
    family = socket.AF_INET if len(words) == 1 else socket.AF_INET6
    return str(ipaddress.ip_address(socket.inet_ntop(family, struct.pack(f"={len(words)}I", *words))))
