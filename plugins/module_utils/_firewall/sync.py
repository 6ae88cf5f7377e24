# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Applies the firewall table of this agent, from all sessions that it holds."""

from __future__ import annotations

from .._host.store import CorruptStateError, Store
from .._model.change import Change
from .._network.bridge import plan_filtering
from .._network.host import external_interfaces, on_link
from .._network.iproute import LinkState, NetworkError, apply_operations
from .._wireguard.key import read_public_key
from .._wireguard.mesh import DEVICE
from .policy import Firewall
from .ruleset import DEFAULT_BRIDGE, build_isolation_policy, list_peers, render
from .state import FirewallState
from .table import AGENTS_TABLE


def sync_ruleset(store: Store, *, check_mode: bool, excluded: str = "", trial_over: bool = False) -> list[Change]:
    """Apply the firewall table for all stored sessions but ``excluded`` (an id), and return the changes.

    It includes the active host firewall, confirmed or on trial. Expired claims count until they are removed. While a
    session cannot be read, for example because another version of the collection wrote it, existing rules stay, so that
    the session continues; without existing rules, it is isolated. Rules between containers of the default network need
    bridged frames to pass the firewall, so that is set too. With ``trial_over``, rules are replaced
    even if a session is unreadable. An expired trial is deleted once its rules are replaced. With ``check_mode``
    only the difference is computed. Raises :class:`FirewallError`.
    """
    with store.isolation_lock():
        _readable, damaged = store.load_all()
        state = _read_state(store, check_mode=check_mode)
        ruleset = render_ruleset(store, state.active(), excluded)
        keep = damaged and not trial_over and AGENTS_TABLE.read()
        changes = [] if keep else AGENTS_TABLE.plan(ruleset)
        filtering = plan_filtering(DEFAULT_BRIDGE, LinkState())
        if changes and not check_mode:
            AGENTS_TABLE.apply(ruleset)
        if filtering and not check_mode:
            apply_operations(filtering)
        if state.trial and state.trial.expired and not keep and not check_mode:
            state.save(state.confirmed, None)
        return [*changes, *(step.change for step in filtering)]


def _read_state(store: Store, *, check_mode: bool) -> FirewallState:
    """Return the stored firewall. If it cannot be read, apply at least the isolation of sessions, and raise."""
    try:
        return FirewallState(store)
    except CorruptStateError:
        if not check_mode and not AGENTS_TABLE.read():
            AGENTS_TABLE.apply(render_ruleset(store, None))
        raise


def render_ruleset(store: Store, firewall: Firewall | None, excluded: str = "") -> str:
    """Return the text of the table for all stored sessions but ``excluded`` (an id), with this firewall."""
    readable, _damaged = store.load_all()
    slices = [(entry.plan, entry.agent) for entry in readable if entry.plan.id != excluded]
    addresses = {peer.address for plan, agent in slices for peer in list_peers(plan, agent)}
    isolation = build_isolation_policy(slices, {address for address in addresses if _is_routed(address)})
    # The device of WireGuard is listed even while it is missing, so that the rules do not change when it returns.
    own_device = {DEVICE} if read_public_key(store.wireguard_folder) else set()
    return render(isolation, firewall, sorted({*external_interfaces(), *own_device}))


def _is_routed(address: str) -> bool:
    """Return whether a peer is behind a router; without a route to it, the stricter rule applies."""
    try:
        return not on_link(address)
    except NetworkError:
        return False
