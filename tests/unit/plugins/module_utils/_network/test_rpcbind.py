"""Asking a server's rpcbind, over real connections."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Iterator

import pytest

from ansible_collections.backendai.cluster.plugins.module_utils._network import rpcbind
from ansible_collections.backendai.cluster.plugins.module_utils._network.rpcbind import registered_ports

ACCEPTED = struct.pack(">6I", 0x62616900, 1, 0, 0, 0, 0)


def listing(*entries: tuple[int, int, int]) -> bytes:
    """Return a list of program, protocol and port."""
    listed = b"".join(struct.pack(">5I", 1, program, 3, protocol, port) for program, protocol, port in entries)
    return listed + struct.pack(">I", 0)


def fragments(*parts: bytes) -> bytes:
    last = len(parts) - 1
    return b"".join(struct.pack(">I", (n == last) << 31 | len(part)) + part for n, part in enumerate(parts))


@contextlib.contextmanager
def server(answer: bytes | None) -> Iterator[int]:
    """Answer one call, or, with ``None``, never; the port is yielded."""
    asked: list[bytes] = []

    def serve() -> None:
        connection, _address = listener.accept()
        with connection:
            asked.append(connection.recv(1024))
            if answer is not None:
                connection.sendall(answer)
            else:
                done.wait(30)

    done = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield listener.getsockname()[1]
        finally:
            done.set()
            thread.join(30)
    assert asked == [struct.pack(">11I", 0x80000028, 0x62616900, 0, 2, 100000, 2, 4, 0, 0, 0, 0)]


def ask(answer: bytes | None) -> set[tuple[str, int]] | None:
    with server(answer) as port:
        return registered_ports("127.0.0.1", port)


def test_the_services_of_nfs_are_found_and_no_others() -> None:
    entries = listing(
        (100000, 6, 111), (100003, 6, 2049), (100005, 17, 20048), (100021, 6, 4045), (100004, 17, 800), (100003, 99, 7)
    )
    expected = {("tcp", 111), ("tcp", 2049), ("udp", 20048), ("tcp", 4045)}
    assert ask(fragments(ACCEPTED + entries)) == expected
    assert ask(fragments(ACCEPTED, entries[:30], entries[30:])) == expected


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"HTTP/1.0 400 Bad Request\r\n\r\n" * 50,
        fragments(ACCEPTED),
        fragments(ACCEPTED + listing((100003, 6, 2049))[:-8]),
        fragments(struct.pack(">6I", 0x62616900, 1, 1, 0, 0, 0) + listing()),
        fragments(struct.pack(">6I", 7, 1, 0, 0, 0, 0) + listing()),
        fragments(*[ACCEPTED + listing((100003, 6, 2049)) * 1000] * 5),
    ],
    ids=["nothing", "another protocol", "no list", "cut off", "denied", "of another call", "too long"],
)
def test_an_odd_answer_is_none(answer: bytes) -> None:
    assert ask(answer) is None


def test_a_server_without_rpcbind_has_no_ports_and_a_silent_one_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(rpcbind, "SECONDS", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    assert registered_ports("127.0.0.1", port) == set()
    assert ask(None) is None
