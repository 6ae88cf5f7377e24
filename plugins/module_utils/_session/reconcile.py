# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What an agent does by itself, without Ansible: put back what a reboot, an engine restart or a lost link took away.

Units of systemd run it when the engine has started, and every few seconds. It reads the sessions that the agent holds
and makes them true with the same code that made them in the first place. What was claimed and never finished goes when
its time is over.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from .._docker.containers import start_stopped
from .._docker.sdk import docker
from .._firewall.sync import sync_ruleset
from .._host.store import LocalSession, Store
from .._model.change import Change
from .._model.errors import EXPECTED, reason
from .._network import iproute
from .._wireguard.peers import sync_wireguard_peers
from .links import plan_interfaces, plan_links
from .reap import remove_expired

SWARM_SECONDS = 30
"""How long an engine that has just started may take to join its swarm, and to find its overlays again."""

Connected = Callable[[], "docker.APIClient"]


def restore_links(held: LocalSession, look: iproute.LinkState) -> list[Change]:
    """Put back the bridge and the tunnel of a session, without asking the engine.

    ``look`` is shared by all sessions: what seems to be amiss may have been put right since, and is looked at again.
    """
    if not plan_links(held.plan, held.agent, look):
        return []
    steps = plan_links(held.plan, held.agent, iproute.LinkState())
    iproute.apply_operations(steps)
    return [step.change for step in steps]


def restore_containers(client: docker.APIClient, store: Store, held: LocalSession) -> list[Change]:
    """Start the containers of a session: their addresses on it, MACs, names and keys are what they were.

    The command of a batch session runs once: who ran it is left to the next look at the sessions.
    """
    batch = store.started_commands(held)
    hostnames = [kernel.hostname for kernel in held.kernels if kernel.hostname not in batch]
    patience = SWARM_SECONDS if held.plan.network and held.plan.network.swarm_manager else 0
    changes = start_stopped(client, held.plan.id, hostnames, patience)
    return changes + _plug_in(client, held)


def _plug_in(client: docker.APIClient, held: LocalSession) -> list[Change]:
    plugs = plan_interfaces(client, held)
    iproute.apply_operations(plugs.steps)
    return [step.change for step in plugs.steps]


def restore(store: Store, engine: Connected, *, start: bool) -> tuple[list[Change], list[str]]:
    """Put back every committed session, one after the other; return what changed, and a sentence for each failure.

    Rules come first, so that nothing runs without them. With ``start``, which brings containers back too, a session
    that a run is at work on is waited for; else it is left to the next time. Without ``start`` the engine is asked only
    where a claim's time is over, or a bridge was lost.
    """
    changes = sync_ruleset(store, dry=False)
    readable, damaged = store.load_all()
    failures = [str(error) for error in damaged]
    try:
        changes += sync_wireguard_peers(store, dry=False)
    except EXPECTED as error:
        failures.append(reason(error))
    look = iproute.LinkState()
    # What is over needs the engine, which may be down: those that live come first.
    for there in sorted(readable, key=lambda held: held.expires_at is not None):
        done, wrong = _restore_one(store, engine, there, look, start=start)
        changes += done
        failures += [wrong] if wrong else []
    return changes, failures


def _restore_one(
    store: Store, engine: Connected, there: LocalSession, look: iproute.LinkState, *, start: bool
) -> tuple[list[Change], str]:
    """Return what changed, and a sentence for what went wrong, empty when nothing did."""
    try:
        return _restored(store, engine, there, look, start=start), ""
    except EXPECTED as error:
        return [], f"{there.plan.name}: {reason(error)}"


def _restored(
    store: Store, engine: Connected, there: LocalSession, look: iproute.LinkState, *, start: bool
) -> list[Change]:
    session_id, network = there.plan.id, there.plan.network
    if there.expired(time.time()):
        # An overlay may have to be waited for, and this is no place to wait: the next claim or run removes it.
        return [] if network and network.swarm_manager else remove_expired(engine(), store, session_id, False)[0]
    if not start and store.is_busy(session_id):
        return []
    with store.session_lock(session_id):
        held = store.session(session_id)
        if held is None or not held.committed:
            return []
        changes = restore_links(held, look)
        if start:
            changes += restore_containers(engine(), store, held)
        elif any(change.before is None and change.subject.startswith("bridge ") for change in changes):
            # Whoever was plugged into the bridge that was lost is plugged in again.
            changes += _plug_in(engine(), held)
        return changes
