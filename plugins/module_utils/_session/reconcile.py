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


def restore_links(session: LocalSession, state: iproute.LinkState) -> list[Change]:
    """Put back the bridge and the tunnel of a session, without asking the engine.

    ``look`` is shared by all sessions: what seems to be amiss may have been put right since, and is looked at again.
    """
    if not plan_links(session.plan, session.agent, state):
        return []
    steps = plan_links(session.plan, session.agent, iproute.LinkState())
    iproute.apply_operations(steps)
    return [step.change for step in steps]


def restore_containers(client: docker.APIClient, store: Store, session: LocalSession) -> list[Change]:
    """Start the containers of a session: their addresses on it, MACs, names and keys are what they were.

    The command of a batch session runs once: who ran it is left to the next look at the sessions.
    """
    started_hostnames = store.started_commands(session)
    hostnames = [kernel.hostname for kernel in session.kernels if kernel.hostname not in started_hostnames]
    timeout = SWARM_SECONDS if session.plan.network and session.plan.network.swarm_manager else 0
    changes = start_stopped(client, session.plan.id, hostnames, timeout)
    return changes + _attach_interfaces(client, session)


def _attach_interfaces(client: docker.APIClient, session: LocalSession) -> list[Change]:
    interface_plan = plan_interfaces(client, session)
    iproute.apply_operations(interface_plan.steps)
    return [step.change for step in interface_plan.steps]


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
    state = iproute.LinkState()
    # What is over needs the engine, which may be down: those that live come first.
    for session in sorted(readable, key=lambda session: session.expires_at is not None):
        restored, failure = _restore_one(store, engine, session, state, start=start)
        changes += restored
        failures += [failure] if failure else []
    return changes, failures


def _restore_one(
    store: Store, engine: Connected, session: LocalSession, state: iproute.LinkState, *, start: bool
) -> tuple[list[Change], str]:
    """Return what changed, and a sentence for what went wrong, empty when nothing did."""
    try:
        return _restore_session(store, engine, session, state, start=start), ""
    except EXPECTED as error:
        return [], f"{session.plan.name}: {reason(error)}"


def _restore_session(
    store: Store, engine: Connected, stored: LocalSession, state: iproute.LinkState, *, start: bool
) -> list[Change]:
    session_id, network = stored.plan.id, stored.plan.network
    if stored.expired(time.time()):
        # An overlay may have to be waited for, and this is no place to wait: the next claim or run removes it.
        return [] if network and network.swarm_manager else remove_expired(engine(), store, session_id, False)[0]
    if not start and store.is_busy(session_id):
        return []
    with store.session_lock(session_id):
        session = store.session(session_id)
        if session is None or not session.committed:
            return []
        changes = restore_links(session, state)
        if start:
            changes += restore_containers(engine(), store, session)
        elif any(change.before is None and change.subject.startswith("bridge ") for change in changes):
            # Whoever was plugged into the bridge that was lost is plugged in again.
            changes += _attach_interfaces(engine(), session)
        return changes
