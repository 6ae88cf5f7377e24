# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Removes the slices of ended and expired sessions, and restarts containers that died."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple

from .._docker import containers
from .._docker.sdk import docker
from .._firewall.sync import sync_ruleset
from .._host.local_session import LocalSession
from .._host.store import Store
from .._host.threads import in_threads
from .._host.time_limit import Turns
from .._model.change import Change
from .._model.errors import EXPECTED, ClusterError, reason
from .._model.session import MAIN1
from .._network import iproute
from .admission import admit
from .before_start import prepare_restart
from .end import SessionEnd, stop_sessions
from .interfaces import apply_interfaces, plan_interfaces
from .links import plan_links
from .mount_sources import check_before_start
from .output import prune
from .ownership import own_containers
from .remove import is_expired, remove_claimed, remove_if

_Action = Callable[["docker.APIClient", Store, str, bool], "tuple[list[Change], str]"]


class ReapResult(NamedTuple):
    """The changes, and a sentence for each failure by session id."""

    changes: list[Change]
    failures: dict[str, str]


def reap(
    client: docker.APIClient,
    store: Store,
    ends: Mapping[str, SessionEnd],
    restart: Sequence[str],
    *,
    expired: bool,
    unrouted: Collection[str] = (),
    check_mode: bool,
) -> ReapResult:
    """Remove the slices of ``ends`` and, with ``expired``, those with an expired claim; restart those of ``restart``.

    The sessions of ``ends`` are stopped at the same time, and get their results. All gateways have removed the routes
    of the sessions of ``unrouted``: ports of those that have ended become free. A failure of one session does not stop
    the others, and each has its own part of the time. With ``expired``, a stored session that is damaged, and was not
    ended, is a failure with that key.
    """
    changes: list[Change] = []
    failures: dict[str, str] = {}
    expired_ids = [session.plan.id for session in store.load_all()[0] if session.expired] if expired else []
    if not check_mode:
        with contextlib.suppress(OSError):
            prune(store)
        # A failure is repeated, and reported, when the session is removed.
        with contextlib.suppress(*EXPECTED):
            stop_sessions(client, store, ends)

    def remove(client: docker.APIClient, store: Store, session_id: str, check_mode: bool) -> tuple[list[Change], str]:
        is_unrouted, ending = session_id in unrouted, ends[session_id]
        return remove_claimed(
            client, store, session_id, None, unrouted=is_unrouted, end=ending, check_mode=check_mode
        ), ""

    actions: list[tuple[str, _Action]] = [(session_id, remove) for session_id in ends]
    actions += [(session_id, remove_expired) for session_id in expired_ids if session_id not in ends]
    actions += [(session_id, _restart) for session_id in restart]
    turns = Turns(len(actions))
    for session_id, action in actions:
        try:
            with turns.turn() as seconds:
                if session_id in ends:
                    ends[session_id].limit_to(seconds)
                applied, failure = action(client, store, session_id, check_mode)
        except EXPECTED as error:
            applied, failure = [], reason(error)
        changes += applied
        if failure:
            failures[session_id] = failure
    damaged = store.load_all()[1] if expired else []
    if damaged:
        failures["expired"] = str(damaged[0])
    if unrouted and not check_mode:
        _release_ports(store, unrouted)
    return ReapResult(changes, failures)


def _release_ports(store: Store, unrouted: Collection[str]) -> None:
    """Make the ports of ended sessions free."""
    with store.lock():
        for session_id in {*unrouted}.intersection(store.ports.by_session()) - {*store.held_ids()}:
            store.ports.release(session_id, drain=True)


def remove_expired(
    client: docker.APIClient, store: Store, session_id: str, check_mode: bool
) -> tuple[list[Change], str]:
    """Remove a slice with an expired claim; return what was removed, and an empty failure sentence."""
    return remove_if(client, store, session_id, is_expired, check_mode=check_mode), ""


def _restart(client: docker.APIClient, store: Store, session_id: str, check_mode: bool) -> tuple[list[Change], str]:
    """Start the containers that do not run, after applying rules and links, and complete their networks.

    Excluded in a batch session are main1, and other containers that have started their command: it runs only once.
    """
    with store.session_lock(session_id):
        session = store.session(session_id)
        if session is None:
            raise ClusterError(f"the session {session_id} is not on this agent")
        existing = own_containers(client, store, session)
        excluded = store.started_commands(session) | ({MAIN1} if session.plan.command else set())
        hostnames = [kernel.hostname for kernel in session.kernels if kernel.hostname not in excluded]
        errors = [
            f"{name} was removed on {session.agent} and cannot be restarted"
            for name in hostnames
            if name not in existing
        ]
        stopped = [name for name in hostnames if name in existing and existing[name]["State"] != "running"]
        steps = plan_links(session.plan, session.agent, iproute.LinkState())
        link_changes = [step.change for step in steps]
        start_changes = [containers.listed_change(existing[name], "running") for name in stopped]
        rule_changes = sync_ruleset(store, check_mode=check_mode)
        if check_mode:
            return rule_changes + link_changes + start_changes, "; ".join(errors)
        iproute.apply_operations(steps)
        folders = check_before_start(client, store, session) if stopped else None
        failures = in_threads(lambda name: _start(client, store, session, name, existing[name]["Id"]), stopped)
        apply_interfaces(client, store, session, plan_interfaces(client, store, session))
        admit(client, store, session, folders, stopped)
        changes = [change for change, failure in zip(start_changes, failures) if not failure]
        return rule_changes + link_changes + changes, "; ".join([*errors, *filter(None, failures)])


def _start(client: docker.APIClient, store: Store, session: LocalSession, hostname: str, container: str) -> str:
    """Start a container; return a sentence for the failure, empty on success."""
    try:
        prepare_restart(client, store, session, hostname, container)
        client.start(container)
    except EXPECTED as error:
        return f"{hostname} cannot be restarted: {reason(error)}"
    return ""
