# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Probes TCP ports of other hosts from the network namespaces of containers, one of each session on this agent."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from .._docker.containers import pid_of
from .._docker.sdk import docker
from .._host.store import Store
from .._model.errors import as_phrase
from .._network.reachability import network_namespace
from .._session.ownership import sort_containers
from .model import InsideAnswer, InsideProbe, InsideReply, InsideTarget
from .port_scan import ScanTarget, max_open_sockets, scan

MAX_SESSIONS, AT_ONCE = 64, 16
"""How many sessions are probed from, and how many of them at a time: each takes a few seconds if nothing answers."""

_MAX_SOCKETS = 4096


class _Source(NamedTuple):
    session: str
    container: str
    pid: int


def probe_from_containers(client: docker.APIClient, store: Store, targets: Sequence[InsideTarget]) -> InsideReply:
    """Return which targets answer a container of each session on this agent."""
    sources = list(_find_sources(client, store))
    sockets = max(1, max_open_sockets(_MAX_SOCKETS) // AT_ONCE)
    with ThreadPoolExecutor(AT_ONCE) as pool:
        probes = tuple(pool.map(lambda source: _probe(source, targets, sockets), sources[:MAX_SESSIONS]))
    return InsideReply(probes, skipped=len(sources[MAX_SESSIONS:]))


def _find_sources(client: docker.APIClient, store: Store) -> Iterator[_Source]:
    """Yield the first running container of each session, sorted by the names of the sessions."""
    sessions, _damaged = store.load_all()
    own = sort_containers(client, store, sessions).own
    for session in sorted(sessions, key=lambda session: session.plan.name):
        for hostname, container in sorted(own[session.plan.id].items()):
            pid = pid_of(client, container["Id"]) if container["State"] == "running" else 0
            if pid:
                yield _Source(session.plan.name, hostname, pid)
                break


def _probe(source: _Source, targets: Sequence[InsideTarget], sockets: int) -> InsideProbe:
    try:
        with network_namespace(source.pid):
            # An answer of the target itself is one, not an error of a host on the path.
            found = scan([ScanTarget("tcp", target.address, target.port) for target in targets], (), sockets).answers
    except OSError as error:
        return InsideProbe(source.session, source.container, (), f"its network cannot be entered: {as_phrase(error)}")
    answers = tuple(InsideAnswer(answer.target.address, answer.target.port, answer.state) for answer in found)
    return InsideProbe(source.session, source.container, answers)
