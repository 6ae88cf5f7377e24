# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Applies an agent's slice of a session: files, network, tunnel and containers."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from .._docker import containers, networks
from .._docker.images import Image, ImagePullError, find_image
from .._docker.sdk import docker
from .._firewall.sync import sync_ruleset
from .._host.files import plan_files, write_files
from .._host.local_session import LocalSession
from .._host.store import Store
from .._model.change import Change
from .._model.errors import ClusterError
from .._model.image_look import ImageLook
from .._model.images import ImagesByAgent, image_mismatch
from .._model.limits import DEFAULT_LIMITS, ContainerLimits
from .._model.plan import SessionPlan
from .._model.session import STOPPED
from .._network import iproute
from .._wireguard.peers import sync_wireguard_peers
from .admission import admit
from .before_start import make_folders, make_new_homes, prepare_restart, prepare_start
from .claim_guard import renew_claim, require_claim
from .contents import RenderedFiles, desired_slice
from .end import replace_containers
from .gpu_access import lost_nodes
from .host_capabilities import read_host
from .image_access import ImageAccess, require_image_access
from .image_look import find_unjudgeable, judge_own_homes, look_at_image, recorded_look
from .interfaces import apply_interfaces, plan_interfaces
from .links import plan_links
from .mount_sources import MountSettings, check_before_start
from .ownership import own_containers, require_names
from .readiness import await_ready, ready_markers
from .user_groups import judge_group_files, judge_groups

CHECK_SECONDS = 60
"""Minimum remaining time of a claim, in seconds, once the containers have started: the session check follows."""

MIN_START_SECONDS = 30
"""Minimum start timeout of containers, however short the claim: an agent may be busy."""

REPAIR_SECONDS = 600
"""Start timeout of repaired containers, for which no claim expires."""


class ImageMismatchError(ClusterError):
    """Agents of a session have different images under one name. The message is one sentence."""


class CommandRunsError(ClusterError):
    """A network cannot be made again, because the command of a container in it runs. The message is one sentence."""


class InfinibandMissingError(ClusterError):
    """The agent has no InfiniBand for containers that are to be created. The message is one sentence."""


class KeysMissingError(ClusterError):
    """An agent did not report the keys of its containers. The message is one sentence."""


@dataclasses.dataclass(frozen=True)
class ApplyRequest:
    """What a run applies on one agent. ``nonce`` is that of its claim.

    ``images`` are those that the agents of the session reported, ``access`` has the logins of the requester, ``mounts``
    the agent's settings for mounts, ``limits`` are those of new containers. ``patience`` is how many seconds to wait
    for the containers at most; ``None`` for as long as the claim lasts. With ``fresh_home`` containers that may be
    replaced are, and their homes with them.
    """

    plan: SessionPlan
    agent: str
    nonce: str
    contents: RenderedFiles
    default_network: str
    images: ImagesByAgent = dataclasses.field(default_factory=dict)
    access: ImageAccess = dataclasses.field(default_factory=ImageAccess)
    patience: float | None = None
    mounts: MountSettings = dataclasses.field(default_factory=MountSettings)
    limits: ContainerLimits = DEFAULT_LIMITS
    fresh_home: bool = False


class ApplyResult(NamedTuple):
    """The changes, the names of the containers that were started, and why output was lost, by hostname."""

    changes: list[Change]
    started: list[str]
    lost: dict[str, str]


def apply_claimed(
    client: docker.APIClient, store: Store, request: ApplyRequest, *, check_mode: bool
) -> tuple[list[Change], bool, dict[str, str]]:
    """Apply the slice that this run has claimed; return the changes, and whether all containers are ready.

    The third is why output of replaced containers was lost, by hostname.

    With ``check_mode`` the claim may be missing. What this agent has stored is no source of the plan: if it differs, it
    is replaced. Raises :class:`ClaimLostError`, :class:`KeysMissingError`, and :class:`ImageAccessError` if the
    requester may not use an image.
    """
    plan = request.plan
    lacking = [kernel for kernel in plan.kernels if kernel.hostname not in request.contents.keys]
    if lacking:
        raise KeysMissingError(
            f"{lacking[0].agent} did not report the keys of {lacking[0].hostname}, which it runs: end the session, and"
            " create it again"
        )
    judge_groups(plan, request.agent, request.mounts.docker_host)
    changes = _adopt_plan(store, request, check_mode=check_mode)
    if not check_mode:
        # Without the lock, because a registry may be slow.
        _require_images(client, store, request, require_claim(store, plan.id, request.nonce))
    with store.session_lock(plan.id):
        if check_mode:
            session = store.session(plan.id) or LocalSession(plan, request.agent, request.nonce, None, {}, {})
            session = dataclasses.replace(session, plan=plan, agent=request.agent)
        else:
            session = require_claim(store, plan.id, request.nonce)
        images = _find_images(client, session, request.images, check_mode=check_mode)
        images = _look_at_images(client, store, session, images, check_mode=check_mode)
        judge_group_files(plan, images)
        judge_own_homes(plan, images)
        applied = apply_slice(client, store, session, request, images, check_mode=check_mode)
    # Without the lock: a slow start must not block the removal of the session.
    markers = ready_markers(store, session, applied.started)
    ready = await_ready(client, markers, _start_deadline(session), request.patience)
    if applied.started and ready:
        # However long the start took, the session check needs time.
        renew_claim(store, plan.id, request.nonce, CHECK_SECONDS)
    return changes + applied.changes, ready, applied.lost


def await_claimed(client: docker.APIClient, store: Store, session_id: str, nonce: str) -> None:
    """Wait for the containers of a slice that this run has applied.

    Raises :class:`NotReadyError` and :class:`ClaimLostError`.
    """
    session = require_claim(store, session_id, nonce)
    started = store.started_commands(session)
    names = [kernel.container for kernel in session.kernels if kernel.hostname not in started]
    await_ready(client, ready_markers(store, session, names), _start_deadline(session))
    renew_claim(store, session_id, nonce, CHECK_SECONDS)


def _adopt_plan(store: Store, request: ApplyRequest, *, check_mode: bool) -> list[Change]:
    """Replace the stored plan of the session if it is another one."""
    stored = store.session(request.plan.id)
    if stored is None or (stored.plan == request.plan and stored.agent == request.agent):
        return []
    if not check_mode:
        # Before the lock of the session: who holds both takes this one first.
        with store.lock():
            session = require_claim(store, request.plan.id, request.nonce)
            store.ports.reserve(request.plan.id, [port.host_port for port in request.plan.published_on(request.agent)])
            store.save(dataclasses.replace(session, plan=request.plan, agent=request.agent))
    return [Change(f"plan of session {request.plan.name}", "differs from the control node's", "the same")]


def apply_slice(
    client: docker.APIClient,
    store: Store,
    session: LocalSession,
    request: ApplyRequest,
    images: Mapping[str, Image],
    *,
    check_mode: bool,
) -> ApplyResult:
    """Apply this agent's slice and repair its drift; a healthy session is not changed.

    With ``check_mode`` only the changes are computed. Raises what the adapters raise.
    """
    host = read_host(client)
    desired = desired_slice(store, session, request.contents, images, request.default_network, host, request.limits)
    # The command of a batch session runs once: its container is neither restarted nor recreated.
    started_hostnames = store.started_commands(session)
    repairable = [container for container in desired.containers if container.hostname not in started_hostnames]
    unwanted = {container.hostname: "a fresh home" for container in repairable if request.fresh_home}
    if not check_mode:
        make_folders(client, store, session, images)
    files = plan_files(desired.files)
    if not check_mode:
        write_files((file for file, _change in files), durable=False)
        store.save_checksums(session.plan.id, [file.path for file in desired.files])
    changes = [change for _file, change in files]
    network_changes, removed, lost = _apply_network(client, store, session, desired.network, check_mode=check_mode)
    changes += network_changes
    # Apply the isolation rules before any container is attached.
    changes += sync_ruleset(store, check_mode=check_mode)
    changes += sync_wireguard_peers(store, check_mode=check_mode)
    changes += _apply_links(session, check_mode=check_mode)
    interface_plan = plan_interfaces(client, store, session)
    # Of containers that run already; those that are started or recreated below get their network with that.
    changes += [step.change for step in interface_plan.steps]
    own = own_containers(client, store, session)
    existing = {hostname: container for hostname, container in own.items() if hostname not in removed}
    unjudgeable = find_unjudgeable(client, existing)
    lost_parts = {**unwanted, **lost_nodes(client, store, session), **interface_plan.lost, **unjudgeable}
    steps = containers.plan_containers(existing, repairable, lost_parts)
    if session.plan.infiniband and not host.infiniband and any(step.create for step in steps):
        raise InfinibandMissingError(
            f"session_infiniband: {session.agent} no longer has /dev/infiniband/uverbs*, so no container can be created"
            " there: load the driver of its InfiniBand card"
        )
    require_names(client, [step.desired.name for step in steps if step.create], own, session.agent)
    if not check_mode:
        folders = check_before_start(client, store, session, request.mounts) if steps else {}
        sources = {source: folder.path for source, folder in folders.items()}
        # All that may refuse comes before anything ends.
        new_homes = make_new_homes(client, store, session, images, unwanted)
        replaced = [step.existing for step in steps if step.existing and step.create]
        lost |= replace_containers(client, store, session, replaced)
        if unwanted:
            # Who still runs would go on to write into a home that is removed.
            containers.remove_containers(client, [each for each in existing.values() if each["Id"] in replaced])
            _replace_homes(store, session, unwanted, new_homes)
        for step in steps:
            _prepare(client, store, session, step)
        ids = store.container_ids(session.plan.id)
        containers.apply_containers(client, ids, [step.with_sources(sources) for step in steps])
        # Recreated containers have other interfaces than those that were read.
        interface_plan = plan_interfaces(client, store, session) if steps else interface_plan
        apply_interfaces(client, store, session, interface_plan)
        admit(client, store, session, folders if steps else None, [step.desired.hostname for step in steps])
    changes += [step.change for step in steps]
    return ApplyResult(changes, [] if check_mode else [step.desired.name for step in steps], lost)


def _replace_homes(store: Store, session: LocalSession, hostnames: Iterable[str], new: Collection[str]) -> None:
    """Discard the homes of containers that have been removed; those of ``new`` have another one."""
    for hostname in hostnames:
        if hostname in new:
            store.homes.renew(session.plan.id, hostname)
        else:
            store.homes.discard(session.plan.id, hostname)


def _prepare(client: docker.APIClient, store: Store, session: LocalSession, step: containers.ContainerStep) -> None:
    if step.existing and not step.create:
        prepare_restart(client, store, session, step.desired.hostname, step.existing)
    else:
        desired = step.desired
        sources = [bind.source for bind in desired.image_binds]
        prepare_start(store, session, desired.hostname, desired.nodes, sources, desired.leads)


def _look_at_images(
    client: docker.APIClient, store: Store, session: LocalSession, images: Mapping[str, Image], *, check_mode: bool
) -> dict[str, Image]:
    """Return the images with what was seen in them; with ``check_mode`` with what is recorded of that.

    Raises :class:`ImageRefusedError`.
    """
    mounts = session.plan.mounts
    return {
        name: dataclasses.replace(
            image,
            look=(recorded_look(store, image, mounts) or ImageLook())
            if check_mode
            else look_at_image(client, store, image, name, mounts),
        )
        for name, image in images.items()
    }


def _start_deadline(session: LocalSession) -> float:
    """Return the end of the start timeout by the monotonic clock: the claim's remaining time."""
    remaining = session.expires_at.seconds_left if session.expires_at is not None else REPAIR_SECONDS
    return time.monotonic() + max(remaining, MIN_START_SECONDS)


def _require_images(client: docker.APIClient, store: Store, request: ApplyRequest, session: LocalSession) -> None:
    """Raise :class:`ImageAccessError` if the requester may not use an image of a session that is not committed."""
    if not session.committed:
        names = dict.fromkeys(kernel.image for kernel in session.kernels)
        require_image_access(client, store, request.access, names)


def _find_images(
    client: docker.APIClient, session: LocalSession, reported: ImagesByAgent, *, check_mode: bool
) -> dict[str, Image]:
    """Return the images of the containers here by name; with ``check_mode`` they may be missing.

    Raises :class:`ImagePullError`, and :class:`ImageMismatchError` unless all agents have the same: the other agents as
    ``reported``, this one as it is now.
    """
    images = {}
    for name in dict.fromkeys(kernel.image for kernel in session.kernels):
        image = find_image(client, name)
        if image is None and not check_mode:
            raise ImagePullError(f"session_image: {name!r} is not on {session.agent}")
        images[name] = image or Image("", {})
    mismatch = image_mismatch(
        {**reported, session.agent: {name: image.identity for name, image in images.items() if image.id}}
    )
    if mismatch:
        raise ImageMismatchError(mismatch)
    return images


def _apply_network(
    client: docker.APIClient,
    store: Store,
    session: LocalSession,
    desired: networks.BridgeNetwork | None,
    *,
    check_mode: bool,
) -> tuple[list[Change], Collection[str], dict[str, str]]:
    """Return the changes, the hostnames of the containers that go with them, and why output of these was lost.

    A network can only be recreated, and only once it is empty: its containers are recreated next. One that has begun
    its command, and is stopped, stays as it is. Raises :class:`CommandRunsError` if one of these runs.
    """
    change = networks.plan_network(client, desired) if desired else None
    if desired is None or change is None:
        return [], (), {}
    networks.require_network_name(client, desired.name, desired.session_id, session.agent)
    own, begun = own_containers(client, store, session), store.started_commands(session)
    running = [hostname for hostname in own if hostname in begun and own[hostname]["State"] not in STOPPED]
    if running:
        raise CommandRunsError(
            f"the network {desired.name} on {session.agent} cannot be made again while the command of"
            f" {', '.join(running)} runs: wait until that has ended, or end the session"
        )
    removed = {hostname: container for hostname, container in own.items() if hostname not in begun}
    changes = [change, *(containers.listed_change(container, None) for container in removed.values())]
    if check_mode:
        return changes, removed, {}
    lost = replace_containers(client, store, session, [container["Id"] for container in removed.values()])
    containers.remove_containers(client, removed.values())
    networks.remove_networks(client, desired.session_id)
    networks.create_network(client, desired)
    return changes, removed, lost


def _apply_links(session: LocalSession, *, check_mode: bool) -> list[Change]:
    steps = plan_links(session.plan, session.agent, iproute.LinkState())
    if not check_mode:
        iproute.apply_operations(steps)
    return [step.change for step in steps]
