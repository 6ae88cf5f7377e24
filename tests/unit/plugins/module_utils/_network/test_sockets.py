"""The sockets of this host."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from ansible_collections.backendai.cluster.plugins.module_utils._network.sockets import listens, sockets


@pytest.mark.parametrize(("family", "address"), [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")])
def test_a_socket_of_this_process_is_found_with_its_address_port_and_inode(
    family: socket.AddressFamily, address: str
) -> None:
    with socket.create_server((address, 0), family=family) as server:
        inode = os.readlink(f"/proc/self/fd/{server.fileno()}")[len("socket:[") : -1]
        (own_socket,) = (entry for entry in sockets("tcp") if entry.inode == inode)
        assert (own_socket.address, own_socket.port, own_socket.listening) == (address, server.getsockname()[1], True)


def test_datagram_socket_has_a_port_and_does_not_listen() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as opened:
        opened.bind(("127.0.0.1", 0))
        port = opened.getsockname()[1]
        assert [entry.listening for entry in sockets("udp") if entry.port == port] == [False]


def test_a_program_listens_in_the_namespace_of_a_process() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert listens(os.getpid(), port)
    assert not listens(os.getpid(), port)
    assert not listens(2**22 + 1, port), "the process has ended"


def test_a_host_without_ipv6_has_the_sockets_of_ipv4_alone(tmp_path: Path) -> None:
    (tmp_path / "net").mkdir()
    (tmp_path / "net" / "tcp").write_text(
        "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
        "   0: 00000000:0016 00000000:0000 0A 0:0 0:0 0 0 0 17 1\n"
    )
    assert [(entry.address, entry.port, entry.inode) for entry in sockets("tcp", tmp_path)] == [("0.0.0.0", 22, "17")]
