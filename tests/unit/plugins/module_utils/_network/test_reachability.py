"""Reachability, checked on this host's loopback address."""

from __future__ import annotations

import errno
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from ansible_collections.backendai.cluster.plugins.module_utils._network import reachability
from ansible_collections.backendai.cluster.plugins.module_utils._network.reachability import (
    UNUSED_PORT,
    PeerTarget,
    ProbeSource,
    Reachability,
    check_reachability,
)

HERE = ProbeSource("main1", os.getpid())


@pytest.fixture
def says() -> list[bytes]:
    """Return the banner of the server of :func:`peer`."""
    return [b"SSH-2.0-test\r\n"]


@pytest.fixture
def peer(says: list[bytes]) -> Iterator[PeerTarget]:
    """Return a container at the loopback address, with a listener in place of its sshd."""
    server = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            try:
                client, _peer = server.accept()
            except OSError:
                return
            with client:
                client.sendall(says[0])

    threading.Thread(target=serve, daemon=True).start()
    yield PeerTarget("sub1", "127.0.0.1", server.getsockname()[1])
    server.shutdown(socket.SHUT_RDWR)
    server.close()


def test_peer_with_banner_and_echo_is_reachable(peer: PeerTarget) -> None:
    assert check_reachability([HERE], [peer, PeerTarget("main1", "192.0.2.9")], 1500, 60) == [
        Reachability("main1", "sub1", True, True)
    ]


def test_peer_without_ssh_banner_is_unreachable(peer: PeerTarget, says: list[bytes]) -> None:
    says[0] = b"HTTP/1.1 400\r\n"
    assert check_reachability([HERE], [peer], 1500, 3) == [Reachability("main1", "sub1", False, True)]


@pytest.mark.parametrize("open_", [False, True], ids=["refused", "established"])
def test_any_answer_of_the_kernel_will_do_without_an_sshd(peer: PeerTarget, says: list[bytes], open_: bool) -> None:
    says[0] = b"HTTP/1.1 400\r\n"
    target = peer._replace(port=peer.port if open_ else UNUSED_PORT, sshd=False)
    assert check_reachability([HERE], [target], 1500, 3) == [Reachability("main1", "sub1", True, True)]


def test_a_connection_that_fails_later_is_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    errors = [errno.EHOSTUNREACH, errno.ECONNREFUSED]

    class Failing(socket.socket):
        def getsockopt(self, *_option: Any) -> Any:
            return errors.pop(0)

    monkeypatch.setattr(reachability.socket, "socket", Failing)
    target = PeerTarget("sub1", "127.0.0.1", UNUSED_PORT, sshd=False)
    (found,) = check_reachability([HERE], [target], 1500, 5)
    assert (found.tcp, errors) == (True, [])


def test_a_peer_without_a_route_does_not_answer() -> None:
    target = PeerTarget("sub1", "255.255.255.255", UNUSED_PORT, sshd=False)
    assert check_reachability([HERE], [target], 1500, 0.2) == [Reachability("main1", "sub1", False, False)]


def test_frame_above_the_mtu_fails(peer: PeerTarget) -> None:
    assert check_reachability([HERE], [peer], 65537, 0.2) == [Reachability("main1", "sub1", True, False)]


def test_results_are_ordered_by_source_and_target(peer: PeerTarget) -> None:
    sources = [HERE, ProbeSource("sub1", os.getpid())]
    targets = [peer, PeerTarget("main1", "127.0.0.1", peer.port)]
    assert check_reachability(sources, targets, 1500, 60) == [
        Reachability("main1", "sub1", True, True),
        Reachability("sub1", "main1", True, True),
    ]


def test_dead_container_reaches_no_peer(peer: PeerTarget) -> None:
    assert check_reachability([ProbeSource("main1", 2**22 + 1)], [peer], 1500, 0.2) == [
        Reachability("main1", "sub1", False, False)
    ]


def test_container_is_not_probed_towards_itself() -> None:
    assert check_reachability([HERE], [PeerTarget("main1", "192.0.2.9")], 1500, 0.2) == []


@contextmanager
def probing(serve: Callable[[socket.socket], None]) -> Iterator[socket.socket]:
    """Run a server in place of an sshd, which handles its socket with ``serve``."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=serve, args=[server])
        thread.start()
        target = PeerTarget("sub1", "127.0.0.1", server.getsockname()[1])
        assert check_reachability([HERE], [target], 1500, 10) == [Reachability("main1", "sub1", True, True)]
        thread.join()
        yield server


def test_established_connection_is_kept_between_rounds() -> None:
    """On a busy host a banner takes longer than a round, and each connection costs the sshd a process."""

    def serve(server: socket.socket) -> None:
        with server.accept()[0] as client:
            time.sleep(1.3)
            client.sendall(b"SSH-2.0-test\r\n")

    with probing(serve) as server:
        server.setblocking(False)
        with pytest.raises(BlockingIOError):
            server.accept()


def test_connection_closed_without_a_banner_is_retried() -> None:
    def serve(server: socket.socket) -> None:
        server.accept()[0].close()
        with server.accept()[0] as client:
            client.sendall(b"SSH-2.0-test\r\n")

    with probing(serve):
        pass
