# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What an agent notes of containers that it did not start after the engine, because a folder was not what it had been.

The file system of the folder may be mounted later, such as an NFS after a reboot. The agent's timer starts these
containers then, and no other ones: not one that somebody has started meanwhile, whatever has become of it, and none
because of a note of an earlier boot.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path

from .._docker.containers import last_start
from .._docker.sdk import docker
from .._host.local_session import LocalSession
from .._host.processes import boot_id
from .._host.store import Store
from .._model.files import write_atomically
from .._model.state_format import StateFormat
from .ownership import OwnContainers, own_containers


@dataclasses.dataclass(frozen=True)
class RefusedStarts:
    """The boot in which containers were not started, and the last start of each before, by hostname."""

    boot: str
    starts: dict[str, str]


_FORMAT = StateFormat("the refused starts", RefusedStarts)


def find_stopped(client: docker.APIClient, store: Store, session: LocalSession) -> OwnContainers:
    """Return the containers of a session that are started when the engine has started, by hostname.

    Excluded are those that have begun their command: it runs only once.
    """
    begun, own = store.started_commands(session), own_containers(client, store, session)
    hostnames = [kernel.hostname for kernel in session.kernels if kernel.hostname not in begun]
    return {name: own[name] for name in hostnames if name in own and own[name]["State"] != "running"}


def note_refused(client: docker.APIClient, store: Store, session: LocalSession) -> None:
    """Note the containers of a session that are stopped: they were not started."""
    stopped = find_stopped(client, store, session)
    starts = {hostname: last_start(client, container["Id"]) for hostname, container in stopped.items()}
    write_atomically(_file(store, session.plan.id), _FORMAT.dump(RefusedStarts(boot_id(), starts)))


def is_noted(store: Store, session_id: str) -> bool:
    """Return whether there is a note of a session."""
    return _file(store, session_id).exists()


def awaits_folder(store: Store, session_id: str) -> bool:
    """Return whether containers of a session were not started in this boot, and are when their folder is there."""
    noted = _read(store, session_id)
    return noted is not None and noted.boot == boot_id()


def find_refused(client: docker.APIClient, store: Store, session: LocalSession) -> OwnContainers:
    """Return the containers of a session that were noted, and still are as they were, by hostname."""
    noted = _read(store, session.plan.id)
    if noted is None or noted.boot != boot_id():
        return {}
    return {
        hostname: container
        for hostname, container in find_stopped(client, store, session).items()
        if hostname in noted.starts and noted.starts[hostname] == last_start(client, container["Id"])
    }


def forget_refused(store: Store, session_id: str) -> None:
    """Remove the note of a session, if there is one."""
    _file(store, session_id).unlink(missing_ok=True)


def _read(store: Store, session_id: str) -> RefusedStarts | None:
    """Return the note of a session; ``None`` if there is none, or it cannot be read."""
    try:
        return _FORMAT.load(_file(store, session_id).read_bytes())
    except (OSError, ValueError):
        return None


def _file(store: Store, session_id: str) -> Path:
    return store.folder(session_id) / "refused.json"
