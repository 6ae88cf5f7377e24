# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Applies the firewall tables of this agent, from all sessions that it holds."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection

from .._host.store import Store
from .._model.change import Change
from .._network.host import external_interfaces, on_link
from .._network.iproute import LinkOperation, LinkState, NetworkError, apply_operations
from .._network.name_servers import name_servers
from .._network.pins import plan_stale_neighbours, read_pins
from .._wireguard.key import read_public_key
from .._wireguard.mesh import DEVICE
from .connections import sync_connections
from .egress import active_egress
from .isolation_policy import build_isolation_policy, list_peers
from .policy import REPORT, Firewall
from .ruleset import PIN_SETS, render, render_pins
from .state import FirewallState
from .storage import closed_storage
from .table import AGENTS_TABLE, FirewallError
from .would_drop import STORAGE_SET, read_would_drop, render_elements


def sync_ruleset(store: Store, *, check_mode: bool, trial_over: bool = False) -> list[Change]:
    """Apply the firewall tables for all stored sessions, under the lock of the isolation rules; return the changes.

    The options, and the errors, are those of :func:`apply_ruleset`.
    """
    with store.isolation_lock():
        return apply_ruleset(store, check_mode=check_mode, trial_over=trial_over)


def apply_ruleset(store: Store, *, check_mode: bool, excluded: str = "", trial_over: bool = False) -> list[Change]:
    """Apply the firewall tables for all stored sessions but ``excluded`` (an id), and return the changes.

    The caller holds the lock of the isolation rules; one that excludes a session holds it until that is no longer
    stored, since the next caller would bring its rules back.

    It includes the active host firewall, confirmed or on trial. Expired claims count until they are removed. While a
    session cannot be read, for example because another version of the collection wrote it, existing rules stay but for
    those of ports, so that the session continues; without existing rules, it is isolated. Neighbour entries of
    containers that no longer exist are removed. With ``trial_over``, rules are replaced even if a session is
    unreadable. An expired trial is deleted once its rules are replaced. With ``check_mode`` only the difference is
    computed. Raises :class:`FirewallError`.
    """
    _readable, damaged = store.load_all(excluded)
    state = FirewallState(store)
    links = LinkState()
    ruleset = render_ruleset(store, state.active(), excluded, links)
    keep = AGENTS_TABLE.read() if damaged and not trial_over else ""
    changes = [] if keep else AGENTS_TABLE.plan(ruleset)
    if keep and not check_mode:
        # They do not depend on sessions: a container that restarts has another port.
        AGENTS_TABLE.apply(render_pins(read_pins(links)))
    elif changes and not check_mode:
        AGENTS_TABLE.apply(ruleset + _carried_over(state, ruleset))
    stale = plan_stale_neighbours(links)
    if not check_mode:
        apply_operations(stale)
    if state.trial and state.trial.expired and not keep and not check_mode:
        state.save(state.confirmed, None)
    connections = sync_connections(store, check_mode=check_mode)
    # What remains of containers that have ended is no drift.
    return connections + [change for change in changes if change.after or change.subject not in PIN_SETS]


def admit_ports(store: Store, ports: Collection[LinkOperation]) -> None:
    """Pin ports of containers, and admit them in the rules for all stored sessions, which the caller has applied.

    All rules are applied if the sets are not there: somebody may have removed them since.
    Raises :class:`NetworkError` and :class:`FirewallError`.
    """
    with store.isolation_lock():
        apply_operations(ports)
        links = LinkState()
        try:
            AGENTS_TABLE.apply(render_pins(read_pins(links)))
        except FirewallError:
            apply_ruleset(store, check_mode=False)
        apply_operations(plan_stale_neighbours(links))


def _carried_over(state: FirewallState, ruleset: str) -> str:
    """Return the ``nft`` input that keeps what was counted: by report mode, if the firewall is the same as before.

    Another one, which begins as a trial, counts from 0: what it allows must not stay in the report.
    """
    reports = state.trial is None and state.mode == REPORT
    counts_storage = f"set {STORAGE_SET} {{" in ruleset
    if not reports and not counts_storage:
        return ""
    found = read_would_drop()
    return render_elements([*(found.elements if reports else ()), *(found.dropped if counts_storage else ())])


def render_ruleset(store: Store, firewall: Firewall | None, excluded: str = "", links: LinkState | None = None) -> str:
    """Return the text of the tables for all stored sessions but ``excluded``, with this firewall.

    ``links`` is a snapshot of this host, by default a new one.
    """
    readable, _damaged = store.load_all(excluded)
    slices = [(entry.plan, entry.agent) for entry in readable]
    addresses = {peer.address for plan, agent in slices for peer in list_peers(plan, agent)}
    routed = {address for address in addresses if _is_routed(address)}
    isolation = dataclasses.replace(
        build_isolation_policy(slices, routed, read_pins(links or LinkState())),
        egress=active_egress(store),
        name_servers=tuple(name_servers()),
        storage=closed_storage(store),
    )
    # The device of WireGuard is listed even while it is missing, so that the rules do not change when it returns.
    own_device = {DEVICE} if read_public_key(store.wireguard_folder) else set()
    return render(isolation, firewall, sorted({*external_interfaces(), *own_device}))


def _is_routed(address: str) -> bool:
    """Return whether a peer is behind a router; without a route to it, the stricter rule applies."""
    try:
        return not on_link(address)
    except NetworkError:
        return False
