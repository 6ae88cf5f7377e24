# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Looks how long the sessions of an agent have lived and been idle, and tells their terminals of the end."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Callable, Iterable

from .._docker import containers
from .._docker.client import DockerUnavailableError, connect
from .._docker.sdk import docker
from .._host.container_use import accepted_connections, cpu_seconds, working_gpus
from .._host.deadline import read_uptime
from .._host.local_session import LocalSession
from .._host.processes import PROC, boot_id
from .._host.store import LockTimeoutError, Store
from .._host.terminals import write_to_terminals
from .._model.errors import EXPECTED, reason
from .._model.session import MAIN1
from .._model.use import NOTICE_SECONDS, Sample, SessionUse
from .._network.sockets import sockets
from .ownership import own_containers
from .use import ends_by_time, read_use, save_use

Gpus = Callable[[], "set[str] | None"]


def look_at_sessions(
    store: Store, engine: Callable[[], docker.APIClient], sessions: Iterable[LocalSession]
) -> list[str]:
    """Look at all sessions that may end by time; return a sentence for each failure.

    Sessions that a run works on are left out: the next look counts no more time than one.
    """
    gpus = functools.lru_cache(None)(working_gpus)
    return [failure for session in filter(ends_by_time, sessions) if (failure := _try(engine, store, session, gpus))]


def announce(docker_host: str, store: Store, sessions: Iterable[LocalSession], text: str) -> None:
    """Write a line to all terminals of sessions, as far as the engine and their containers answer."""
    with contextlib.suppress(*EXPECTED):
        client = connect(docker_host)
        for session in sessions:
            for pid in running_pids(client, store, session).values():
                write_to_terminals(pid, f"backendai: the session {session.plan.name}: {text}.")


def read_times(
    client: docker.APIClient, store: Store, session: LocalSession, gpus: Gpus = working_gpus
) -> tuple[int | None, int | None]:
    """Return how long a session has lived and been idle, in seconds; ``None`` if it is unknown.

    One that was idle for too long at the last look is looked at again: somebody may have come back since.
    """
    use = read_use(store, session.plan.id) if ends_by_time(session) else None
    if use is None:
        return None, None
    boot, uptime = boot_id(), read_uptime()
    idle = use.idle
    if session.plan.idle_timeout and idle >= session.plan.idle_timeout:
        try:
            idle = use.after(_sample(session, running_pids(client, store, session), gpus), boot, uptime).idle
        except EXPECTED:
            idle = 0.0
    return int(use.lived_at(boot, uptime)), int(idle)


def _try(engine: Callable[[], docker.APIClient], store: Store, session: LocalSession, gpus: Gpus) -> str:
    """Look at a session; return a sentence for the failure, empty on success."""
    try:
        with store.session_lock(session.plan.id, 0.0):
            if store.folder(session.plan.id).is_dir():
                _look(engine(), store, session, gpus)
    except (DockerUnavailableError, LockTimeoutError):
        return ""
    except EXPECTED as error:
        return f"{session.plan.name}: its use cannot be seen: {reason(error)}"
    return ""


def _look(client: docker.APIClient, store: Store, session: LocalSession, gpus: Gpus) -> None:
    boot, uptime = boot_id(), read_uptime()
    pids = running_pids(client, store, session)
    before = read_use(store, session.plan.id) or SessionUse(boot, uptime)
    use = before.after(_sample(session, pids, gpus), boot, uptime)
    left = session.plan.max_lifetime - use.lived
    if session.plan.max_lifetime and left <= NOTICE_SECONDS and not use.noticed:
        text = f"backendai: the session {session.plan.name} ends in {max(1, round(left / 60))} min: save your work."
        for pid in pids.values():
            write_to_terminals(pid, text)
        use = dataclasses.replace(use, noticed=True)
    save_use(store, session, use)


def running_pids(client: docker.APIClient, store: Store, session: LocalSession) -> dict[str, int]:
    """Return the first process of each running container here, by hostname."""
    hostnames = [kernel.hostname for kernel in session.kernels]
    found = own_containers(client, store, session)
    running = {name: found[name]["Id"] for name in hostnames if name in found and found[name]["State"] == "running"}
    pids = {name: containers.pid_of(client, container) for name, container in running.items()}
    return {name: pid for name, pid in pids.items() if pid}


def _sample(session: LocalSession, pids: dict[str, int], gpus: Gpus) -> Sample:
    plan = session.plan
    # The key is that of a start: the figures of a container that was restarted begin at 0.
    cpu = {f"{name}:{pid}": cpu_seconds(pid) for name, pid in pids.items()}
    main = pids.get(MAIN1)
    shared = plan.shares_host_network
    accepted = {f"{MAIN1}:{main}": accepted_connections(main)} if main and not shared else {}
    in_use = bool(plan.command) or _is_logged_in(session, pids) or _has_working_gpu(session, gpus)
    return Sample(cpu, accepted, in_use)


def _is_logged_in(session: LocalSession, pids: dict[str, int]) -> bool:
    """Return whether an SSH login is open in a container here, or a connection to an app of main1."""
    apps = {app.port for app in session.plan.apps}
    return any(
        connection.serves_others and connection.port in {kernel.ssh_port, *(apps if kernel.hostname == MAIN1 else ())}
        for kernel in session.kernels
        if kernel.hostname in pids
        for connection in sockets("tcp", PROC / str(pids[kernel.hostname]))
    )


def _has_working_gpu(session: LocalSession, gpus: Gpus) -> bool:
    """Return whether a GPU of the session works, or cannot be read, as the driver's load of MIG instances."""
    ids = [device for pinned in session.pinned.values() for device in pinned.device_ids]
    if any(device.startswith("MIG-") for device in ids):
        return True
    own = {device for device in ids if device.startswith("GPU-")}
    if not own:
        return False
    working = gpus()
    return working is None or not own.isdisjoint(working)
