# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Checks from the containers' network namespaces that every peer answers over TCP and with full-size frames.

One thread enters one namespace after the other, opens the sockets there and returns; sockets stay in their namespace.
All pairs are then polled together, so that a session of many containers takes no longer than one of two.
"""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import errno
import os
import selectors
import socket
import time
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from .._model.session import SSH_PORT
from .icmp import ICMP_AND_IP_HEADERS, echo_request, is_reply

RETRY_SECONDS, ROUND_SECONDS = 0.05, 0.3

UNUSED_PORT = 1
"""A port that no program uses: the peer's kernel refuses the connection, and an sshd would have to start a process."""

_CLONE_NEWNET = 0x40000000
# From <linux/in.h>; Python's socket module does not name them.
_IP_MTU_DISCOVER, _IP_PMTUDISC_DO = 10, 2


class ProbeSource(NamedTuple):
    """A container to probe from: its hostname, and a process in its network namespace."""

    hostname: str
    pid: int


class PeerTarget(NamedTuple):
    """A container to probe: its hostname, its address on the session network, and the port to connect to.

    ``sshd``: whether only an SSH banner counts as an answer. Otherwise a connection that is refused does, too.
    """

    hostname: str
    address: str
    port: int = SSH_PORT
    sshd: bool = True


class Reachability(NamedTuple):
    """Whether one container reaches another, by their hostnames.

    ``tcp``: it answers, as the target demands. ``frame``: a full-size frame that must not be fragmented is echoed.
    """

    source: str
    target: str
    tcp: bool
    frame: bool


@dataclasses.dataclass(eq=False)
class _Probe:
    """An unfinished check of one pair: the answer over TCP, or else the echo of a full-size frame."""

    source: ProbeSource
    target: PeerTarget
    over_tcp: bool
    socket: socket.socket | None = None

    def close(self) -> None:
        """Close the socket."""
        if self.socket:
            self.socket.close()
        self.socket = None

    @property
    def connected(self) -> bool:
        """Whether the TCP connection is established."""
        if not self.socket or not self.over_tcp:
            return False
        try:
            self.socket.getpeername()
        except OSError:
            return False
        return True


def check_reachability(
    sources: Sequence[ProbeSource], targets: Sequence[PeerTarget], mtu: int, seconds: float
) -> list[Reachability]:
    """Check every source towards every other target, and return the results source by source.

    A source must get an answer over TCP, and the echo of a frame of ``mtu`` bytes that must not be fragmented. Failures
    are retried for ``seconds``: containers start in any order. Established connections are kept open between rounds: on
    a busy host, reconnecting would only delay the banner.
    """
    pairs = [(source, target) for source in sources for target in targets if target.hostname != source.hostname]
    missing = [_Probe(source, target, over_tcp) for source, target in pairs for over_tcp in (True, False)]
    until = time.monotonic() + seconds
    while missing and time.monotonic() < until:
        missing = _round(missing, mtu, min(ROUND_SECONDS, until - time.monotonic()))
        if missing:
            time.sleep(RETRY_SECONDS)
    for probe in missing:
        probe.close()
    failed = {(probe.source, probe.target, probe.over_tcp) for probe in missing}
    return [
        Reachability(
            source.hostname,
            target.hostname,
            (source, target, True) not in failed,
            (source, target, False) not in failed,
        )
        for source, target in pairs
    ]


@contextlib.contextmanager
def network_namespace(pid: int) -> Iterator[None]:
    """Enter the network namespace of a process for the block; only the calling thread is moved."""
    with open("/proc/self/ns/net") as original, open(f"/proc/{pid}/ns/net") as namespace:
        _setns(namespace.fileno())
        try:
            yield
        finally:
            _setns(original.fileno())


def _setns(namespace: int) -> None:
    # os.setns came with Python 3.12; agents have 3.9 and newer.
    if ctypes.CDLL(None, use_errno=True).setns(namespace, _CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def _round(probes: Sequence[_Probe], mtu: int, seconds: float) -> list[_Probe]:
    """Try every probe once and return those that have not succeeded, with their established connections."""
    selector = selectors.DefaultSelector()
    closed = [probe for probe in probes if not probe.socket]
    for source in {probe.source.hostname: probe.source for probe in closed}.values():
        with contextlib.suppress(OSError), network_namespace(source.pid):
            for probe in (probe for probe in closed if probe.source.hostname == source.hostname):
                _open(probe, mtu)
    for probe in probes:
        if probe.socket:
            selector.register(probe.socket, _awaited_events(probe), probe)
    succeeded: set[_Probe] = set()
    until = time.monotonic() + seconds
    while selector.get_map() and time.monotonic() < until:
        for key, _events in selector.select(until - time.monotonic()):
            answered = _read_answer(key.data)
            if answered is not None:
                selector.unregister(key.fileobj)
                key.data.close()
                succeeded |= {key.data} if answered else set()
    selector.close()
    for probe in probes:
        if not probe.connected:
            probe.close()
    return [probe for probe in probes if probe not in succeeded]


def _awaited_events(probe: _Probe) -> int:
    """Return the events to wait for: a connection can be written to once it is established or refused."""
    awaits_connection = probe.over_tcp and not probe.target.sshd
    return selectors.EVENT_WRITE if awaits_connection else selectors.EVENT_READ


def _open(probe: _Probe, mtu: int) -> None:
    if probe.over_tcp:
        sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        sock.setblocking(False)
        if sock.connect_ex((probe.target.address, probe.target.port)) not in (0, errno.EINPROGRESS):
            # Without a route, for example.
            sock.close()
            return
    else:
        sock = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_IP, _IP_MTU_DISCOVER, _IP_PMTUDISC_DO)
        sock.connect((probe.target.address, 0))
        with contextlib.suppress(OSError):
            sock.send(echo_request(mtu - ICMP_AND_IP_HEADERS))
    probe.socket = sock


def _read_answer(probe: _Probe) -> bool | None:
    """Return whether the answer arrived; ``None`` while it may still arrive, ``False`` when it cannot any more."""
    if probe.socket and probe.over_tcp and not probe.target.sshd:
        return probe.socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) in (0, errno.ECONNREFUSED)
    try:
        received = probe.socket.recv(65536) if probe.socket else b""
    except BlockingIOError:
        return None
    except OSError:
        return False
    if probe.over_tcp:
        return received.startswith(b"SSH-")
    return True if is_reply(received) else None
