# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Concurrent TCP, UDP and ICMP port scanner.

Targets without an answer, or rejected by a host on the path, are filtered and not among the answers.
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
# For a tunnel, this is a frame with an unused VNI; for any other service, an invalid request.
_DATAGRAM = bytes.fromhex("08000000 ffffff00") + bytes(14)

# From <linux/in.h>, <linux/in6.h> and <linux/icmpv6.h>; Python's socket module does not name them.
_IP_RECVERR, _IPV6_RECVERR = 11, 25
_ECHO_REQUEST_V6, _ECHO_REPLY_V6 = 128, 129


class ScanTarget(NamedTuple):
    """A probe: ``tcp``, ``udp`` or ``icmp`` (an echo request, port 0). A link-local address has its zone."""

    protocol: str
    address: str
    port: int


class Answer(NamedTuple):
    """A target that answered, and its state."""

    target: ScanTarget
    state: str


class ScanResult(NamedTuple):
    """The answers, and the addresses that the kernel of this host could not send to, with its error."""

    answers: list[Answer]
    refused: dict[str, str]


def max_open_sockets(limit: int) -> int:
    """Return how many sockets this process may have open, at most ``limit``; raises its soft limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = limit + _SPARE_FILES if hard == resource.RLIM_INFINITY else min(limit + _SPARE_FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    return max(1, min(limit, most - _SPARE_FILES))


def scan(
    targets: Iterable[ScanTarget], hosts: Collection[str], at_once: int, seconds: float = PROBE_TIMEOUT
) -> ScanResult:
    """Probe all targets, ``at_once`` of them at a time, each for ``seconds``.

    ``hosts`` are all addresses of the scanned host: an ICMP error from one of them is an answer.
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
        for target in batch:
            if target.address in result.refused:
                continue
            sock = _open_socket(target)
            code = _start_probe(sock, target)
            if code == errno.EINPROGRESS:
                pending[sock.fileno()] = sock, target
                poll.register(sock, select.EPOLLIN if target.protocol != "tcp" else select.EPOLLOUT)
                continue
            if code in (0, errno.ECONNREFUSED):
                result.answers.append(Answer(target, CLOSED if code else OPEN))
            else:
                result.refused[target.address] = os.strerror(code)
            _reset(sock)
        for sock, target, state in _poll_answers(poll, pending, hosts, seconds):
            del pending[sock.fileno()]
            _reset(sock)
            if state:
                result.answers.append(Answer(target, state))


def _poll_answers(
    poll: select.epoll, pending: dict[int, tuple[socket.socket, ScanTarget]], hosts: Collection[object], seconds: float
) -> Iterator[tuple[socket.socket, ScanTarget, str]]:
    """Yield completed sockets with the state of the target; empty if a host on the path rejected it."""
    until = time.monotonic() + seconds
    while pending and (remaining := until - time.monotonic()) > 0:
        for handle, _events in poll.poll(remaining, maxevents=4096):
            sock, target = pending[handle]
            state = _read_state(sock, target, hosts)
            if state is not None:
                yield sock, target, state


def _open_socket(target: ScanTarget) -> socket.socket:
    ipv6 = is_ipv6(target.address)
    family = socket.AF_INET6 if ipv6 else socket.AF_INET
    if target.protocol == "icmp":
        echo = socket.IPPROTO_ICMPV6 if ipv6 else socket.IPPROTO_ICMP
        sock = socket.socket(family, socket.SOCK_RAW | socket.SOCK_NONBLOCK, echo)
    else:
        kind = socket.SOCK_STREAM if target.protocol == "tcp" else socket.SOCK_DGRAM
        sock = socket.socket(family, kind | socket.SOCK_NONBLOCK)
    # The kernel reports the sender of an ICMP error only with this option.
    sock.setsockopt(*((socket.IPPROTO_IPV6, _IPV6_RECVERR) if ipv6 else (socket.IPPROTO_IP, _IP_RECVERR)), 1)
    return sock


def _start_probe(sock: socket.socket, target: ScanTarget) -> int:
    """Start a probe and return its error number; ``EINPROGRESS`` while an answer is pending."""
    code = sock.connect_ex(_destination(target))
    if code or target.protocol == "tcp":
        return code
    ipv6 = is_ipv6(target.address)
    echo = bytes([_ECHO_REQUEST_V6, 0, 0, 0]) + _echo_id() if ipv6 else echo_request(8)
    try:
        sock.send(echo if target.protocol == "icmp" else _DATAGRAM)
    except OSError as error:
        return error.errno or errno.EIO
    return errno.EINPROGRESS


def _destination(target: ScanTarget) -> tuple[str, int] | tuple[str, int, int, int]:
    # ICMP has no ports, and raw sockets over IPv6 take the number for a protocol.
    address, _percent, zone = target.address.partition("%")
    if not is_ipv6(address):
        return address, target.port
    return address, target.port, 0, socket.if_nametoindex(zone) if zone else 0


def _read_state(sock: socket.socket, target: ScanTarget, hosts: Collection[object]) -> str | None:
    """Return the state from a ready socket; empty if a host on the path rejected it, ``None`` for unrelated data."""
    code = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
    if code == errno.ECONNREFUSED:
        return CLOSED
    if code:
        return ICMP_ERROR if _sender_of_error(sock) in hosts else ""
    if target.protocol == "tcp":
        return OPEN
    try:
        received = sock.recv(2048)
    except OSError as error:
        return CLOSED if error.errno == errno.ECONNREFUSED else None
    return OPEN if target.protocol == "udp" or _is_echo(received, target) else None


def _is_echo(received: bytes, target: ScanTarget) -> bool:
    if not is_ipv6(target.address):
        return is_reply(received)
    return received[:1] == bytes([_ECHO_REPLY_V6]) and received[4:8] == _echo_id()


def _echo_id() -> bytes:
    return struct.pack("!HH", os.getpid() & 0xFFFF, 1)


def _sender_of_error(sock: socket.socket) -> object:
    """Return the sender of an ICMP error, which follows 16 bytes of the kernel (struct sock_extended_err)."""
    try:
        _data, ancillary, _flags, _address = sock.recvmsg(512, 512, socket.MSG_ERRQUEUE)
    except OSError:
        return None
    for level, kind, data in ancillary:
        if (level, kind) == (socket.IPPROTO_IP, _IP_RECVERR):
            return ip_address(data[20:24])
        if (level, kind) == (socket.IPPROTO_IPV6, _IPV6_RECVERR):
            return ip_address(data[24:40])
    return None


def _reset(sock: socket.socket) -> None:
    """Close a socket with a reset, which leaves no state on either side."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    sock.close()


def _close_all(pending: dict[int, tuple[socket.socket, ScanTarget]]) -> None:
    for sock, _target in pending.values():
        sock.close()
