# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Restores sessions on an agent without Ansible, after a reboot, an engine restart or the loss of a link.

systemd units run it when the engine has started, and every few seconds. It reads the sessions that the agent holds and
applies them with the same code that created them. Claims that were never committed are removed when they expire. The
timer's run starts no container, except one that was refused for its folders when the engine had started.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from .._docker.client import DockerUnavailableError
from .._docker.containers import start_stopped
from .._docker.sdk import docker
from .._firewall.egress import read_egress
from .._firewall.state import FirewallState
from .._firewall.storage import refresh_storage
from .._firewall.sync import sync_ruleset
from .._host.local_session import LocalSession
from .._host.store import CorruptStateError, Store
from .._model.change import Change
from .._model.errors import EXPECTED, reason
from .._network import iproute
from .._network.container import InterfacePlan
from .._network.iproute import NetworkError
from .._wireguard.peers import sync_wireguard_peers
from .admission import admit
from .agent_needs import find_lacks, mend_lacks
from .before_start import prepare_restart
from .ended_commands import start_waiting
from .image_look import find_abandoned, remove_abandoned
from .interfaces import apply_interfaces, plan_interfaces
from .leftovers import find_leftovers, remove_folders, remove_leftovers, retire_homes, seen_twice
from .links import plan_links
from .look import look_at_sessions
from .mount_sources import MountRefusedError, check_before_start
from .ownership import OwnContainers
from .reap import remove_expired
from .refused_starts import find_refused, find_stopped, forget_refused, is_noted, note_refused

RESTORE_SECONDS = 30
"""How long an agent that has just started may take to create its InfiniBand device nodes."""

START_SECONDS = 20
"""How long a run of the timer goes on to begin starts that were refused before; its unit has three minutes for all."""

OUTSIDE = "containers reach nothing outside"
UNKNOWN = "nobody knows whether containers reach what is outside"

Connected = Callable[[], "docker.APIClient"]


def restore_links(session: LocalSession, state: iproute.LinkState) -> list[Change]:
    """Restore the bridge and the tunnel of a session, without an engine call.

    ``state`` is shared by all sessions and may be stale, so a difference is checked against the current state.
    """
    if not plan_links(session.plan, session.agent, state):
        return []
    steps = plan_links(session.plan, session.agent, iproute.LinkState())
    iproute.apply_operations(steps)
    return [step.change for step in steps]


def restore_containers(
    client: docker.APIClient, store: Store, session: LocalSession, stopped: OwnContainers
) -> list[Change]:
    """Start stopped containers of a session, by hostname, complete the networks of all, and let them begin.

    Their addresses, MACs, names and keys do not change. Return the changes. Raises :class:`MountRefusedError` if a
    folder that they mount does not answer, or is another one.
    """
    if stopped:
        check_before_start(client, store, session)
    # What fails from now on is not tried again.
    forget_refused(store, session.plan.id)
    by_id = {container["Id"]: hostname for hostname, container in stopped.items()}
    changes = start_stopped(
        client,
        [*stopped.values()],
        lambda container: prepare_restart(client, store, session, by_id[container], container),
        RESTORE_SECONDS if session.plan.infiniband else 0,
    )
    changes += restore_interfaces(client, store, session, iproute.LinkState())
    admit(client, store, session, started=stopped)
    return changes


def restore_interfaces(
    client: docker.APIClient, store: Store, session: LocalSession, state: iproute.LinkState
) -> list[Change]:
    """Restore the networks of a session's running containers, also of those that were restarted from outside.

    ``state`` is as for :func:`restore_links`.
    """
    if plan_interfaces(client, store, session, state) == InterfacePlan([], {}):
        return []
    interface_plan = plan_interfaces(client, store, session)
    apply_interfaces(client, store, session, interface_plan)
    if interface_plan.lost:
        remedy = "run repair_session, which recreates it"
        lost = ", ".join(f"{hostname} has lost {name}" for hostname, name in interface_plan.lost.items())
        raise NetworkError(f"{lost}: {remedy}")
    return [step.change for step in interface_plan.steps]


def restore(store: Store, engine: Connected, *, start: bool) -> tuple[list[Change], list[str]]:
    """Restore every committed session, one after the other; return what changed, and a sentence for each failure.

    Rules are applied first, so that nothing runs without them. ``start`` also starts containers, and waits for a run
    that works on a session; without it such a session is skipped.
    """
    readable, damaged = store.load_all()
    state = iproute.LinkState()
    # At a start the network may be away, and nothing is to wait for a server.
    changes = [] if start else refresh_storage(store)
    changes += sync_ruleset(store, check_mode=False)
    mended, failed = mend_lacks(store, engine)
    changes += mended
    state = iproute.LinkState() if mended else state
    unmended = [failure.phrase for failure in failed]
    failures = [str(error) for error in damaged]
    failures += filter(None, [FirewallState(store).damage])
    try:
        read_egress(store)
    except CorruptStateError as error:
        failures.append(str(error))
    try:
        changes += sync_wireguard_peers(store, check_mode=False)
    except EXPECTED as error:
        failures.append(reason(error))
    if readable and not start:
        unmended += [
            lacking.sentence(UNKNOWN if lacking.lack.unknown else OUTSIDE)
            for lacking in find_lacks(store, state)
            if lacking.need.mend is None
        ]
    # Removing an expired claim needs the engine, which may be down: committed sessions come first.
    for session in sorted(readable, key=lambda session: session.expires_at is not None):
        restored, failure = _restore_one(store, engine, session, state, start=start)
        changes += restored
        failures += [failure] if failure else []
    if not failures:
        try:
            # No session can be starting while the engine does.
            found = find_leftovers(store, iproute.LinkState()) if start else seen_twice(find_leftovers(store, state))
            changes += remove_leftovers(engine(), found) if found else []
            nameless = store.nameless_ids()
            changes += remove_folders(engine(), store, nameless) if nameless else []
            abandoned = find_abandoned(store)
            changes += remove_abandoned(engine(), store, abandoned) if abandoned else []
        except DockerUnavailableError:
            pass  # They are removed when it has started.
        except EXPECTED as error:
            failures.append(reason(error))
    try:
        changes += retire_homes(store, engine)
    except DockerUnavailableError:
        pass
    except EXPECTED as error:
        failures.append(reason(error))
    start_waiting(store, readable)
    # Those that are refused again keep nothing else from being done.
    started, refused = _start_refused(store, engine, () if start else readable)
    changes += started
    failures += [*unmended, *refused]
    return changes, failures if start else [*failures, *look_at_sessions(store, engine, readable)]


def _restore_one(
    store: Store, engine: Connected, session: LocalSession, state: iproute.LinkState, *, start: bool
) -> tuple[list[Change], str]:
    """Restore one session; return what changed, and a sentence for the failure, empty on success."""
    try:
        return _restore_session(store, engine, session, state, start=start), ""
    except EXPECTED as error:
        return [], f"{session.plan.name}: {reason(error)}"


def _restore_session(
    store: Store, engine: Connected, stored: LocalSession, state: iproute.LinkState, *, start: bool
) -> list[Change]:
    session_id = stored.plan.id
    if stored.expired:
        return remove_expired(engine(), store, session_id, False)[0]
    if not start and store.is_busy(session_id):
        return []
    with store.session_lock(session_id):
        session = store.session(session_id)
        if session is None or not session.committed:
            return []
        changes = restore_links(session, state)
        if start:
            client = engine()
            try:
                return changes + restore_containers(client, store, session, find_stopped(client, store, session))
            except MountRefusedError:
                note_refused(client, store, session)
                raise
        try:
            client = engine()
        except DockerUnavailableError:
            # Its containers are restored when it starts.
            return changes
        changes += restore_interfaces(client, store, session, state)
        admit(client, store, session)
        return changes


def _start_refused(store: Store, engine: Connected, sessions: Iterable[LocalSession]) -> tuple[list[Change], list[str]]:
    """Start what was not started after the engine because of a folder; return what changed, and the failures.

    What there is no time for is left to the next run.
    """
    changes: list[Change] = []
    failures: list[str] = []
    until = time.monotonic() + START_SECONDS
    for session in sessions:
        if not is_noted(store, session.plan.id) or time.monotonic() >= until:
            continue
        try:
            changes += _start_one_refused(store, engine, session.plan.id)
        except DockerUnavailableError:
            pass  # All are restored when it starts.
        except EXPECTED as error:
            failures.append(f"{session.plan.name}: {reason(error)}")
    return changes, failures


def _start_one_refused(store: Store, engine: Connected, session_id: str) -> list[Change]:
    if store.is_busy(session_id):
        return []
    with store.session_lock(session_id):
        session = store.session(session_id)
        if session is None or not session.committed:
            return []
        client = engine()
        return restore_containers(client, store, session, find_refused(client, store, session))
