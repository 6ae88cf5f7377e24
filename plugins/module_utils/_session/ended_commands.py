# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Keeps the exit code and the output of commands when they end, and lets their containers end then.

Whoever removes stopped containers of the agent, such as an hourly prune, meets one that runs, or one of which all is
kept.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from .._docker.logs import LogReadError, tail_of
from .._docker.sdk import docker
from .._host.command_ends import awaited
from .._host.local_session import LocalSession
from .._host.store import Store
from .._host.units import OUTPUT, start_units
from .._model.errors import ClusterError
from .._model.session import STOPPED
from .container_states import CommandEnd, container_states, write_end
from .output import find_kept, keep_output
from .ownership import own_containers

STOP_SECONDS = 10.0
"""How long a container may take to end once its output is kept."""

POLL_SECONDS = 0.05


class NotKeptError(ClusterError):
    """What a command has left could not be kept. The message is one sentence."""


def keep_ended(client: docker.APIClient, store: Store, session_id: str, hostnames: Collection[str]) -> None:
    """Keep what the commands of these containers have left that have ended, as far as nobody has, and let them end.

    A container that is gone leaves nothing but the exit code that it may have said. Raises :class:`NotKeptError`.
    """
    with store.session_lock(session_id):
        session = store.session(session_id)
        if session is None or not session.committed:
            return
        waiting = awaited(store.folder(session_id))
        existing = own_containers(client, store, session)
        states = container_states(client, store, session, existing)
        over = {name for name in hostnames if name not in states or states[name].status in STOPPED}
        ended = over.intersection(waiting)
        present = {name: existing[name] for name in sorted(ended) if name in existing}
        last = _last_messages(client, present)
        lost = keep_output(client, store, session, present, later={*waiting} - ended) if present else {}
        kept = find_kept(store, session_id)
        if present and not (kept and present.keys() <= kept.containers.keys()):
            raise NotKeptError(next(iter(lost.values()), "what was kept was removed at once"))
        for name in ended:
            container = str(existing[name]["Id"]) if name in existing else ""
            write_end(store, session_id, name, CommandEnd(container, states.get(name)))
        # What it has printed just before its end may have arrived at the engine later.
        _await_stop(client, present.values())
        late = _last_messages(client, present)
        again = {name: each for name, each in present.items() if late[name] not in ("", last[name])}
        if again:
            keep_output(client, store, session, again, later={*waiting} - ended)


def start_waiting(store: Store, sessions: Iterable[LocalSession]) -> None:
    """Start the units, unless they run, that keep what the commands of these sessions leave that were started."""
    batch = [session.plan.id for session in sessions if session.plan.command and session.committed]
    start_units([OUTPUT.format(session_id=each) for each in batch if awaited(store.folder(each))])


def _last_messages(client: docker.APIClient, existing: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """Return the last message in the log of each container by hostname, with its time; empty if it cannot be read."""
    return {hostname: _last_message(client, str(container["Id"])) for hostname, container in existing.items()}


def _last_message(client: docker.APIClient, container: str) -> str:
    try:
        return "".join(tail_of(client, container, 1, timestamps=True))
    except LogReadError:
        return ""


def _await_stop(client: docker.APIClient, existing: Iterable[Mapping[str, Any]]) -> None:
    ids, until = {container["Id"] for container in existing}, time.monotonic() + STOP_SECONDS
    while time.monotonic() < until:
        if not ids.intersection(each["Id"] for each in client.containers()):
            return
        time.sleep(POLL_SECONDS)
