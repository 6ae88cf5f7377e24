# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""One agent's slice of a session: files, network, tunnel and containers, made true or taken away."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import time
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ansible_collections.backendai.cluster.plugins.module_utils._agent.claimed import claimed, renew
from ansible_collections.backendai.cluster.plugins.module_utils._agent.host import Host, read_host
from ansible_collections.backendai.cluster.plugins.module_utils._agent.isolation import isolate
from ansible_collections.backendai.cluster.plugins.module_utils._agent.network import plan_links, plan_plugs
from ansible_collections.backendai.cluster.plugins.module_utils._agent.readiness import await_ready
from ansible_collections.backendai.cluster.plugins.module_utils._agent.refused import Refused
from ansible_collections.backendai.cluster.plugins.module_utils._agent.underlay import join_peers
from ansible_collections.backendai.cluster.plugins.module_utils._core.change import Change
from ansible_collections.backendai.cluster.plugins.module_utils._core.environment import (
    AGAIN,
    derived,
    parse_environment,
)
from ansible_collections.backendai.cluster.plugins.module_utils._core.images import Found, disagreement
from ansible_collections.backendai.cluster.plugins.module_utils._core.network import link_of
from ansible_collections.backendai.cluster.plugins.module_utils._core.pinning import Pinned, device_nodes
from ansible_collections.backendai.cluster.plugins.module_utils._core.plan import Kernel, SessionPlan
from ansible_collections.backendai.cluster.plugins.module_utils._core.ssh import (
    PublicKeys,
    authorized_keys,
    known_hosts,
    ports,
)
from ansible_collections.backendai.cluster.plugins.module_utils._docker import containers, labels, networks, overlay
from ansible_collections.backendai.cluster.plugins.module_utils._docker.images import (
    Image,
    ImageUnavailable,
    find_image,
)
from ansible_collections.backendai.cluster.plugins.module_utils._host.accelerators import INFINIBAND
from ansible_collections.backendai.cluster.plugins.module_utils._host.files import DesiredFile, plan_files, write_files
from ansible_collections.backendai.cluster.plugins.module_utils._host.store import Held, Store
from ansible_collections.backendai.cluster.plugins.module_utils._net import iproute, vxlan

if TYPE_CHECKING:
    import docker


PROOF_SECONDS = 60
"""Seconds that a claim lasts at least once the containers have started: the session is proven then."""

LEAST_SECONDS = 30
"""How long containers may take to start at least, however short the claim: an agent may be busy."""

REPAIR_SECONDS = 600
"""How long containers may take to start that are repaired: nothing expires then."""


class ImagesDiffer(Refused):
    """Agents of a session have different images of one name; the message is one sentence."""


@dataclasses.dataclass(frozen=True)
class Contents:
    """What the templates gave, and the keys of all containers: the same for every agent but ``environments``."""

    hosts: str
    ssh_config: str
    environments: dict[str, str]
    keys: dict[str, PublicKeys]
    user_keys: tuple[str, ...]
    bootstrap: str = ""

    @classmethod
    def from_options(cls, options: Mapping[str, Any]) -> Contents:
        """Return the contents that a module's options hold."""
        return cls(
            hosts=options["hosts"],
            ssh_config=options["ssh_config"],
            environments=options["environments"],
            keys={hostname: PublicKeys(**keys) for hostname, keys in options["public_keys"].items()},
            user_keys=tuple(options["user_keys"]),
            bootstrap=options["bootstrap"],
        )


@dataclasses.dataclass(frozen=True)
class Asked:
    """What a run asks of one agent; ``nonce`` is the one that it claimed the session with.

    ``images`` are those that the agents of the session say that they have.
    """

    plan: SessionPlan
    agent: str
    nonce: str
    contents: Contents
    default_network: str
    images: Found = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Applied:
    """What making a slice true came to: what changed, and the names of the containers that were started."""

    changes: list[Change]
    started: list[str]


@dataclasses.dataclass(frozen=True)
class Wanted:
    """A slice as it should be, adapter by adapter."""

    files: list[DesiredFile]
    network: networks.BridgeNetwork | None
    containers: list[containers.Container]


def apply_claimed(client: docker.APIClient, store: Store, asked: Asked, *, dry: bool) -> list[Change]:
    """Apply the slice that this run has claimed; with ``dry`` the claim may be missing. Raises :class:`NotClaimed`."""
    plan = asked.plan
    with store.session_lock(plan.id):
        if dry:
            held = store.session(plan.id) or Held(plan, {}, asked.agent, asked.nonce, None, {}, {})
        else:
            held = claimed(store, plan.id, asked.nonce)
        images = _images(client, held, asked.images, dry=dry)
        applied = apply_slice(client, store, held, asked.contents, images, asked.default_network, dry=dry)
    # Without the lock: a start that takes long keeps nobody from ending the session.
    await_ready(client, applied.started, _patience(held))
    if applied.started:
        # However long that took, there has to be time to prove the session.
        renew(store, plan.id, asked.nonce, PROOF_SECONDS)
    return applied.changes


def remove_claimed(
    client: docker.APIClient, store: Store, session_id: str, nonce: str | None, *, dry: bool
) -> list[Change]:
    """Remove a slice: any one without a nonce, else only one that was claimed with that nonce.

    What this run has committed goes too, when another agent could not: there is never half a session. One that an
    earlier run committed bears that run's nonce, and stays.
    """
    with store.lock(), store.session_lock(session_id):
        held = store.session(session_id)
        if nonce is not None and (held is None or held.nonce != nonce):
            return []
        return remove_slice(client, store, session_id, dry=dry)


def apply_slice(
    client: docker.APIClient,
    store: Store,
    held: Held,
    contents: Contents,
    images: Mapping[str, Image],
    default_network: str,
    *,
    dry: bool,
) -> Applied:
    """Make this agent's slice true, repairing what drifted; nothing changes on a healthy session.

    With ``dry`` only the difference is computed. Raises what the adapters raise.
    """
    wanted = desired_slice(store, held, contents, images, default_network, read_host(client))
    files = plan_files(wanted.files)
    if not dry:
        write_files(file for file, _change in files)
        store.seal(held.plan.id, [file.path for file in wanted.files])
    changes = [change for _file, change in files]
    changes += _apply_network(client, wanted.network, dry=dry)
    # Nobody is let in before the rules are true that keep sessions apart.
    changes += isolate(store, dry=dry)
    changes += join_peers(store, dry=dry)
    changes += _apply_links(held, dry=dry)
    plugs = plan_plugs(client, held)
    # The command of a batch session runs once: its container is neither started nor made again.
    batch = store.commanded(held)
    repairable = [one for one in wanted.containers if one.hostname not in batch]
    found = containers.find_containers(client, held.plan.id)
    steps = containers.plan_containers(found, repairable, plugs.lost)
    if not dry:
        containers.apply_containers(client, steps)
        # What was made anew is plugged in otherwise than what was looked at.
        plugs = plan_plugs(client, held) if steps else plugs
        iproute.apply(plugs.steps)
    changes += [*(step.change for step in steps), *(step.change for step in plugs.steps)]
    return Applied(changes, [] if dry else [step.wanted.name for step in steps])


def remove_slice(client: docker.APIClient, store: Store, session_id: str, *, dry: bool = False) -> list[Change]:
    """Take away everything of a session on this agent and return what that was; nothing where there is nothing.

    The folder goes last: while it is there, a run that is interrupted can be repeated.
    """
    held = store.session(session_id)
    found = containers.find_containers(client, session_id)
    if dry:
        there = [Change(f"container {one['Names'][0].lstrip('/')}", one["State"], None) for one in found]
        joined = networks.find_networks(client, session_id) + overlay.find_overlays(client, session_id)
        there += [Change(f"network {one['Name']}", one["Id"][:12], None) for one in joined]
        return [*there, *([Change(f"session {held.plan.name}", "held", None)] if held else [])]
    changes = containers.remove_containers(client, found)
    vxlan.remove_link(link_of(session_id))
    changes += networks.remove_networks(client, session_id)
    changes += overlay.remove_overlays(client, session_id)
    isolate(store, dry=False, gone=session_id)
    join_peers(store, dry=False, gone=session_id)
    if store.remove(session_id):
        changes.append(Change(f"session {held.plan.name if held else session_id}", "held", None))
    return changes


def desired_slice(
    store: Store, held: Held, contents: Contents, images: Mapping[str, Image], default_network: str, host: Host
) -> Wanted:
    """Return what this agent should have of a session: pure but for the path of the kit in use."""
    files: list[DesiredFile] = []
    wanted = []
    for kernel in held.kernels:
        folder = store.kernel_folder(held.plan.id, kernel.hostname)
        given, image = parse_environment(contents.environments[kernel.hostname]), images[kernel.image]
        follows = derived(image.environment, given, held.plan.interface_on(kernel.agent))
        files += _files(folder, held, kernel, contents, host.infiniband, follows)
        container = _container(held, kernel, given, image, str(folder), store.kit(), default_network)
        container = dataclasses.replace(container, ulimits=host.ulimits, cdi_gpus=host.cdi_gpus)
        wanted.append(dataclasses.replace(container, ssh_files=_ssh_digest(held.plan, kernel, contents)))
    return Wanted(files, networks.desired_network(held.plan), wanted)


def _patience(held: Held) -> float:
    """Return until when containers may take to start, by the monotonic clock: as long as the claim lasts."""
    left = held.expires_at - time.time() if held.expires_at is not None else REPAIR_SECONDS
    return time.monotonic() + max(left, LEAST_SECONDS)


def _images(client: docker.APIClient, held: Held, said: Found, *, dry: bool) -> dict[str, Image]:
    """Return the images of the containers here by name; with ``dry`` they may still have to be pulled.

    Raises :class:`ImageUnavailable`, and :class:`ImagesDiffer` unless agents have the same: the others as they
    ``said``, this one as it is now.
    """
    images = {}
    for name in dict.fromkeys(kernel.image for kernel in held.kernels):
        found = find_image(client, name)
        if found is None and not dry:
            raise ImageUnavailable(f"session_image: {name!r} is not on {held.agent}")
        images[name] = found or Image("", {})
    wrong = disagreement({**said, held.agent: {name: image.known for name, image in images.items() if image.id}})
    if wrong:
        raise ImagesDiffer(wrong)
    return images


def _files(
    folder: Path, held: Held, kernel: Kernel, contents: Contents, infiniband: Iterable[str], follows: Collection[str]
) -> list[DesiredFile]:
    """Return what a container sees at ``/run/backendai``; ``follows`` are the variables that are derived.

    ``infiniband`` are the agent's device nodes of that kind.
    """
    plan = held.plan
    known = known_hosts(plan.kernels, contents.keys)
    allowed = authorized_keys(kernel, plan.kernels, contents.keys, contents.user_keys)
    scripts = {"command": plan.command if plan.runs_command(kernel.hostname) else "", "bootstrap": contents.bootstrap}
    scripts |= {f"apps/{app.name}": app.command for app in plan.apps if kernel.rank == 0}
    pinned = held.pinned.get(kernel.hostname, Pinned())
    nodes = device_nodes([*pinned.device_ids, *(infiniband if plan.infiniband else ())])
    devices = [DesiredFile(folder / "devices", "".join(f"{path}\n" for path in nodes))] if nodes else []
    listening = ports(plan.kernels)
    shared = [DesiredFile(folder / "ports", listening)] if listening else []
    return [
        DesiredFile(folder / "hosts", contents.hosts, mode=0o644),
        DesiredFile(folder / "environment", contents.environments[kernel.hostname], secret=True),
        DesiredFile(folder / "derived", "".join(f"{name}\n" for name in AGAIN if name in follows)),
        DesiredFile(folder / "ssh" / "config", contents.ssh_config),
        DesiredFile(folder / "ssh" / "known_hosts", known),
        DesiredFile(folder / "ssh" / "authorized_keys", allowed),
        *(DesiredFile(folder / name, text, secret=True) for name, text in scripts.items() if text),
        *devices,
        *shared,
    ]


def _ssh_digest(plan: SessionPlan, kernel: Kernel, contents: Contents) -> str:
    """Return what identifies the SSH files: containers copy them when they start, so other files want another start."""
    allowed = authorized_keys(kernel, plan.kernels, contents.keys, contents.user_keys)
    text = "\0".join((known_hosts(plan.kernels, contents.keys), allowed, contents.ssh_config))
    return hashlib.sha256(text.encode()).hexdigest()


def _container(
    held: Held, kernel: Kernel, given: dict[str, str], image: Image, folder: str, kit: str, default_network: str
) -> containers.Container:
    plan, pinned = held.plan, held.pinned.get(kernel.hostname, Pinned())
    # On the agent's own network everything is where gateways reach it already.
    published = plan.published if kernel.rank == 0 and not plan.shares_host_network else ()
    mounts = (f"{one.source}:{one.target}:{'ro' if one.read_only else 'rw'}" for one in plan.mounts)
    return containers.Container(
        name=kernel.container,
        hostname=kernel.hostname,
        image=kernel.image,
        argv=image.argv,
        given=given,
        image_environment=image.environment,
        kit=kit,
        binds=(f"{folder}:/run/backendai:ro", f"{folder}/hosts:/etc/hosts", *mounts),
        cpus=tuple(pinned.cpus),
        # The engine gives all nodes that are in a folder when the container starts.
        devices=(*pinned.device_ids, *([INFINIBAND] if plan.infiniband else [])),
        memory=kernel.resources["mem"],
        shm_size=kernel.resources.get("shmem"),
        default_network=default_network,
        network=plan.network.name if plan.network else None,
        address=kernel.address,
        mac=kernel.mac,
        interface=plan.interface_on(kernel.agent),
        networks=plan.networks,
        overlay=plan.network is not None and plan.network.manager is not None,
        published=tuple((one.port, one.address, one.host_port) for one in published),
        labels=_labels(plan, kernel, pinned, image.digest),
    )


def _labels(plan: SessionPlan, kernel: Kernel, pinned: Pinned, digest: str) -> dict[str, str]:
    return {
        labels.OWNER: labels.OWNER_VALUE,
        labels.SESSION_ID: plan.id,
        labels.SESSION_NAME: plan.name,
        labels.KERNEL_ID: kernel.id,
        labels.HOSTNAME: kernel.hostname,
        labels.SLOTS: json.dumps(kernel.resources),
        labels.DEVICES: json.dumps(pinned.devices),
        labels.IMAGE_DIGEST: digest,
    }


def _apply_network(client: docker.APIClient, wanted: networks.BridgeNetwork | None, *, dry: bool) -> list[Change]:
    change = networks.plan_network(client, wanted) if wanted else None
    if wanted is None or change is None:
        return []
    if not dry:
        # A network can only be made anew, and only once it is empty: its containers follow.
        containers.remove_containers(client, containers.find_containers(client, wanted.session_id))
        networks.remove_networks(client, wanted.session_id)
        networks.create_network(client, wanted)
    return [change]


def _apply_links(held: Held, *, dry: bool) -> list[Change]:
    steps = plan_links(held.plan, held.agent, iproute.Look())
    if not dry:
        iproute.apply(steps)
    return [step.change for step in steps]
