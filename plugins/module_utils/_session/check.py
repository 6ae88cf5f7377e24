# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Checks an agent's containers of a session, each towards all others, and commits the session."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping, Sequence
from typing import Any

from .._docker import containers
from .._docker.sdk import docker
from .._firewall.foreign import name_closing
from .._firewall.openings import openings_of_session
from .._host.local_session import LocalSession
from .._host.processes import runs
from .._host.store import Store
from .._host.threads import in_threads
from .._model.errors import CheckFailedError
from .._model.plain_data import to_plain
from .._model.plan import Kernel, SessionPlan
from .._model.session import ALL
from .._network.reachability import UNUSED_PORT, PeerTarget, ProbeSource, Reachability, check_reachability
from .._network.sockets import listens
from .claim_guard import ClaimLostError, require_claim
from .container_states import container_states
from .ownership import OwnContainers, own_containers
from .ssh_check import chain_passes, check_logins
from .use import begin_use

POLL_SECONDS = 0.02

CHAIN = 4
"""How many logins one command chains: the engine takes longer to run a command than sshd to accept a login."""


def check_and_commit(
    client: docker.APIClient, store: Store, session_id: str, nonce: str, seconds: int
) -> dict[str, dict[str, Any]]:
    """Check this agent's part of a session and commit it; return its containers' states and images by hostname.

    Raises :class:`CheckFailedError`, and :class:`ClaimLostError` when a later run took the session over.
    """
    session = require_claim(store, session_id, nonce)
    # With command_scope=all, a container that has finished its command has already exited.
    failures = (
        []
        if session.plan.command_scope == ALL and store.started_commands(session)
        else find_failures(client, store, session, seconds)
    )
    if failures:
        raise CheckFailedError("; ".join(failures))
    with store.lock():
        session = require_claim(store, session_id, nonce)
        if session.expired:
            # Its containers may be being removed, without this lock.
            raise ClaimLostError(f"the claim of session {session.plan.name} expired while it was checked")
        if not session.committed:
            store.commit(session)
            begin_use(store, dataclasses.replace(session, expires_at=None))
    return to_plain(container_states(client, store, session, own_containers(client, store, session)))


def find_failures(client: docker.APIClient, store: Store, session: LocalSession, seconds: int) -> list[str]:
    """Return a sentence for each failed check; empty for a healthy slice.

    The checks: every container of this agent runs; every other container answers over TCP and with full-size frames;
    and each container logs in to the next one by SSH, by name, with strict host key checking and no prompt. Since all
    have the same ``authorized_keys`` and ``known_hosts``, that ring uses every key of the session once each way, and
    every sshd. So the pairs need no sshd, which would start a process for each of them.
    """
    by_hostname = own_containers(client, store, session)
    stopped = [
        name for name in _hostnames(session) if name not in by_hostname or by_hostname[name]["State"] != "running"
    ]
    if stopped:
        return [
            f"{name} is {by_hostname[name]['State'] if name in by_hostname else 'missing'} on {session.agent}"
            for name in stopped
        ]
    until = time.monotonic() + seconds
    network = session.plan.network
    pids = {name: containers.pid_of(client, by_hostname[name]["Id"]) for name in _hostnames(session)}
    if network:
        sources = [ProbeSource(name, pid) for name, pid in pids.items()]
        results = check_reachability(sources, _probe_targets(session.plan), network.mtu, seconds)
        unreached = [sentence for result in results for sentence in _describe_unreached(result, network.mtu)]
        if unreached:
            bridges = bool(network.bridge)
            return [
                *unreached,
                *name_closing(openings_of_session(session.plan, session.agent), session.agent, bridges=bridges),
            ]
    _await_sshds(session, pids, until)
    ring = _ring(session)
    chains = [ring[first : first + CHAIN + 1] for first in range(0, len(ring) - 1, CHAIN)]
    failures = in_threads(lambda chain: _check_chain(client, by_hostname, chain, until), chains)
    return [sentence for sentences in failures for sentence in sentences]


def _probe_targets(plan: SessionPlan) -> list[PeerTarget]:
    """Return what is probed: any answer of the kernel of all containers that have an address.

    In the network of an agent that kernel is the agent's, and only the ports of sshds are open: there, sshds answer.
    """
    shared = plan.shares_host_network
    return [
        PeerTarget(kernel.hostname, kernel.address, kernel.ssh_port if shared else UNUSED_PORT, sshd=shared)
        for kernel in plan.kernels
        if kernel.address
    ]


def _await_sshds(session: LocalSession, pids: Mapping[str, int], until: float) -> None:
    """Wait until the containers' sshds listen: a login that comes too early is repeated as a command of its own."""
    for kernel in session.kernels:
        pid = pids[kernel.hostname]
        while runs(pid) and not listens(pid, kernel.ssh_port) and time.monotonic() < until:
            time.sleep(POLL_SECONDS)


def _describe_unreached(result: Reachability, mtu: int) -> list[str]:
    """Return a sentence for each failed check between two containers."""
    checks = [(result.tcp, "over TCP"), (result.frame, f"with frames of {mtu} bytes")]
    return [f"{result.source} does not reach {result.target} {check}" for passed, check in checks if not passed]


def _ring(session: LocalSession) -> list[Kernel]:
    """Return the containers of this agent, followed by the first of the next agent (or of this one).

    Empty for an agent that only manages the session's network.
    """
    if not session.kernels:
        return []
    agents = list(dict.fromkeys(kernel.agent for kernel in session.plan.kernels))
    following = agents[(agents.index(session.agent) + 1) % len(agents)]
    return [*session.kernels, session.plan.kernels_on(following)[0]]


def _check_chain(client: docker.APIClient, own: OwnContainers, chain: Sequence[Kernel], until: float) -> list[str]:
    """Log in along a chain of containers; return a sentence for each failed login."""
    source, *peers = chain
    if chain_passes(client, own[source.hostname]["Id"], [peer.hostname for peer in peers]):
        return []
    failures = [_retry_login(client, own, source, peer.hostname, until) for source, peer in zip(chain, peers)]
    return [sentence for sentence in failures if sentence]


def _retry_login(client: docker.APIClient, own: OwnContainers, source: Kernel, peer: str, until: float) -> str:
    """Log in from one container to another, retrying until ``until``; return the failure, empty on success."""
    container = own[source.hostname]["Id"]
    failures = check_logins(client, container, [peer]).failures
    # The sshd of the next agent may still be starting.
    while failures and time.monotonic() < until:
        time.sleep(0.05)
        failures = check_logins(client, container, [peer]).failures
    return f"ssh from {source.hostname} to {peer} fails: {failures[peer]}" if failures else ""


def _hostnames(session: LocalSession) -> list[str]:
    return [kernel.hostname for kernel in session.kernels]
