# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Checks the connectivity of an agent's containers in a session: names, TCP, full-size frames, logins."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, NamedTuple

from .._docker.sdk import docker
from .._host.local_session import LocalSession
from .._host.threads import in_threads
from .._model.addressing import is_ipv6
from .._model.errors import EXPECTED, reason
from .._model.plan import Kernel, SessionPlan
from .._network.reachability import PeerTarget, ProbeSource, Reachability, check_reachability
from .ssh_check import LoginReport, check_logins

Pair = tuple[str, str]


class Running(NamedTuple):
    """A container that runs: its id, and its first process."""

    container: str
    pid: int


LOGINS_SECONDS = 300
"""The timeout of all logins from the containers of this agent."""


def check_pairs(
    client: docker.APIClient, session: LocalSession, running: Mapping[str, Running], seconds: int
) -> list[dict[str, Any]]:
    """Check each container that runs here (``running``, by hostname) towards each one of its session, itself included.

    Each pair has: whether the ``name`` resolves to the peer's address, whether its sshd answers over ``tcp``, whether a
    full-size ``frame`` is echoed, and whether a login by ``ssh`` succeeds (else ``ssh_error``). ``None``: not tried,
    such as the path from a container to itself, or a login to a peer that does not answer.
    """
    sources = [kernel for kernel in session.kernels if kernel.hostname in running]
    results = _check_session_network(
        session, [ProbeSource(kernel.hostname, running[kernel.hostname].pid) for kernel in sources], seconds
    )
    unreachable = {pair for pair, result in results.items() if not result.tcp}
    hostnames = [kernel.hostname for kernel in session.plan.kernels]
    until = time.monotonic() + LOGINS_SECONDS
    peers = [[peer for peer in hostnames if (kernel.hostname, peer) not in unreachable] for kernel in sources]
    reports = in_threads(
        lambda kernel, targets: _check_logins(client, running[kernel.hostname].container, targets, until),
        sources,
        peers,
    )
    return [
        {
            "from": source.hostname,
            "to": target.hostname,
            "name": _resolves_to(report, target),
            "tcp": results[pair].tcp if pair in results else None,
            "frame": results[pair].frame if pair in results else None,
            "ssh": None if pair in unreachable else target.hostname not in report.failures,
            "ssh_error": report.failures.get(target.hostname),
        }
        for source, report in zip(sources, reports)
        for target in session.plan.kernels
        for pair in [(source.hostname, target.hostname)]
    ]


def _check_session_network(session: LocalSession, sources: list[ProbeSource], seconds: int) -> dict[Pair, Reachability]:
    network = session.plan.network
    results = check_reachability(sources, _sshds(session.plan), network.mtu, seconds) if network else []
    return {(result.source, result.target): result for result in results}


def _sshds(plan: SessionPlan) -> list[PeerTarget]:
    """Return the sshds of all containers that have an address."""
    return [PeerTarget(kernel.hostname, kernel.address, kernel.ssh_port) for kernel in plan.kernels if kernel.address]


def _check_logins(client: docker.APIClient, container: str, peers: list[str], until: float) -> LoginReport:
    """Log in from a container to its peers; if the command cannot run, or it is too late, all count as failed."""
    remaining = int(until - time.monotonic())
    if remaining < 1:
        late = f"not tried: the logins of other containers took {LOGINS_SECONDS} seconds"
        return LoginReport({}, dict.fromkeys(peers, late))
    try:
        return check_logins(client, container, peers, remaining)
    except EXPECTED as error:
        return LoginReport({}, dict.fromkeys(peers, reason(error)))


def _resolves_to(report: LoginReport, kernel: Kernel) -> bool:
    """Return whether a hostname resolves to its container; the first IPv4 address counts."""
    first = next((address for address in report.addresses.get(kernel.hostname, []) if not is_ipv6(address)), None)
    return first is not None and kernel.address in (None, first)
