# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which storage services are closed to the containers of an agent: those of the servers that it has mounted itself.

To a server that trusts the address of the agent a container is that agent. Where the services listen is read from the
table of mounts, and asked of the servers of NFS, by provisioning and then by the agent's timer; rules are made of what
is stored. The timer adds what is mounted new, and removes nothing: automatic mounts come and go.
"""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Collection, Iterable

from .._host.mount_table import read_mounts
from .._host.store import Store
from .._host.threads import in_threads
from .._model.change import Change
from .._model.files import write_atomically
from .._model.port_ranges import format_ranges, parse_ranges
from .._model.state_format import StateFormat
from .._model.storage import StorageService, without_open
from .._network.rpcbind import registered_ports
from .._network.storage_mounts import NFS, StorageMount, is_ipv4, resolve, storage_mounts
from .egress import active_egress

ASK_SECONDS = 600.0
"""How long answers of servers about their ports are used, unless something is mounted new."""


@dataclasses.dataclass(frozen=True)
class KnownStorage:
    """The storage services of an agent. ``unknown`` are the mounts whose servers it could not find out.

    ``mounted`` are the servers that were mounted when it looked last, and ``asked_at`` is when it asked them for their
    ports, in seconds since the epoch.
    """

    services: tuple[StorageService, ...] = ()
    unknown: tuple[str, ...] = ()
    mounted: tuple[str, ...] = ()
    asked_at: float = 0.0


_FORMAT = StateFormat("the storage services", KnownStorage)


def known_storage(store: Store) -> KnownStorage:
    """Return what is stored; while there is nothing that can be read, what the table of mounts says by itself."""
    with contextlib.suppress(OSError, ValueError):
        return _FORMAT.load(store.storage_file.read_bytes())
    listed = [mount for mount in storage_mounts(read_mounts()) if is_ipv4(mount.server)]
    return KnownStorage(tuple(_service(mount, mount.server, set()) for mount in listed))


def closed_storage(store: Store) -> tuple[StorageService, ...]:
    """Return the services that containers of this agent do not reach."""
    return without_open(known_storage(store).services, active_egress(store).open_storage)


def storage_warnings(store: Store) -> list[str]:
    """Return a sentence for each mount that containers may reach because its servers are not known."""
    return [
        f"the servers of {path} are not known, so containers may reach them: name their addresses in"
        " agent_closed_networks."
        for path in known_storage(store).unknown
    ]


def refresh_storage(store: Store, *, forget: bool = False, check_mode: bool = False) -> list[Change]:
    """Store the storage services of this agent, and return the differences; the next rules follow.

    With ``forget``, those of servers that are not mounted any more are open again. A server that does not answer keeps
    the ports that it had.
    """
    before, now = known_storage(store), time.time()
    mounts = storage_mounts(read_mounts())
    mounted = tuple(sorted(f"{mount.kind} {mount.server}" for mount in mounts))
    if mounted == before.mounted and not forget and (not mounts or 0 <= now - before.asked_at < ASK_SECONDS):
        return []
    known = {(service.kind, service.address): service for service in before.services}
    looked_up = [
        (mount, mount.server if is_ipv4(mount.server) else resolve(mount.server) if mount.server else "")
        for mount in mounts
    ]
    named = [(mount, address) for mount, address in looked_up if address]
    answers = in_threads(_ask, *zip(*named)) if named else []
    found: dict[tuple[str, str], StorageService] = {} if forget else dict(known)
    for (mount, address), ports in zip(named, answers):
        key = (mount.kind, address)
        found[key] = known[key] if ports is None and key in known else _service(mount, address, ports or set())
    after = KnownStorage(
        services=tuple(found[key] for key in sorted(found)),
        unknown=tuple(sorted(mount.path for mount, address in looked_up if not address)),
        mounted=mounted,
        asked_at=now,
    )
    if not check_mode:
        write_atomically(store.storage_file, _FORMAT.dump(after))
    return _compare(before.services, after.services)


def _ask(mount: StorageMount, address: str) -> set[tuple[str, int]] | None:
    """Return what a server says about its ports; ``None`` if it does not answer."""
    return registered_ports(address) if mount.kind == NFS else set()


def _service(mount: StorageMount, address: str, registered: Collection[tuple[str, int]]) -> StorageService:
    tcp, udp = (
        _merge([*mount.ports, *(str(port) for name, port in registered if name == protocol)])
        for protocol in ("tcp", "udp")
    )
    return StorageService(mount.kind, address, mount.path, tcp, udp if mount.kind == NFS else ())


def _merge(ports: Iterable[str]) -> tuple[str, ...]:
    return tuple(format_ranges([bounds]) for bounds in parse_ranges(",".join(ports)))


def _compare(before: Iterable[StorageService], after: Iterable[StorageService]) -> list[Change]:
    old = {(service.kind, service.address): service.description for service in before}
    new = {(service.kind, service.address): service.description for service in after}
    return [
        Change(f"storage closed to containers: {' of '.join(key)}", old.get(key), new.get(key))
        for key in sorted({**old, **new})
        if old.get(key) != new.get(key)
    ]
