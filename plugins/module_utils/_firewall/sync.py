# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Sessions kept apart on this agent: the firewall table, from all sessions that it holds."""

from __future__ import annotations

from .._host.store import CorruptStateError, Store
from .._model.change import Change
from .._network.bridge import plan_filtering
from .._network.host import external_interfaces, on_link
from .._network.iproute import LinkState, NetworkError, apply_operations
from .._wireguard.key import read_public_key
from .._wireguard.mesh import DEVICE
from .policy import Firewall
from .ruleset import DEFAULT_BRIDGE, build_isolation_policy, peers, render
from .state import FirewallState
from .table import AGENTS_TABLE


def sync_ruleset(store: Store, *, dry: bool, gone: str = "", trial_over: bool = False) -> list[Change]:
    """Make the firewall table true for all sessions that are held but ``gone`` (an id), and return what changed.

    The operator's firewall, where there is one, is part of it: the one that is confirmed, or is being tried.
    Claims that ran out count until they are removed. While a session cannot be read, perhaps because another version of
    the collection wrote it, the rules that are there stay, so that it goes on; where there are none, it is cut off. The
    rules between containers of the default network hold only while its frames pass the firewall, so that is part of it.
    Where a trial of a firewall is over, nothing keeps its rules, not even such a session; once its rules are gone, it
    is forgotten. With ``dry`` only the difference is computed. Raises :class:`FirewallError`.
    """
    with store.isolation_lock():
        _readable, damaged = store.load_all()
        state = _state(store, dry=dry)
        wanted = render_ruleset(store, state.active(), gone)
        keep = damaged and not trial_over and AGENTS_TABLE.read()
        changes = [] if keep else AGENTS_TABLE.plan(wanted)
        filtering = plan_filtering(DEFAULT_BRIDGE, LinkState())
        if changes and not dry:
            AGENTS_TABLE.apply(wanted)
        if filtering and not dry:
            apply_operations(filtering)
        if state.trial and state.trial.expired and not keep and not dry:
            state.save(state.confirmed, None)
        return [*changes, *(step.change for step in filtering)]


def _state(store: Store, *, dry: bool) -> FirewallState:
    """Return the operator's firewall. Where it cannot be read, sessions are kept apart at least, and that is raised."""
    try:
        return FirewallState(store)
    except CorruptStateError:
        if not dry and not AGENTS_TABLE.read():
            AGENTS_TABLE.apply(render_ruleset(store, None))
        raise


def render_ruleset(store: Store, firewall: Firewall | None, gone: str = "") -> str:
    """Return the text of the table for all sessions that are held but ``gone`` (an id), with such a firewall."""
    readable, _damaged = store.load_all()
    slices = [(held.plan, held.agent) for held in readable if held.plan.id != gone]
    addresses = {peer.address for plan, agent in slices for peer in peers(plan, agent)}
    isolation = build_isolation_policy(slices, {address for address in addresses if _routed(address)})
    # Rules know the device of WireGuard also while it is missing: they are the same when it is back.
    own_device = {DEVICE} if read_public_key(store.wireguard_folder) else set()
    return render(isolation, firewall, sorted({*external_interfaces(), *own_device}))


def _routed(address: str) -> bool:
    """Return whether a router lies before a peer; one that no route leads to yet keeps the stricter rule."""
    try:
        return not on_link(address)
    except NetworkError:
        return False
