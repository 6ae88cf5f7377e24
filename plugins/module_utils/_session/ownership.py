# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Decides which containers of the engine are those of a session. Whatever acts on containers gets them from here.

Labels prove nothing: an image that was made of a container has them, and so does whatever runs from it. A container is
a session's if the agent has recorded its id. A run that was killed between the creation of a container and its record
has left one that never started: that is the session's if it has the name of the plan, and the nonce of the claim.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from .._docker import labels
from .._docker.containers import find_labelled, listed_name
from .._docker.networks import NameTakenError
from .._docker.sdk import docker
from .._host.local_session import LocalSession
from .._host.store import Store
from .._model.session import is_session_id

OwnContainers = dict[str, dict[str, Any]]
"""The containers of a session, as the engine lists them, by hostname."""


class EngineContainers(NamedTuple):
    """The containers of an engine that have the labels of sessions.

    ``own`` are those of the sessions of this agent, by id; ``unmanaged`` are all others, which nobody touches.
    """

    own: dict[str, OwnContainers]
    unmanaged: list[dict[str, Any]]


def own_containers(client: docker.APIClient, store: Store, session: LocalSession | str) -> OwnContainers:
    """Return the containers of a session, running or not, by hostname.

    One whose description is damaged or missing is given by its id: what was recorded is still its own.
    """
    session_id = session if isinstance(session, str) else session.plan.id
    return _select_own(find_labelled(client, session_id), store, session_id, session)


def sort_containers(client: docker.APIClient, store: Store, sessions: Iterable[LocalSession]) -> EngineContainers:
    """Return whose all containers with labels of sessions are; ``sessions`` are those that can be read."""
    listed = find_labelled(client)
    by_session: dict[str, list[dict[str, Any]]] = {}
    for entry in listed:
        by_session.setdefault(entry["Labels"].get(labels.SESSION_ID, ""), []).append(entry)
    readable = {session.plan.id: session for session in sessions}
    own = {
        session_id: _select_own(by_session.get(session_id, ()), store, session_id, readable.get(session_id, session_id))
        for session_id in {*store.held_ids(), *readable}
    }
    owned = {entry["Id"] for containers in own.values() for entry in containers.values()}
    return EngineContainers(own, [entry for entry in listed if entry["Id"] not in owned])


def _select_own(
    listed: Iterable[dict[str, Any]], store: Store, session_id: str, session: LocalSession | str
) -> OwnContainers:
    recorded = store.container_ids(session_id).read()
    hostnames = {container_id: hostname for hostname, container_id in recorded.items()}
    kernels = [] if isinstance(session, str) else session.kernels
    unrecorded = {kernel.container: kernel.hostname for kernel in kernels if kernel.hostname not in recorded}
    own = {}
    for entry in listed:
        hostname = hostnames.get(entry["Id"])
        if hostname is None and not isinstance(session, str) and entry["Labels"].get(labels.NONCE) == session.nonce:
            hostname = unrecorded.get(listed_name(entry))
        if hostname is not None:
            own[hostname] = entry
    return own


def record_own(client: docker.APIClient, store: Store, session: LocalSession) -> None:
    """Record the containers that a killed run has left unrecorded, before another nonce replaces that of its claim."""
    ids = store.container_ids(session.plan.id)
    recorded = ids.read()
    for hostname, entry in own_containers(client, store, session).items():
        if hostname not in recorded:
            ids.record(hostname, entry["Id"])


def mounting_ids(client: docker.APIClient) -> set[str]:
    """Return the ids of the sessions whose files a container of the engine has mounted, whoever made it."""
    sources = (mount.get("Source") or "" for each in client.containers(all=True) for mount in each.get("Mounts") or ())
    return {part for source in sources for part in source.split("/") if is_session_id(part)}


def require_names(client: docker.APIClient, names: Iterable[str], own: OwnContainers, agent: str) -> None:
    """Raise :class:`NameTakenError` if a container that is none of a session's ``own`` has a name that it needs."""
    wanted, ids = {*names}, {entry["Id"] for entry in own.values()}
    if not wanted:
        return
    others = (entry for entry in client.containers(all=True) if entry["Id"] not in ids)
    taken = sorted(wanted.intersection(name.lstrip("/") for entry in others for name in entry["Names"] or ()))
    if taken:
        raise NameTakenError.of("container", taken, agent, "docker rm -f")
