# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Reads the states of a session's containers: from the engine, and of those whose command has ended from what it left.

A container goes on when its command has ended, until the agent has kept what it printed. It counts as exited then, also
when somebody has removed it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from .._docker import labels
from .._docker.containers import exit_code_of
from .._docker.sdk import docker
from .._host.command_ends import KEPT, read_exit_code
from .._host.homes import OWN
from .._host.local_session import LocalSession
from .._host.store import NotProvisionedError, Store
from .._model.files import write_atomically
from .._model.held_session import ContainerState
from .._model.session import STOPPED
from .._model.state_format import StateFormat
from .session_folder import READABLE


@dataclasses.dataclass(frozen=True)
class CommandEnd:
    """What was kept of a container whose command has ended: its id, and its last state, unless that was not found."""

    container: str
    state: ContainerState | None


_KEPT = StateFormat("the end of a command", CommandEnd)


def container_states(
    client: docker.APIClient, store: Store, session: LocalSession, own: Mapping[str, Mapping[str, Any]]
) -> dict[str, ContainerState]:
    """Return the states of a session's ``own`` containers by hostname."""
    states = {hostname: _state(client, container) for hostname, container in own.items()}
    started = store.started_commands(session) if session.plan.command else set()
    for hostname in started:
        end = read_end(store, session.plan.id, hostname)
        if end is not None:
            states |= {hostname: end.state} if end.state else {}
        elif hostname in states:
            code = _said(store, session.plan.id, hostname)
            state = states[hostname]
            states[hostname] = state if code is None else dataclasses.replace(state, status="exited", exit_code=code)
    return states


def read_end(store: Store, session_id: str, hostname: str) -> CommandEnd | None:
    """Return what was kept of a container whose command has ended; ``None`` if nothing was yet."""
    try:
        return _KEPT.load((store.kernel_folder(session_id, hostname) / KEPT).read_bytes())
    except (OSError, ValueError):
        return None


def write_end(store: Store, session_id: str, hostname: str, end: CommandEnd) -> None:
    """Write what was kept of a container, whose first process ends with that."""
    write_atomically(store.kernel_folder(session_id, hostname) / KEPT, _KEPT.dump(end), READABLE)


def _said(store: Store, session_id: str, hostname: str) -> int | None:
    """Return the exit code of a command as the container says it, which may be anything."""
    try:
        return read_exit_code(store.homes.folder(session_id, hostname) / OWN)
    except NotProvisionedError:
        return None


def _state(client: docker.APIClient, container: Mapping[str, Any]) -> ContainerState:
    ended = container["State"] in STOPPED
    exit_code = exit_code_of(client, container["Id"]) if ended else None
    return ContainerState(container["State"], container["Labels"].get(labels.IMAGE_DIGEST), exit_code)
