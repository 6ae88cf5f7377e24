# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Builds and parses ICMP echo packets (RFC 792) for raw sockets."""

from __future__ import annotations

import os
import struct

ICMP_AND_IP_HEADERS = 28

_REQUEST, _REPLY = 8, 0
_SEQUENCE = 1


def echo_request(size: int) -> bytes:
    """Return an echo request of this process, with ``size`` bytes of payload."""
    payload = bytes(size)
    checksum = internet_checksum(_header(_REQUEST, 0) + payload)
    return _header(_REQUEST, checksum) + payload


def is_reply(packet: bytes) -> bool:
    """Return whether an IPv4 packet is the reply to an echo request of this process."""
    start = (packet[0] & 0x0F) * 4 if packet else 0
    return packet[start : start + 1] == bytes([_REPLY]) and packet[start + 4 : start + 8] == _tag()


def internet_checksum(data: bytes) -> int:
    """Return the internet checksum (RFC 1071)."""
    padded = data + b"\0" * (len(data) % 2)
    total = sum(struct.unpack(f"!{len(padded) // 2}H", padded))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def _header(kind: int, checksum: int) -> bytes:
    return struct.pack("!BBH", kind, 0, checksum) + _tag()


def _tag() -> bytes:
    return struct.pack("!HH", os.getpid() & 0xFFFF, _SEQUENCE)
