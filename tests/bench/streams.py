"""Throughput and round trips over TCP, between any two network namespaces.

This file runs on an agent, inside a namespace; its source is piped to ``python3 - WORDS``, so nothing is installed.

``serve PORT SECONDS``: receive streams and send echoes, for at most that many seconds, or until ``quit``.
``stream ADDRESS PORT COUNT SECONDS``: print the total bits per second over that many connections.
``echo ADDRESS PORT COUNT``: print the median of that many round trips of one byte, in seconds.
``quit ADDRESS PORT``: stop the server.

The server has the machine's last core and the other end the first one: hosts share no core, but all hosts of the lab
share one kernel, which places both ends on one core or on two, as other load changes. On loopback that makes round
trips of 15 or of 47 µs, and streams that differ by a half.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import statistics
import sys
import threading
import time

SINK, ECHO, QUIT = b"s", b"e", b"q"
CHUNK = 1 << 17
TIMEOUT = 10.0


def serve(port: int, seconds: int) -> None:
    """Serve every connection in its own thread."""
    signal.alarm(seconds)
    with socket.create_server(("", port), backlog=64) as listening:
        while True:
            connection, _address = listening.accept()
            kind = connection.recv(1)
            if kind == QUIT:
                return
            threading.Thread(target=_drain if kind == SINK else _reply, args=(connection,), daemon=True).start()


def stream(address: str, port: int, count: int, seconds: float) -> float:
    """Return the total bits per second received over ``count`` connections."""
    rates: list[float] = []
    deadline = time.monotonic() + seconds
    threads = [threading.Thread(target=_fill, args=(address, port, deadline, rates)) for _number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if len(rates) < count:
        raise ConnectionError(f"{count - len(rates)} of {count} streams broke")
    return sum(rates)


def echo(address: str, port: int, count: int) -> float:
    """Return the median time of a round trip of one byte, in seconds."""
    with _connect(address, port, ECHO) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return statistics.median(_round_trip(connection) for _number in range(count))


def quit_server(address: str, port: int) -> None:
    """Stop the server."""
    _connect(address, port, QUIT).close()


def _fill(address: str, port: int, deadline: float, rates: list[float]) -> None:
    """Send until the deadline, and append the bits per second that the server received."""
    with _connect(address, port, SINK) as connection:
        block = bytes(CHUNK)
        while time.monotonic() < deadline:
            connection.sendall(block)
        connection.shutdown(socket.SHUT_WR)
        rates.append(float(connection.makefile().read()))


def _drain(connection: socket.socket) -> None:
    with connection:
        block = bytearray(CHUNK)
        started_at, total = time.monotonic(), 0
        while received := connection.recv_into(block):
            total += received
        connection.sendall(str(total * 8 / (time.monotonic() - started_at)).encode())


def _reply(connection: socket.socket) -> None:
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    with connection:
        while received := connection.recv(1):
            connection.sendall(received)


def _round_trip(connection: socket.socket) -> float:
    started_at = time.perf_counter()
    connection.sendall(b"\0")
    if not connection.recv(1):
        raise ConnectionError("the server closed the connection")
    return time.perf_counter() - started_at


def _connect(address: str, port: int, kind: bytes) -> socket.socket:
    """Return a connection to the server, which may still be starting."""
    deadline = time.monotonic() + TIMEOUT
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError):
            connection = socket.create_connection((address, port), timeout=1)
            connection.settimeout(TIMEOUT)
            connection.sendall(kind)
            return connection
        time.sleep(0.05)
    raise ConnectionError(f"no response from {address}:{port}")


def main(words: list[str]) -> None:
    """Run the command in ``words``."""
    command, *arguments = words
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {max(cores) if command == "serve" else min(cores)})
    if command == "serve":
        serve(int(arguments[0]), int(arguments[1]))
    elif command == "quit":
        quit_server(arguments[0], int(arguments[1]))
    else:
        address, port, count, *rest = arguments
        if command == "stream":
            print(stream(address, int(port), int(count), float(rest[0])))
        else:
            print(echo(address, int(port), int(count)))


if __name__ == "__main__":
    main(sys.argv[1:])
