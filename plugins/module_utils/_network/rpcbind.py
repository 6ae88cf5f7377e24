# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Asks the rpcbind of a server where the services of NFS listen."""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable, Iterator

PORT, SECONDS = 111, 2.0
MAX_REPLY = 1 << 16

_PORTMAP, _VERSION, _DUMP = 100000, 2, 4
# The port mapper itself, nfs, mountd, rquotad, the lock manager, its status monitor, and ACLs. A server may have others
# that are no storage, such as a directory service.
_PROGRAMS = (_PORTMAP, 100003, 100005, 100011, 100021, 100024, 100227)
_PROTOCOLS = {6: "tcp", 17: "udp"}
_XID = 0x62616900


def registered_ports(address: str, port: int = PORT) -> set[tuple[str, int]] | None:
    """Return protocol and port of each service of NFS; ``None`` if the server does not answer in time, or otherwise."""
    # RFC 5531: a call of RPC version 2, without credentials and verifier; over TCP the length is before it.
    call = struct.pack(">10I", _XID, 0, 2, _PORTMAP, _VERSION, _DUMP, 0, 0, 0, 0)
    try:
        with socket.create_connection((address, port), SECONDS) as connection:
            connection.settimeout(SECONDS)
            connection.sendall(struct.pack(">I", 0x80000000 | len(call)) + call)
            with connection.makefile("rb") as stream:
                return set(_parse_reply(b"".join(_fragments(stream.read))))
    except ConnectionRefusedError:
        # A server of version 4 needs none.
        return set()
    except (OSError, ValueError, struct.error):
        return None


def _fragments(read: Callable[[int], bytes]) -> Iterator[bytes]:
    """Yield the parts of a reply, of limited size. Raises :class:`ValueError` and :class:`struct.error`."""
    total, last = 0, False
    while not last:
        (header,) = struct.unpack(">I", read(4))
        last, length = bool(header & 0x80000000), header & 0x7FFFFFFF
        total += length
        if total > MAX_REPLY:
            raise ValueError("the reply is too long")
        yield read(length)


def _parse_reply(reply: bytes) -> Iterator[tuple[str, int]]:
    """Yield what a reply lists. Raises :class:`ValueError` and :class:`struct.error`."""
    xid, kind, state, _flavour, length = struct.unpack_from(">5I", reply)
    at = 20 + (length + 3) // 4 * 4
    (accepted,) = struct.unpack_from(">I", reply, at)
    if (xid, kind, state, accepted) != (_XID, 1, 0, 0):
        raise ValueError("the call was refused")
    at += 4
    while struct.unpack_from(">I", reply, at)[0]:
        program, _version, protocol, port = struct.unpack_from(">4I", reply, at + 4)
        if program in _PROGRAMS and protocol in _PROTOCOLS and 0 < port <= 65535:
            yield _PROTOCOLS[protocol], port
        at += 20
