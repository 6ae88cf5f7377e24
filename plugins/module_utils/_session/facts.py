# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Collects the facts of one agent: capacity, allocations and sessions."""

from __future__ import annotations

import dataclasses
import functools
import os
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from .._docker.api_version import newer_than_known
from .._docker.client import refuse_rootless
from .._docker.containers import cdi_folders, has_systemd_rules, newest_cdi
from .._docker.image_store import image_folder
from .._docker.images import Image, ImageUnreadableError, disk_usage, find_image, free_bytes
from .._docker.networks import subnets
from .._docker.sdk import docker
from .._firewall.policy import REPORT, Firewall
from .._firewall.state import FirewallState
from .._firewall.storage import closed_storage, storage_warnings
from .._host import machine
from .._host.accelerators import find_accelerators, infiniband_nodes
from .._host.container_use import working_gpus
from .._host.due_restarts import due_restarts
from .._host.local_session import LocalSession
from .._host.reserved_devices import find_reserved
from .._host.store import Store
from .._host.threads import in_threads
from .._host.withdrawn import is_withdrawn
from .._model.agent_labels import LABEL_RULE, is_label, topology_problem
from .._model.cordon import Cordon
from .._model.devices import Device
from .._model.errors import as_phrase
from .._model.facts import AgentFacts
from .._model.held_session import HeldSession, by_state
from .._model.images import ImageDisk
from .._model.mounts import Source
from .._model.quantity import parse_bytes, parse_slot
from .._network import host as network
from .._wireguard.peers import underlay_in_use
from .container_states import container_states
from .image_look import ImageRefusedError, require_not_refused
from .load import measure_loads
from .look import Gpus, read_times
from .mount_sources import MountSettings, find_sources
from .ownership import EngineContainers, OwnContainers, sort_containers
from .refused_starts import awaits_folder
from .service_state import read_service_state
from .unmanaged import Taken, running, stray_networks, taken_by, unmanaged_warnings

DEFAULT_SWARM_PORT = 4789
"""The UDP port of the overlays of a Docker Swarm, where its managers have not been given another one."""


class AgentSettings(NamedTuple):
    """The settings of an agent in the inventory; the fields are the role's ``agent_*`` variables."""

    resource_group: str
    schedulable: bool
    slots: Sequence[Mapping[str, Any]]
    reserved: Mapping[str, Any]
    cpu_overcommit: int
    max_containers: int
    underlay_address: str
    allow_host_network: bool
    underlay_encryption: str = ""
    allow_infiniband: bool = False
    mount_roots: Sequence[str] = ("/",)
    labels: Sequence[str] = ()
    topology: Sequence[str] = ()
    topology_levels: Sequence[str] = ()
    disk_reserve: str = "1g"
    docker_host: str = MountSettings.docker_host
    reserved_devices: Sequence[str] = ()

    @property
    def mounts(self) -> MountSettings:
        """The settings for mounts. Raises :class:`ValueError`."""
        return MountSettings(self.mount_roots, self.docker_host)


class FactsQuery(NamedTuple):
    """The images and folders that a session needs; ``paths`` are words of :class:`Source`.

    ``keys_of`` are the ids of sessions whose public keys are wanted. With ``loads``, what sessions use is measured.

    ``excluded`` are the ids of sessions that are about to be removed: they are not counted. Nor are those with an
    expired claim, because the next claim removes them, unless ``counts_expired``.
    """

    images: Sequence[str] = ()
    paths: Sequence[str] = ()
    excluded: Sequence[str] = ()
    counts_expired: bool = False
    keys_of: Sequence[str] = ()
    loads: bool = False


def collect_facts(
    client: docker.APIClient, store: Store, settings: AgentSettings, query: FactsQuery, name: str = ""
) -> AgentFacts:
    """Return the facts of this agent; ``name`` is that of the inventory, if known.

    Sessions that cannot be read are left out with a warning; their containers still use resources, and the agent is not
    schedulable. So do running containers of no session that have the labels of one, such as one of a lost folder.

    Raises :class:`ValueError` for invalid settings, and what the adapters raise.
    """
    sessions, damaged = store.load_all()
    containers = sort_containers(client, store, sessions)
    active = active_sessions(sessions, query.excluded, counts_expired=query.counts_expired)
    held = {*store.held_ids()}
    mounts = settings.mounts
    info, version = client.info(), client.version()
    refuse_rootless(mounts.docker_host, info)
    accelerators = find_accelerators(
        settings.slots,
        cdi_folders=cdi_folders(info),
        newest_cdi=newest_cdi(info),
        systemd_rules=has_systemd_rules(info),
    )
    images, unusable_images = _find_images(client, store, query.images)
    folders, unusable_paths = find_sources(client, store, mounts, list(map(Source.parse, query.paths)))
    links = network.read_links()
    plain = network.find_underlay(settings.underlay_address, links)
    underlay, warnings = underlay_in_use(store, plain, settings.underlay_encryption)
    # The driver is asked once for all sessions, under the agent's lock in a claim.
    gpus = functools.lru_cache(None)(working_gpus)
    reserve = _reserve(settings)
    state = read_service_state(store, damaged, reserve, info)
    assigned = _allocated_devices(active)
    reserved = find_reserved(settings.reserved_devices, accelerators.devices)
    others = [device for device in accelerators.devices if device.id not in {*assigned, *reserved.ids}]
    unreadable, unmanaged = _read_taken(client, others, containers, sessions)
    allocated = {*assigned, *unreadable.devices, *unmanaged.devices}
    # What a container has stays there, and is counted.
    sick = {device: reason for device, reason in state.sick_devices.items() if device not in allocated}
    withheld = {*sick, *reserved.ids.difference(assigned)}
    devices = [device for device in accelerators.devices if device.id not in withheld]
    has_infiniband = bool(infiniband_nodes())
    loads = measure_loads(client, store, sessions) if query.loads else {}
    return AgentFacts(
        name=name,
        resource_group=settings.resource_group,
        schedulable=settings.schedulable and state.in_service,
        cordon=state.cordon,
        labels=_labels(settings),
        topology=_topology(settings),
        topology_levels=tuple(settings.topology_levels),
        closed_storage=closed_storage(store),
        obstacles=state.obstacles,
        architecture=machine.architecture(),
        engine=version["Version"],
        kit=os.path.basename(store.kit()),
        program=store.program(),
        online_cpus=tuple(machine.online_cpus()),
        capacity=_capacity(settings, devices),
        allocated=sum_slots([*(session.slots for session in active), unreadable.slots, unmanaged.slots]),
        devices=_devices(devices, allocated),
        warnings=(
            *(f"{device} is assigned to no container: a health check failed: {sick[device]}." for device in sick),
            *reserved.warnings,
            *_held_warnings(reserved.ids, active),
            *unmanaged_warnings(containers.unmanaged, unmanaged),
            *stray_networks(client, held),
            *state.warnings,
            *_firewall_warnings(FirewallState(store), info["Swarm"]),
            *storage_warnings(store),
            *accelerators.warnings,
            *due_restarts(),
            *warnings,
            *filter(None, [newer_than_known(version["ApiVersion"])]),
        ),
        containers=sum(len(session.kernels) for session in active) + unreadable.containers + unmanaged.containers,
        max_containers=settings.max_containers,
        underlay=underlay,
        addresses=tuple(network.own_addresses(plain, links)),
        udp_ports={**network.udp_ports(links), **_swarm_port(info)},
        tcp_ports=frozenset(
            {
                *network.tcp_ports(),
                *store.ports.in_use(),
                *(port for session in active for port in session.plan.tcp_ports(session.agent)),
            }
        ),
        reserved_ports={name: ports for name, ports in store.ports.by_session().items() if name not in held},
        allow_host_network=settings.allow_host_network,
        has_infiniband=has_infiniband,
        infiniband=has_infiniband and settings.allow_infiniband,
        networks=tuple(sorted({*network.networks_in_use(links), *subnets(client), *_claimed_subnets(active)})),
        vnis=tuple(sorted({*network.vnis_in_use(links), *_claimed_vnis(active)})),
        images={name: image.identity if image else None for name, image in images.items()},
        unusable_images=unusable_images,
        image_disk=_image_disk(client, image_folder(info), reserve, images),
        unusable_paths={source.word: unusable for source, unusable in unusable_paths.items()},
        path_groups={source.word: folder.group for source, folder in folders.items()},
        sessions=tuple(
            dataclasses.replace(
                _held_session(
                    client, store, session, containers.own[session.plan.id], gpus, state.draining, query.keys_of
                ),
                load=loads.get(session.plan.id),
            )
            for session in sessions
        ),
        damaged_sessions=tuple(sorted(held - {session.plan.id for session in sessions} - {*store.nameless_ids()})),
    )


REPORTING = (
    "the firewall is in report mode, so this host is not closed: see the playbook firewall_report, then provision with"
    " firewall_mode: enforce."
)


SWARM_CLOSED = (
    "this host is a node of a Docker Swarm, whose other nodes its firewall does not admit: name TCP 2377 and 7946, and"
    " UDP 7946 and the port of its overlays, in firewall_allow, with the nodes as sources."
)


def _firewall_warnings(state: FirewallState, swarm: Mapping[str, Any]) -> list[str]:
    reporting = REPORTING if state.mode == REPORT else ""
    return list(filter(None, [state.damage, reporting, SWARM_CLOSED if _closes_swarm(state.active(), swarm) else ""]))


def _closes_swarm(firewall: Firewall | None, swarm: Mapping[str, Any]) -> bool:
    """Return whether a firewall does not admit the other nodes of the Docker Swarm that this host is in."""
    # Managers count the nodes, workers count none.
    if firewall is None or swarm["LocalNodeState"] == "inactive" or swarm.get("Nodes") == 1:
        return False
    # At this port nodes find each other.
    return not all(any(rule.opens(protocol, 7946) for rule in firewall.allow) for protocol in ("tcp", "udp"))


def _labels(settings: AgentSettings) -> frozenset[str]:
    """Return the labels of this agent. Raises :class:`ValueError` for a text that is none."""
    for label in settings.labels:
        if not is_label(label):
            raise ValueError(f"agent_labels: {label!r} {LABEL_RULE}")
    return frozenset(settings.labels)


def _topology(settings: AgentSettings) -> tuple[str, ...]:
    """Return the domains of this agent. Raises :class:`ValueError`."""
    problem = topology_problem(settings.topology, settings.topology_levels)
    if problem:
        raise ValueError(problem)
    return tuple(settings.topology)


def active_sessions(
    sessions: Iterable[LocalSession], excluded: Collection[str] = (), *, counts_expired: bool = False
) -> list[LocalSession]:
    """Return the sessions that are neither ``excluded`` nor, unless ``counts_expired``, expired."""
    return [
        session for session in sessions if (counts_expired or not session.expired) and session.plan.id not in excluded
    ]


def cpu_load(sessions: Iterable[LocalSession]) -> dict[int, int]:
    """Return how many containers are pinned to each core."""
    return Counter(cpu for session in sessions for pinned in session.pinned.values() for cpu in pinned.cpus)


def _held_warnings(reserved: Collection[str], active: Iterable[LocalSession]) -> list[str]:
    """Return a sentence for each session that has reserved devices."""
    held = {session.plan.name: sorted(_allocated_devices([session]).intersection(reserved)) for session in active}
    return [
        f"agent_reserved_devices: {', '.join(ids)} {'stay' if len(ids) > 1 else 'stays'} with the session {name} until"
        " that ends."
        for name, ids in held.items()
        if ids
    ]


def _read_taken(
    client: docker.APIClient,
    devices: Sequence[Device],
    containers: EngineContainers,
    sessions: Iterable[LocalSession],
) -> tuple[Taken, Taken]:
    """Return what containers take of sessions that cannot be read, and those that run of no session.

    ``devices`` are those that no other session has. The first containers may be started again, so they count whether
    they run or not.
    """
    readable = {session.plan.id for session in sessions}
    unread = [entry for of, own in containers.own.items() if of not in readable for entry in own.values()]
    return taken_by(client, unread, devices), taken_by(client, running(containers.unmanaged), devices)


def _capacity(settings: AgentSettings, devices: Iterable[Device]) -> dict[str, int]:
    host_slots = {"cpu": len(machine.online_cpus()) * settings.cpu_overcommit, "mem": machine.memory_total()}
    total = {**host_slots, **Counter(device.slot for device in devices)}
    reserved = {slot: _reserved(slot, amount) for slot, amount in settings.reserved.items()}
    return {slot: max(0, amount - reserved.get(slot, 0)) for slot, amount in total.items()}


def _reserved(slot: str, amount: Any) -> int:
    try:
        return parse_slot(slot, amount)
    except ValueError as error:
        raise ValueError(f"agent_reserved.{slot}: {amount!r} {error}") from None


def _allocated_devices(active: Iterable[LocalSession]) -> set[str]:
    """Return the ids of the devices that are allocated to containers of sessions."""
    return {device for session in active for pinned in session.pinned.values() for device in pinned.device_ids}


def _devices(devices: Iterable[Device], allocated: Collection[str]) -> tuple[Device, ...]:
    return tuple(dataclasses.replace(device, free=device.id not in allocated) for device in devices)


def unreserved(settings: AgentSettings, devices: Iterable[Device]) -> list[Device]:
    """Return those of the agent's devices that are not reserved: what sessions have is offered until they end."""
    listed = list(devices)
    reserved = find_reserved(settings.reserved_devices, listed).ids
    return [device for device in listed if device.id not in reserved]


def sum_slots(amounts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """Return the sum of amounts by slot."""
    total: Counter[str] = Counter()
    for slots in amounts:
        total.update(slots)
    return dict(total)


def _claimed_subnets(sessions: Iterable[LocalSession]) -> set[str]:
    return {session.plan.network.subnet for session in sessions if session.plan.network and session.plan.network.subnet}


def _claimed_vnis(sessions: Iterable[LocalSession]) -> set[int]:
    return {session.plan.network.vni for session in sessions if session.plan.network and session.plan.network.vni}


def _swarm_port(info: Mapping[str, Any]) -> dict[int, str]:
    """Return the UDP port of the overlays of a Docker Swarm that this host manages; empty if it manages none.

    Other nodes do not know it. There, the kernel has a socket for it as soon as an overlay is used: it is among
    those of the host, in whatever namespace the link of the overlay is.
    """
    swarm = info["Swarm"]
    if not swarm.get("ControlAvailable"):
        return {}
    return {(swarm.get("Cluster") or {}).get("DataPathPort") or DEFAULT_SWARM_PORT: "Docker Swarm"}


def _find_images(
    client: docker.APIClient, store: Store, names: Iterable[str]
) -> tuple[dict[str, Image | None], dict[str, str]]:
    """Return the images by name, ``None`` if absent, and why others cannot be read or are refused, as a phrase."""

    def look(name: str) -> Image | str | None:
        try:
            image = find_image(client, name)
            if image:
                require_not_refused(store, image, name)
        except (ImageUnreadableError, ImageRefusedError) as error:
            return as_phrase(error)
        return image

    listed = [*names]
    # At the same time, because the engine may hang in one of them until the client's timeout.
    found = dict(zip(listed, in_threads(look, listed)))
    readable = {name: image for name, image in found.items() if not isinstance(image, str)}
    return readable, {name: image for name, image in found.items() if isinstance(image, str)}


def _reserve(settings: AgentSettings) -> int:
    try:
        return parse_bytes(settings.disk_reserve)
    except ValueError as error:
        raise ValueError(f"agent_disk_reserve: {settings.disk_reserve!r} {error}") from None


def _image_disk(
    client: docker.APIClient, folder: str, reserve: int, images: Mapping[str, Image | None]
) -> ImageDisk | None:
    """Return where the engine keeps its images; ``None`` if it does not say, or has it in a place of its own."""
    try:
        sizes = {name: disk_usage(client, image) for name, image in images.items() if image}
        return ImageDisk(folder, free_bytes(folder), reserve, sizes)
    except OSError:
        return None


def _held_session(
    client: docker.APIClient,
    store: Store,
    session: LocalSession,
    own: OwnContainers,
    gpus: Gpus,
    draining: Cordon | None,
    wanted: Collection[str],
) -> HeldSession:
    plan, keys = session.plan, session.keys if session.plan.id in wanted else {}
    lived, idle = read_times(client, store, session, gpus)
    return HeldSession(
        plan.id,
        plan.name,
        plan.created_at,
        session.nonce,
        plan.digest,
        batch=bool(plan.command),
        committed=session.committed,
        expired=session.expired,
        states=by_state(container_states(client, store, session, own)),
        lived=lived,
        idle=idle,
        # One whose start is being rolled back waits for another one.
        begun=bool(plan.command and store.started_commands(session)) and not is_withdrawn(session.nonce),
        waits=awaits_folder(store, plan.id),
        cordon=draining,
        public_keys=keys,
    )
