# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Removes an agent's slice of a session."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

from .._docker import containers, networks
from .._docker.sdk import docker
from .._firewall.sync import apply_ruleset
from .._host.home_removal import start_removal
from .._host.local_session import LocalSession
from .._host.store import CorruptStateError, NotProvisionedError, Store
from .._host.withdrawn import withdraw
from .._model.change import Change
from .._model.network import bridge_name, vxlan_link_name
from .._network.iproute import remove_link
from .._wireguard.peers import apply_wireguard_peers
from .end import SessionEnd, stop_sessions
from .end import remove_containers as end_containers
from .ownership import mounting_ids, own_containers


def remove_claimed(
    client: docker.APIClient,
    store: Store,
    session_id: str,
    nonce: str | None,
    *,
    unrouted: bool = False,
    end: SessionEnd | None = None,
    check_mode: bool,
) -> list[Change]:
    """Remove a slice; with a nonce, only if it was claimed with that nonce.

    ``unrouted`` says whether all gateways have removed its route. A slice that this run has committed is removed too,
    if another agent failed: a session is never left incomplete. One that an earlier run committed has that run's nonce,
    and is kept. A request that is still under way here claims nothing any more: of that run, or without a nonce, of any
    run for this session.
    """

    def is_ours(session: LocalSession | None) -> bool:
        return nonce is None or (session is not None and session.nonce == nonce)

    if not check_mode:
        # An end needs no space: what is claimed after all expires.
        with contextlib.suppress(OSError), store.lock():
            withdraw(session_id if nonce is None else nonce)
    # A run that rolls back has not sent a route yet.
    unrouted = unrouted or nonce is not None
    return remove_if(client, store, session_id, is_ours, unrouted=unrouted, end=end, check_mode=check_mode)


def is_expired(session: LocalSession | None) -> bool:
    """Return whether the claim of a stored session has expired; another run may have renewed or committed it."""
    return session is not None and session.expired


def remove_if(
    client: docker.APIClient,
    store: Store,
    session_id: str,
    wanted: Callable[[LocalSession | None], bool],
    *,
    unrouted: bool = False,
    end: SessionEnd | None = None,
    check_mode: bool,
) -> list[Change]:
    """Remove a slice whose stored session is ``wanted``; return what was removed.

    ``wanted`` gets ``None`` if there is no stored session, or if it is damaged: then an end needs no plan, and what is
    removed is what was recorded. Without a folder no container is the session's, whatever has its labels. ``unrouted``
    says whether all gateways have removed its route. Raises :class:`CorruptStateError` if a damaged one is not wanted.

    With an ``end`` the processes are asked first, and what they printed is kept. Containers are removed without the
    agent's lock: the engine waits for their processes to end, and one that hangs,
    on a file system that does not answer, must not keep other sessions from starting and ending.
    """
    changes: list[Change] = []
    if not check_mode:
        if end is not None:
            stop_sessions(client, store, {session_id: end})
        with store.session_lock(session_id):
            session = _stored_session(store, session_id, wanted)
            if not wanted(session):
                return []
            changes = end_containers(client, store, session_id, session, end)
    with store.both_locks(session_id):
        session = _stored_session(store, session_id, wanted)
        if not wanted(session):
            return changes
        changes += _remove_slice(client, store, session_id, session, unrouted=unrouted, check_mode=check_mode)
    with contextlib.suppress(NotProvisionedError):
        if not check_mode and store.homes.has_retired():
            start_removal()
    return changes


def _stored_session(
    store: Store, session_id: str, wanted: Callable[[LocalSession | None], bool]
) -> LocalSession | None:
    try:
        return store.session(session_id)
    except CorruptStateError:
        if not wanted(None):
            raise
        return None


def _remove_slice(
    client: docker.APIClient,
    store: Store,
    session_id: str,
    session: LocalSession | None,
    *,
    unrouted: bool,
    check_mode: bool,
) -> list[Change]:
    """Remove everything of a session from this agent and return what was removed, by this call.

    The folder is removed last, so that an interrupted removal can be repeated. Unless all gateways have removed the
    route of the session (``unrouted``), its published ports stay reserved.
    """
    if not store.folder(session_id).exists():
        if check_mode:
            return []
        _release_ports(store, session_id, session, unrouted=unrouted)
        # Somebody has lost the folder. Its network goes, unless a container has files of the session: of a strange one,
        # or of one that has its folder elsewhere.
        return [] if session_id in mounting_ids(client) else _remove_network(client, session_id)
    existing = own_containers(client, store, session or session_id).values()
    if check_mode:
        removals = [containers.listed_change(container, None) for container in existing]
        removals += [
            Change(f"network {network['Name']}", network["Id"][:12], None)
            for network in networks.find_networks(client, session_id)
        ]
        return [*removals, *([Change(f"session {session.plan.name}", "held", None)] if session else [])]
    changes = containers.remove_containers(client, existing)
    changes += _remove_network(client, session_id)
    with store.isolation_lock():
        # Restoring, which runs at any moment, would bring back the rules of a session that is still stored.
        apply_ruleset(store, check_mode=False, excluded=session_id)
        apply_wireguard_peers(store, check_mode=False, excluded=session_id)
        _release_ports(store, session_id, session, unrouted=unrouted)
        if store.remove(session_id):
            changes.append(Change(f"session {session.plan.name if session else session_id}", "held", None))
    return changes


def _remove_network(client: docker.APIClient, session_id: str) -> list[Change]:
    remove_link(vxlan_link_name(session_id))
    changes = networks.remove_networks(client, session_id)
    # An engine that fails while it makes a network leaves the bridge.
    remove_link(bridge_name(session_id))
    return changes


def _release_ports(store: Store, session_id: str, session: LocalSession | None, *, unrouted: bool) -> None:
    if session and not session.committed:
        # It never had a route.
        store.ports.release(session_id, drain=False)
    elif unrouted:
        # The ports of apps on the agent's own network are those that users chose: a repeated request needs them.
        store.ports.release(session_id, drain=not (session and session.plan.shares_host_network))
