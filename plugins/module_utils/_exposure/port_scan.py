# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which doors a network has: connections, datagrams and echoes are tried, many at once, and answers noted.

What is silent, or refused by somebody on the way, is filtered and not among the answers.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import resource
import select
import socket
import struct
import time
from collections.abc import Collection, Iterable, Iterator
from ipaddress import ip_address
from typing import NamedTuple

from .._model.addressing import is_ipv6
from .._network.icmp import echo_request, is_reply
from .model import CLOSED, ICMP_ERROR, OPEN, PROBE_TIMEOUT

_SPARE_FILES = 200
# To a tunnel it is a frame of a VXLAN that nobody has, to everything else nonsense.
_DATAGRAM = bytes.fromhex("08000000 ffffff00") + bytes(14)

# From <linux/in.h>, <linux/in6.h> and <linux/icmpv6.h>; Python's socket module does not name them.
_IP_RECVERR, _IPV6_RECVERR = 11, 25
_ECHO_REQUEST_V6, _ECHO_REPLY_V6 = 128, 129


class ScanTarget(NamedTuple):
    """What is tried: ``tcp``, ``udp`` or ``icmp`` (an echo, port 0). A link-local address has its zone."""

    protocol: str
    address: str
    port: int


class Answer(NamedTuple):
    """A door that was heard of, and how."""

    target: ScanTarget
    state: str


class ScanResult(NamedTuple):
    """What was heard, and of which addresses this host's own kernel would not send to, with what it said."""

    answers: list[Answer]
    refused: dict[str, str]


def max_open_sockets(limit: int) -> int:
    """Return how many connections this process may open at one moment, at most ``wanted``; raises its soft limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = limit + _SPARE_FILES if hard == resource.RLIM_INFINITY else min(limit + _SPARE_FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    return max(1, min(limit, most - _SPARE_FILES))


def scan(
    targets: Iterable[ScanTarget], hosts: Collection[str], at_once: int, seconds: float = PROBE_TIMEOUT
) -> ScanResult:
    """Try all doors, ``at_once`` of them at a time, each for ``seconds``.

    ``hosts`` are all addresses of the machine that is tried: an ICMP error from one of them is an answer.
    """
    result = ScanResult([], {})
    host_addresses = {ip_address(host.partition("%")[0]) for host in hosts}
    pending = iter(targets)
    while batch := list(itertools.islice(pending, at_once)):
        _probe_batch(batch, host_addresses, seconds, result)
    return result


def _probe_batch(batch: Iterable[ScanTarget], hosts: Collection[object], seconds: float, result: ScanResult) -> None:
    pending: dict[int, tuple[socket.socket, ScanTarget]] = {}
    with contextlib.ExitStack() as stack:
        poll = stack.enter_context(select.epoll())
        stack.callback(_close_all, pending)
        for door in batch:
            if door.address in result.refused:
                continue
            opened = _socket_for(door)
            code = _start_probe(opened, door)
            if code == errno.EINPROGRESS:
                pending[opened.fileno()] = opened, door
                poll.register(opened, select.EPOLLIN if door.protocol != "tcp" else select.EPOLLOUT)
                continue
            if code in (0, errno.ECONNREFUSED):
                result.answers.append(Answer(door, CLOSED if code else OPEN))
            else:
                result.refused[door.address] = os.strerror(code)
            _reset(opened)
        for opened, door, state in _poll_answers(poll, pending, hosts, seconds):
            del pending[opened.fileno()]
            _reset(opened)
            if state:
                result.answers.append(Answer(door, state))


def _poll_answers(
    poll: select.epoll, pending: dict[int, tuple[socket.socket, ScanTarget]], hosts: Collection[object], seconds: float
) -> Iterator[tuple[socket.socket, ScanTarget, str]]:
    """Return sockets that are done, with the state of the door; empty where somebody on the way has refused."""
    until = time.monotonic() + seconds
    while pending and (remaining := until - time.monotonic()) > 0:
        for handle, _events in poll.poll(remaining, maxevents=4096):
            opened, door = pending[handle]
            state = _state(opened, door, hosts)
            if state is not None:
                yield opened, door, state


def _socket_for(door: ScanTarget) -> socket.socket:
    six = is_ipv6(door.address)
    family = socket.AF_INET6 if six else socket.AF_INET
    if door.protocol == "icmp":
        echo = socket.IPPROTO_ICMPV6 if six else socket.IPPROTO_ICMP
        opened = socket.socket(family, socket.SOCK_RAW | socket.SOCK_NONBLOCK, echo)
    else:
        kind = socket.SOCK_STREAM if door.protocol == "tcp" else socket.SOCK_DGRAM
        opened = socket.socket(family, kind | socket.SOCK_NONBLOCK)
    # Who has sent an ICMP error is said only to those who ask for it.
    opened.setsockopt(*((socket.IPPROTO_IPV6, _IPV6_RECVERR) if six else (socket.IPPROTO_IP, _IP_RECVERR)), 1)
    return opened


def _start_probe(opened: socket.socket, door: ScanTarget) -> int:
    """Begin an attempt and return the error number so far; ``EINPROGRESS`` while there is something to wait for."""
    code = opened.connect_ex(_destination(door))
    if code or door.protocol == "tcp":
        return code
    six = is_ipv6(door.address)
    echo = bytes([_ECHO_REQUEST_V6, 0, 0, 0]) + _tag() if six else echo_request(8)
    try:
        opened.send(echo if door.protocol == "icmp" else _DATAGRAM)
    except OSError as error:
        return error.errno or errno.EIO
    return errno.EINPROGRESS


def _destination(door: ScanTarget) -> tuple[str, int] | tuple[str, int, int, int]:
    # ICMP has no ports, and raw sockets over IPv6 take the number for a protocol.
    address, _percent, zone = door.address.partition("%")
    if not is_ipv6(address):
        return address, door.port
    return address, door.port, 0, socket.if_nametoindex(zone) if zone else 0


def _state(opened: socket.socket, door: ScanTarget, hosts: Collection[object]) -> str | None:
    """Return what a socket that woke up has heard; empty from somebody on the way, ``None`` when it was not for us."""
    code = opened.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
    if code == errno.ECONNREFUSED:
        return CLOSED
    if code:
        return ICMP_ERROR if _sender_of_error(opened) in hosts else ""
    if door.protocol == "tcp":
        return OPEN
    try:
        received = opened.recv(2048)
    except OSError as error:
        return CLOSED if error.errno == errno.ECONNREFUSED else None
    return OPEN if door.protocol == "udp" or _is_echo(received, door) else None


def _is_echo(received: bytes, door: ScanTarget) -> bool:
    if not is_ipv6(door.address):
        return is_reply(received)
    return received[:1] == bytes([_ECHO_REPLY_V6]) and received[4:8] == _tag()


def _tag() -> bytes:
    return struct.pack("!HH", os.getpid() & 0xFFFF, 1)


def _sender_of_error(opened: socket.socket) -> object:
    """Return the address that an ICMP error came from: it follows the kernel's 16 bytes about the error."""
    try:
        _data, notes, _flags, _address = opened.recvmsg(512, 512, socket.MSG_ERRQUEUE)
    except OSError:
        return None
    for level, kind, data in notes:
        if (level, kind) == (socket.IPPROTO_IP, _IP_RECVERR):
            return ip_address(data[20:24])
        if (level, kind) == (socket.IPPROTO_IPV6, _IPV6_RECVERR):
            return ip_address(data[24:40])
    return None


def _reset(opened: socket.socket) -> None:
    """Close a socket at once: a reset leaves nothing behind on either side."""
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    opened.close()


def _close_all(pending: dict[int, tuple[socket.socket, ScanTarget]]) -> None:
    for opened, _door in pending.values():
        opened.close()
