# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Claims an agent's part of a session, under its lock and against the current facts."""

from __future__ import annotations

import contextlib
import dataclasses
import ipaddress
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from .._docker.networks import desired_network, require_network_name
from .._docker.sdk import docker
from .._firewall.sync import sync_ruleset
from .._host import machine
from .._host.deadline import deadline_in
from .._host.local_session import LocalSession
from .._host.mount_table import FolderOnMount, read_mounts
from .._host.ssh_keys import ensure_keys
from .._host.store import Store
from .._host.threads import in_threads
from .._host.withdrawn import is_withdrawn
from .._model.capacity import fits
from .._model.change import Change
from .._model.devices import CUDA_PREFIX, PinnedResources
from .._model.errors import ClusterError
from .._model.facts import AgentFacts
from .._model.held_session import PublicKeys
from .._model.network import Network
from .._model.plan import Kernel, SessionPlan
from .._model.quantity import format_slots
from .._wireguard.peers import sync_wireguard_peers
from .agent_needs import mend_lacks
from .end import SessionEnd, stop_sessions
from .facts import AgentSettings, FactsQuery, active_sessions, collect_facts, cpu_load, sum_slots, unreserved
from .mount_sources import InnerFolderMissingError, MountRefusedError, judge_mounts
from .others import Others, find_others
from .ownership import record_own, require_names
from .pinning import pin_containers
from .remove import is_expired, remove_claimed, remove_if
from .session_folder import make_folder
from .user_groups import judge_groups


class ClaimRefusedError(ClusterError):
    """The plan no longer fits this agent. The message is one sentence."""


class SessionEndedError(ClusterError):
    """The session has been ended while its start was under way. The message is one sentence."""


class ClaimRequest(NamedTuple):
    """A run's claim on this agent. ``seconds`` is the time limit for the session to be committed.

    ``stale_sessions`` are the ids of sessions that ended while this agent was unreachable. ``never_completed``: no run
    has completed the session; a part that an earlier run committed is taken over, and removed if this run fails.
    ``applied_next``: whether the same request goes on to apply the session, and with it the rules.
    """

    plan: SessionPlan
    agent: str
    nonce: str
    seconds: int
    stale_sessions: Sequence[str] = ()
    never_completed: bool = False
    applied_next: bool = False

    @property
    def kernels(self) -> list[Kernel]:
        """The containers that the plan puts here."""
        return self.plan.kernels_on(self.agent)


class ClaimResult(NamedTuple):
    """The changes, the public keys of the containers here by hostname, and warnings about what runs beside sessions."""

    changes: list[Change]
    keys: dict[str, PublicKeys]
    warnings: tuple[str, ...] = ()


def claim(
    client: docker.APIClient, store: Store, settings: AgentSettings, request: ClaimRequest, *, check_mode: bool
) -> ClaimResult:
    """Check that the plan still fits, store the claim and create the containers' keys.

    Stale and expired sessions are removed first, and the folders of mounts and what others use are looked at, without
    the lock: all of it may take long. A committed session is not changed. The unfinished claim of another run is taken
    over: it keeps its keys, cores and devices and gets this run's nonce. If it has expired or has another plan, it is
    removed and claimed again. Raises :class:`ClaimRefusedError`, :class:`SessionEndedError`, :class:`NameTakenError`,
    :class:`GroupRefusedError` or :class:`InnerFolderMissingError`; with ``check_mode`` nothing is written.
    """
    judge_groups(request.plan, request.agent, settings.docker_host)
    hostnames = [kernel.hostname for kernel in request.kernels]
    changes = _remove_others(client, store, request.stale_sessions, check_mode=check_mode)
    if not check_mode:
        # The timer may be half a minute away.
        _mend(client, store)
        _remove_leftovers(client, store, request.plan)
    session = store.session(request.plan.id)
    found = _look(client, store, settings, request) if not (session and session.committed) else None
    warnings: tuple[str, ...] = ()
    with store.lock():
        session = _read_stored(store, request)
        if session and session.committed:
            if request.never_completed and not check_mode:
                record_own(client, store, session)
                store.save(dataclasses.replace(session, nonce=request.nonce))
            return ClaimResult(changes, session.keys)
        taken_over = session is not None and _is_valid(session, request.plan)
        if found is None or (session and not taken_over and not check_mode):
            # It changed between the two looks at it.
            raise ClaimRefusedError(_describe_taken(request))
        if session and taken_over:
            pinned = session.pinned
        else:
            pinned, warnings = _allocate(client, store, settings, request, found.others, check_mode=check_mode)
            changes.append(
                Change(f"claim {request.plan.name} on {request.agent}", None, f"{len(hostnames)} containers")
            )
        if check_mode:
            planned = PublicKeys("(created by the agent)", "(created by the agent)")
            return ClaimResult(changes, dict.fromkeys(hostnames, planned), warnings)
        if session and taken_over:
            record_own(client, store, session)
        until = deadline_in(request.seconds)
        session = LocalSession(request.plan, request.agent, request.nonce, until, pinned, {})
        published = request.plan.published_on(request.agent)
        store.ports.reserve(request.plan.id, [port.host_port for port in published])
        # Stored before anything is created, so that everything belongs to a claim; then again with its keys.
        store.save(session)
        if found.folders:
            store.save_mount_sources(request.plan.id, found.folders)
        keys = _ensure_keys(store, request.plan, hostnames)
        store.save(dataclasses.replace(session, keys=keys))
        if not request.applied_next:
            # Rules and peers are derived from all claims; until they are applied, they would be found to be missing.
            sync_ruleset(store, check_mode=False)
            sync_wireguard_peers(store, check_mode=False)
    return ClaimResult(changes, keys, warnings)


def _read_stored(store: Store, request: ClaimRequest) -> LocalSession | None:
    """Return the session as it is stored.

    Raises :class:`ClaimRefusedError` if the run has rolled back meanwhile, :class:`SessionEndedError` if another one
    has ended the session: then it must not be planned again.
    """
    if is_withdrawn(request.nonce):
        raise ClaimRefusedError(f"the run that asked for {request.plan.name!r} has ended, and has rolled back")
    if is_withdrawn(request.plan.id):
        raise SessionEndedError(f"the session {request.plan.name!r} has been ended")
    return store.session(request.plan.id)


def _mend(client: docker.APIClient, store: Store) -> None:
    """Mend what this agent lacks. Raises :class:`ClaimRefusedError` if that fails for what is vital."""
    for failure in mend_lacks(store, lambda: client)[1]:
        if failure.need.vital:
            raise ClaimRefusedError(failure.phrase)


def _ensure_keys(store: Store, plan: SessionPlan, hostnames: Sequence[str]) -> dict[str, PublicKeys]:
    """Return the public keys of containers; missing pairs are created in parallel."""
    folders = [store.kernel_folder(plan.id, hostname) for hostname in hostnames]
    for folder in folders:
        make_folder(folder, plan.gid)
    kit = store.kit()
    return dict(zip(hostnames, in_threads(lambda folder: ensure_keys(folder / "ssh", kit), folders)))


def _remove_others(client: docker.APIClient, store: Store, stale: Sequence[str], *, check_mode: bool) -> list[Change]:
    """Remove stale sessions, and with them expired claims.

    Stale ones are asked at the same time, so that their graces pass at once, and their output is kept. A session that
    cannot be removed, because its processes hang, must not keep this one from starting: the next run tries again, and
    reports it.
    """
    expired = [] if check_mode else [session.plan.id for session in store.sessions() if session.expired]
    changes: list[Change] = []
    ends = {session_id: SessionEnd() for session_id in stale}
    if not check_mode:
        with contextlib.suppress(ClusterError, OSError):
            stop_sessions(client, store, ends)
    for session_id, end in ends.items():
        with contextlib.suppress(ClusterError, OSError):
            changes += remove_claimed(client, store, session_id, None, end=end, check_mode=check_mode)
    for session_id in expired:
        with contextlib.suppress(ClusterError, OSError):
            remove_if(client, store, session_id, is_expired, check_mode=False)
    return changes


def _remove_leftovers(client: docker.APIClient, store: Store, plan: SessionPlan) -> None:
    """Remove what an earlier claim of this session left, unless this run takes it over.

    It would conflict with the claim; its folder may have been lost.
    """

    def is_left(session: LocalSession | None) -> bool:
        return not (session and (session.committed or _is_valid(session, plan)))

    if is_left(store.session(plan.id)):
        remove_if(client, store, plan.id, is_left, check_mode=False)


def _is_valid(session: LocalSession, plan: SessionPlan) -> bool:
    """Return whether a claim of a plan is still valid, so that another run may take it over."""
    return session.plan == plan and not session.expired


class _Found(NamedTuple):
    """The folders of mounts by source, and what runs beside sessions."""

    folders: dict[str, FolderOnMount]
    others: Others


def _look(client: docker.APIClient, store: Store, settings: AgentSettings, request: ClaimRequest) -> _Found:
    """Look at the folders of mounts, and at what others use: GPUs only for a session that has some."""
    slots = {slot for kernel in request.kernels for slot, count in kernel.resources.items() if count}
    return _Found(
        _judge_mounts(client, store, settings, request),
        find_others(client, ask_driver=any(slot.startswith(CUDA_PREFIX) for slot in slots)),
    )


def _judge_mounts(
    client: docker.APIClient, store: Store, settings: AgentSettings, request: ClaimRequest
) -> dict[str, FolderOnMount]:
    try:
        # An agent that only manages the session's network mounts nothing.
        mounts = request.plan.mounts if request.kernels else ()
        folders = judge_mounts(client, store, settings.mounts, mounts, request.agent)
    except InnerFolderMissingError:
        # Another agent would refuse it, too, until the user has made that folder.
        raise
    except MountRefusedError as error:
        raise ClaimRefusedError(str(error)) from None
    table = read_mounts() if folders else []
    return {source: FolderOnMount.find(folder.path, table) for source, folder in folders.items()}


def _describe_taken(request: ClaimRequest) -> str:
    return f"session_name: {request.plan.name!r} was taken on {request.agent} by another run"


def _allocate(
    client: docker.APIClient,
    store: Store,
    settings: AgentSettings,
    request: ClaimRequest,
    others: Others,
    *,
    check_mode: bool,
) -> tuple[dict[str, PinnedResources], tuple[str, ...]]:
    """Return cores and devices for the containers that the plan puts here, after all other checks, and warnings.

    GPUs that others use are taken last.
    """
    # What is there although it has been removed, could not be, and uses resources.
    excluded = [*request.stale_sessions, request.plan.id] if check_mode else [request.plan.id]
    query = FactsQuery(excluded=excluded, counts_expired=not check_mode)
    active = active_sessions(store.sessions(), excluded, counts_expired=not check_mode)
    facts = collect_facts(client, store, settings, query, request.agent)
    # What an earlier claim has left is gone.
    require_names(client, [kernel.container for kernel in request.kernels], {}, request.agent)
    network = desired_network(request.plan)
    if network:
        require_network_name(client, network.name, request.plan.id, request.agent)
    gpu = request.plan.gpu
    refusal_reason = _why_refused(request, facts.with_gpus(gpu), active)
    if refusal_reason:
        raise ClaimRefusedError(refusal_reason)
    free = [device for device in facts.devices if device.free and gpu.accepts(device)]
    nodes = machine.numa_nodes(facts.online_cpus)
    requests = [kernel.resources for kernel in request.kernels]
    spare = others.spare(free, sum_slots(requests))
    pinned = pin_containers(nodes, cpu_load(active), settings.cpu_overcommit, spare, requests)
    shared = [device.id for device in spare if others.use(device)]
    warnings = (
        *others.warnings(unreserved(settings, facts.devices)),
        *(f"{request.plan.name} has {device} all the same: no other is free." for device in shared),
    )
    return {kernel.hostname: resources for kernel, resources in zip(request.kernels, pinned)}, warnings


def _why_refused(request: ClaimRequest, facts: AgentFacts, active: Sequence[LocalSession]) -> str | None:
    plan, agent = request.plan, request.agent
    if facts.cordon:
        return f"{agent} takes no new sessions: {facts.cordon.description}"
    if any(session.plan.name == plan.name for session in active):
        return _describe_taken(request)
    if not fits(facts, [kernel.resources for kernel in request.kernels]):
        return f"{agent} no longer has room for {_describe_kernels(request.kernels)}"
    underlay = plan.underlays.get(agent)
    if underlay and underlay != facts.underlay:
        return f"{agent} no longer has the underlay address {underlay.address} on {underlay.interface}"
    if plan.infiniband and not facts.infiniband:
        return _describe_missing_infiniband(facts)
    port = min(facts.tcp_ports.intersection(plan.tcp_ports(agent)), default=None)
    conflict = f"the port {port} was taken on {agent} by another run" if port is not None else None
    return conflict or (_network_conflict(plan.network, plan.host_ports(agent), facts) if plan.network else None)


def _describe_missing_infiniband(facts: AgentFacts) -> str:
    if facts.has_infiniband:
        return f"agent_allow_infiniband: {facts.name} no longer allows containers to use its InfiniBand"
    return f"session_infiniband: {facts.name} no longer has /dev/infiniband/uverbs*"


def _network_conflict(network: Network, host_ports: Sequence[int], facts: AgentFacts) -> str | None:
    if host_ports and not facts.allow_host_network:
        return f"agent_allow_host_network: {facts.name} no longer allows containers on its own network"
    if network.vni in facts.vnis:
        return f"the network identifier {network.vni} was taken on {facts.name} by another run"
    if network.port in facts.udp_ports:
        return f"the port {network.port} was taken on {facts.name} by {facts.udp_ports[network.port]}"
    if network.subnet and _overlaps(network.subnet, facts.networks):
        return f"the subnet {network.subnet} was taken on {facts.name} by another run"
    return None


def _describe_kernels(kernels: Sequence[Kernel]) -> str:
    """Describe containers, such as ``1 container of cpu 1, mem 1g and 2 containers of cpu 2, mem 1g``."""
    counts = Counter(format_slots(kernel.resources) for kernel in kernels)
    return " and ".join(f"{count} container{'s' if count > 1 else ''} of {slots}" for slots, count in counts.items())


def _overlaps(subnet: str, networks: Sequence[str]) -> bool:
    desired = ipaddress.IPv4Network(subnet)
    used = (ipaddress.ip_network(text, strict=False) for text in networks)
    return any(network.version == 4 and network.prefixlen and desired.overlaps(network) for network in used)
