# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What is due about committed sessions: what died is started again, what is over goes."""

from __future__ import annotations

import concurrent.futures
import dataclasses
import time
from collections.abc import Mapping, Sequence
from typing import Any

from .._docker import containers, labels
from .._docker.sdk import docker
from .._firewall.sync import sync_ruleset
from .._host.store import CorruptStateError, Store
from .._model.change import Change
from .._model.errors import EXPECTED, ClusterError, reason
from .._model.session import MAIN1, STOPPED
from .._network import iproute
from .command import _by_hostname
from .links import plan_links
from .remove import remove_claimed, remove_slice


@dataclasses.dataclass(frozen=True)
class ReapResult:
    """What came of it: what changed, and by session id a sentence for what could not be done."""

    changes: list[Change]
    failures: dict[str, str]


def reap(
    client: docker.APIClient, store: Store, end: Sequence[str], restart: Sequence[str], *, expired: bool, dry: bool
) -> ReapResult:
    """Take away the slices of ``end`` and, with ``expired``, those whose claim's time is over; restart ``restart``.

    What fails for one session does not stop the others. What is stored of a session may be damaged, so that no claims
    can be read: that failure has the key ``expired``.
    """
    changes: list[Change] = []
    failures: dict[str, str] = {}
    try:
        over = [one.plan.id for one in store.sessions() if one.expired(time.time())] if expired else []
    except CorruptStateError as error:
        over, failures["expired"] = [], str(error)
    acts = [(one, _remove) for one in end]
    acts += [(one, remove_expired) for one in over if one not in end]
    acts += [(one, _restart) for one in restart]
    for session_id, act in acts:
        try:
            done, wrong = act(client, store, session_id, dry)
        except EXPECTED as error:
            done, wrong = [], reason(error)
        changes += done
        if wrong:
            failures[session_id] = wrong
    return ReapResult(changes, failures)


def _remove(client: docker.APIClient, store: Store, session_id: str, dry: bool) -> tuple[list[Change], str]:
    return remove_claimed(client, store, session_id, None, dry=dry), ""


def remove_expired(client: docker.APIClient, store: Store, session_id: str, dry: bool) -> tuple[list[Change], str]:
    """Remove a slice whose claim's time is over, and return what was removed; the sentence of a failure is empty."""
    with store.lock(), store.session_lock(session_id):
        held = store.session(session_id)
        # A run may have committed it, or claimed it anew, while this one waited for the locks.
        if held is None or not held.expired(time.time()):
            return [], ""
        return remove_slice(client, store, session_id, dry=dry), ""


def _restart(client: docker.APIClient, store: Store, session_id: str, dry: bool) -> tuple[list[Change], str]:
    """Start what is there and does not run, its link first.

    In a batch session main1 has run its command, and so has any other container whose command has succeeded.
    """
    with store.session_lock(session_id):
        held = store.session(session_id)
        if held is None:
            raise ClusterError(f"the session {session_id} is not on this agent")
        found = _by_hostname(client, session_id)
        over = {name for name, one in found.items() if held.plan.runs_command(name) and _succeeded(client, one)}
        over |= {MAIN1} if held.plan.command else set()
        wanted = [one.hostname for one in held.kernels if one.hostname not in over]
        wrong = [f"{name} was removed on {held.agent} and cannot be restarted" for name in wanted if name not in found]
        stopped = [found[name] for name in wanted if name in found and found[name]["State"] != "running"]
        steps = plan_links(held.plan, held.agent, iproute.LinkState())
        linked = [step.change for step in steps]
        started = [Change(f"container {one['Names'][0].lstrip('/')}", one["State"], "running") for one in stopped]
        ruled = sync_ruleset(store, dry=dry)
        if dry:
            return ruled + linked + started, "; ".join(wrong)
        iproute.apply_operations(steps)
        with concurrent.futures.ThreadPoolExecutor(containers.PARALLEL) as pool:
            refusals = list(pool.map(lambda one: _start(client, one), stopped))
        done = [change for change, refusal in zip(started, refusals) if not refusal]
        return ruled + linked + done, "; ".join([*wrong, *filter(None, refusals)])


def _succeeded(client: docker.APIClient, container: Mapping[str, Any]) -> bool:
    """Return whether a container has ended, with the exit code 0."""
    return container["State"] in STOPPED and containers.exit_status(client, container["Id"])[0] == 0


def _start(client: docker.APIClient, container: Mapping[str, Any]) -> str:
    """Start a container; return a sentence for what went wrong, empty when nothing did."""
    try:
        client.start(container["Id"])
    except EXPECTED as error:
        return f"{container['Labels'][labels.HOSTNAME]} cannot be restarted: {reason(error)}"
    return ""
