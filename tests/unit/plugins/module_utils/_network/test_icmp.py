"""ICMP echo packets, without a network."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.backendai.cluster.plugins.module_utils._network.icmp import (
    echo_request,
    internet_checksum,
    is_reply,
)

HEADER = bytes.fromhex("45000073000040004011b861c0a80001c0a800c7")


def sum_of(data: bytes) -> int:
    """Return the one's complement sum, which is all ones over a message with its checksum (RFC 1071)."""
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return total


@pytest.mark.parametrize(
    ("data", "checksum"),
    [
        (bytes.fromhex("0001f203f4f5f6f7"), 0xFFFF - 0xDDF2),
        (HEADER[:10] + b"\0\0" + HEADER[12:], 0xB861),
        (b"", 0xFFFF),
        (b"\x01", 0xFEFF),
    ],
    ids=["RFC 1071, section 3", "an IPv4 header", "nothing", "an odd byte"],
)
def test_the_internet_checksum(data: bytes, checksum: int) -> None:
    assert internet_checksum(data) == checksum


@given(st.integers(0, 1500))
def test_an_echo_request_fills_the_frame_and_carries_its_own_checksum(size: int) -> None:
    request = echo_request(size)
    assert len(request) == size + 8
    assert request[:2] == b"\x08\0"
    assert sum_of(request + b"\0" * (len(request) % 2)) == 0xFFFF


def test_reply_is_identified_by_type_and_sequence() -> None:
    request = echo_request(56)
    reply = HEADER + b"\0" + request[1:]
    assert is_reply(reply)
    assert not is_reply(reply[:27] + b"\4" + reply[28:])
    assert not is_reply(HEADER + request)
    assert not is_reply(b"")


def test_reply_to_another_process_is_ignored() -> None:
    reply = bytearray(HEADER + b"\0" + echo_request(56)[1:])
    reply[24] ^= 0xFF
    assert not is_reply(bytes(reply))
