# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Measures the round-trip time of small ICMP echoes between containers."""

from __future__ import annotations

import contextlib
import select
import socket
import time
from collections.abc import Iterable

from .icmp import echo_request, is_reply
from .reachability import PeerTarget, ProbeSource, network_namespace

# The payload of ``ping``, in bytes.
PAYLOAD = 56

# The number of echoes, and the timeout of each in seconds.
ECHOES, ECHO_TIMEOUT = 5, 0.2


def latencies(pairs: Iterable[tuple[ProbeSource, PeerTarget]]) -> dict[tuple[str, str], float]:
    """Return the round-trip times from sources to targets, in milliseconds: the best of a few echoes.

    The keys are the hostnames of source and target; pairs without an echo reply are left out.
    """
    best = {}
    for source, target in pairs:
        with contextlib.suppress(OSError), network_namespace(source.pid):
            durations = _round_trips(target.address)
            if durations:
                best[source.hostname, target.hostname] = round(min(durations) * 1000, 3)
    return best


def _round_trips(address: str) -> list[float]:
    """Return the round-trip times of the echoes in seconds; the first one without a reply ends the measurement."""
    taken: list[float] = []
    with socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP) as sock:
        sock.connect((address, 0))
        for sequence in range(2, 2 + ECHOES):
            started = time.perf_counter()
            sock.send(echo_request(PAYLOAD, sequence))
            if not _answered(sock, sequence, started + ECHO_TIMEOUT):
                break
            taken.append(time.perf_counter() - started)
    return taken


def _answered(sock: socket.socket, sequence: int, until: float) -> bool:
    remaining = until - time.perf_counter()
    while remaining > 0 and select.select([sock], [], [], remaining)[0]:
        if is_reply(sock.recv(65536), sequence):
            return True
        remaining = until - time.perf_counter()
    return False
