"""Throughput, CPU time and round trips over TCP, between any two network namespaces.

This file runs on an agent, inside a namespace; its source is piped to ``python3 - WORDS``, so nothing is installed.

``serve PORT SECONDS``: receive streams and send echoes, for at most that many seconds, or until ``quit``.
``stream ADDRESS PORT COUNT SECONDS INTERFACE``: print the total bits per second over that many connections, and the CPU
time in seconds for each packet that the agent's interface sent and received meanwhile.
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
from pathlib import Path

SINK, ECHO, QUIT = b"s", b"e", b"q"
CHUNK = 1 << 17
TIMEOUT = 10.0

STAT = Path("/proc/stat")
# The interfaces of the agent itself, whatever namespace this process is in.
INTERFACES = Path("/proc/1/net/dev")
# A measurement begins once less than this share of the machine is busy, or after this many seconds.
IDLE, IDLE_WINDOW, IDLE_LIMIT = 0.3, 0.1, 0.5


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


def stream(address: str, port: int, count: int, seconds: float, interface: str) -> tuple[float, float]:
    """Return the total bits per second received over ``count`` connections, and the CPU seconds per packet.

    The CPU time is that of the whole machine, because all hosts of the lab share one kernel. Packets are those that
    pass the agent's ``interface``, sent and received: with segmentation offload, one may carry many segments.
    """
    rates: list[float] = []
    busy, passed = busy_ticks(STAT.read_text()), packets(INTERFACES.read_text(), interface)
    deadline = time.monotonic() + seconds
    threads = [threading.Thread(target=_fill, args=(address, port, deadline, rates)) for _number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if len(rates) < count:
        raise ConnectionError(f"{count - len(rates)} of {count} streams broke")
    busy, passed = busy_ticks(STAT.read_text()) - busy, packets(INTERFACES.read_text(), interface) - passed
    if passed <= 0:
        raise ConnectionError(f"the streams to {address} passed {interface} without a packet")
    return sum(rates), busy / os.sysconf("SC_CLK_TCK") / passed


def echo(address: str, port: int, count: int) -> float:
    """Return the median time of a round trip of one byte, in seconds."""
    with _connect(address, port, ECHO) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return statistics.median(_round_trip(connection) for _number in range(count))


def busy_ticks(stat: str) -> int:
    """Return the user, nice, system, irq, softirq and steal time since boot, given the text of ``/proc/stat``."""
    user, nice, system, _idle, _iowait, irq, softirq, steal = _ticks(stat)
    return user + nice + system + irq + softirq + steal


def busy_share(before: str, after: str) -> float:
    """Return which share of the machine was busy between two texts of ``/proc/stat``, from 0 to 1."""
    total = sum(_ticks(after)) - sum(_ticks(before))
    return (busy_ticks(after) - busy_ticks(before)) / total if total else 0.0


def packets(interfaces: str, name: str) -> int:
    """Return the packets that an interface received and sent, given ``/proc/net/dev``. Raises :class:`LookupError`."""
    for line in interfaces.splitlines():
        interface, colon, numbers = line.partition(":")
        if colon and interface.strip() == name:
            values = numbers.split()
            return int(values[1]) + int(values[9])
    raise LookupError(f"the agent has no interface {name}")


def await_idle() -> None:
    """Wait until what prepared the measurement has ended; other load does not delay it for long."""
    deadline = time.monotonic() + IDLE_LIMIT
    share = 1.0
    while share >= IDLE and time.monotonic() < deadline:
        before = STAT.read_text()
        time.sleep(IDLE_WINDOW)
        share = busy_share(before, STAT.read_text())


def quit_server(address: str, port: int) -> None:
    """Stop the server."""
    _connect(address, port, QUIT).close()


def _ticks(stat: str) -> list[int]:
    """Return the times of all cores since boot, from user to steal; guests are included in user."""
    return [int(ticks) for ticks in stat.split(maxsplit=9)[1:9]]


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
        await_idle()
        address, port, count, *rest = arguments
        if command == "stream":
            print(*stream(address, int(port), int(count), float(rest[0]), rest[1]))
        else:
            print(echo(address, int(port), int(count)))


if __name__ == "__main__":
    main(sys.argv[1:])
