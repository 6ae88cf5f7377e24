"""Whether containers meet: the sums that need no network, and a look at this host's own."""

from __future__ import annotations

import os
import socket
import struct
import threading
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.backendai.cluster.plugins.module_utils._net import probe
from ansible_collections.backendai.cluster.plugins.module_utils._net.probe import Endpoint, Target, unreached


def sum_of(data: bytes) -> int:
    """Return the one's complement sum that RFC 1071 wants to be all ones over a checked message."""
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return total


@pytest.mark.parametrize(
    ("data", "checksum"),
    [
        (bytes.fromhex("0001f203f4f5f6f7"), 0xFFFF - 0xDDF2),
        (bytes.fromhex("45000073000040004011" + "0000" + "c0a80001c0a800c7"), 0xB861),
        (b"", 0xFFFF),
        (b"\x01", 0xFEFF),
    ],
    ids=["RFC 1071, section 3", "an IPv4 header", "nothing", "an odd byte"],
)
def test_the_internet_checksum(data: bytes, checksum: int) -> None:
    assert probe._checksum(data) == checksum


@given(st.integers(0, 1500))
def test_an_echo_request_fills_the_frame_and_carries_its_own_checksum(size: int) -> None:
    request = probe._echo_request(size)
    assert len(request) == size + 8
    assert request[:2] == b"\x08\0"
    assert sum_of(request + b"\0" * (len(request) % 2)) == 0xFFFF


@pytest.fixture
def server() -> Iterator[socket.socket]:
    """Listen on the loopback address, at a port of its own."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield listening


@pytest.fixture
def sub1(server: socket.socket) -> Target:
    """Return the container that the server stands for."""
    return Target("sub1", "127.0.0.1", server.getsockname()[1])


@pytest.fixture
def greeting(server: socket.socket) -> Iterator[list[bytes]]:
    """Let the server say what the list holds."""
    says = [b"SSH-2.0-test\r\n"]

    def serve() -> None:
        while True:
            try:
                client, _peer = server.accept()
            except OSError:
                return
            with client:
                client.sendall(says[0])

    threading.Thread(target=serve, daemon=True).start()
    yield says
    server.shutdown(socket.SHUT_RDWR)


HERE = Endpoint("main1", os.getpid())


def test_a_peer_that_greets_and_echoes_is_reached(greeting: list[bytes], sub1: Target) -> None:
    assert greeting
    assert unreached([HERE], [sub1, Target("main1", "192.0.2.9")], 1500, 5) == []


def test_a_peer_that_is_no_sshd_is_named(greeting: list[bytes], sub1: Target) -> None:
    greeting[0] = b"HTTP/1.1 400\r\n"
    assert unreached([HERE], [sub1], 1500, 0.2) == ["main1 does not reach sub1 with ssh over tcp"]


@pytest.mark.usefixtures("greeting")
def test_a_frame_that_does_not_fit_is_named(sub1: Target) -> None:
    assert unreached([HERE], [sub1], 65537, 0.2) == ["main1 does not reach sub1 with frames of 65537 bytes"]


@pytest.mark.usefixtures("greeting")
def test_a_container_that_died_reaches_nobody(sub1: Target) -> None:
    assert unreached([Endpoint("main1", 2**22 + 1)], [sub1], 1500, 0.2) == [
        "main1 does not reach sub1 with ssh over tcp",
        "main1 does not reach sub1 with frames of 1500 bytes",
    ]


def test_a_container_need_not_reach_itself() -> None:
    assert unreached([HERE], [Target("main1", "192.0.2.9")], 1500, 0.2) == []
