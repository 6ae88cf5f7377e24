# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""How the containers of an agent meet those of their session: names, TCP, full-size frames, logins, latency."""

from __future__ import annotations

import concurrent.futures
from collections.abc import Collection, Mapping
from typing import Any

from .._docker import containers
from .._docker.sdk import docker
from .._host.store import LocalSession
from .._model.addressing import is_ipv6
from .._model.errors import EXPECTED, reason
from .._model.plan import Kernel
from .._network.latency import latencies
from .._network.reachability import ProbeSource, Reachability, check_reachability
from .check import targets_of
from .ssh_check import LoginReport, check_logins

Pair = tuple[str, str]


def pairs_of(
    client: docker.APIClient, held: LocalSession, pids: Mapping[str, int], seconds: int
) -> list[dict[str, Any]]:
    """Return how each container that runs here (``pids``, by hostname) meets each of its session, itself included.

    Of every pair it is told whether the ``name`` leads to the peer's address, whether its sshd answers over ``tcp``,
    whether a full-size ``frame`` comes back, whether a login by ``ssh`` succeeds (``ssh_error`` is what it said where
    it does not), and the round-trip time of a small echo, ``latency_ms``. ``None`` is what was not tried: a way to
    oneself, and a login where nobody answers.
    """
    sources = [kernel for kernel in held.kernels if kernel.hostname in pids]
    met = _meetings(held, [ProbeSource(one.hostname, pids[one.hostname]) for one in sources], seconds)
    unheard = {pair for pair, how in met.items() if not how.tcp}
    everybody = [kernel.hostname for kernel in held.plan.kernels]
    with concurrent.futures.ThreadPoolExecutor(containers.PARALLEL) as pool:
        peers = [[peer for peer in everybody if (one.hostname, peer) not in unheard] for one in sources]
        said = list(pool.map(lambda one, asked: _ask(client, one, asked), sources, peers))
    taken = _latencies(held, pids, [pair for pair, how in met.items() if how.tcp or how.frame])
    return [
        {
            "from": source.hostname,
            "to": target.hostname,
            "name": _resolves_to(told, target),
            "tcp": met[pair].tcp if pair in met else None,
            "frame": met[pair].frame if pair in met else None,
            "ssh": None if pair in unheard else target.hostname not in told.failures,
            "ssh_error": told.failures.get(target.hostname),
            "latency_ms": taken.get(pair),
        }
        for source, told in zip(sources, said)
        for target in held.plan.kernels
        for pair in [(source.hostname, target.hostname)]
    ]


def _meetings(held: LocalSession, sources: list[ProbeSource], seconds: int) -> dict[Pair, Reachability]:
    network = held.plan.network
    met = check_reachability(sources, targets_of(held.plan), network.mtu, seconds) if network else []
    return {(one.source, one.target): one for one in met}


def _latencies(held: LocalSession, pids: Mapping[str, int], pairs: Collection[Pair]) -> dict[Pair, float]:
    targets = {one.hostname: one for one in targets_of(held.plan)}
    return latencies((ProbeSource(source, pids[source]), targets[target]) for source, target in pairs)


def _ask(client: docker.APIClient, kernel: Kernel, peers: list[str]) -> LoginReport:
    """Let a container log in to its peers; where it cannot be asked, none of it succeeds."""
    try:
        return check_logins(client, kernel.container, peers)
    except EXPECTED as error:
        return LoginReport({}, dict.fromkeys(peers, reason(error)))


def _resolves_to(said: LoginReport, kernel: Kernel) -> bool:
    """Return whether a name leads to the container that has it: the first IPv4 address counts."""
    first = next((address for address in said.addresses.get(kernel.hostname, []) if not is_ipv6(address)), None)
    return first is not None and kernel.address in (None, first)
