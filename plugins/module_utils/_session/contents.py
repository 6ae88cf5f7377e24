# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What an agent should have of a session: files, network and containers."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from .._docker import containers, labels, networks
from .._docker.images import Image
from .._host.accelerators import INFINIBAND
from .._host.files import DesiredFile
from .._host.store import LocalSession, Store
from .._model.devices import PinnedResources, device_nodes
from .._model.environment import REDERIVED_VARIABLES, derived_variables, environment_text
from .._model.held_session import PublicKeys
from .._model.plan import Kernel, SessionPlan
from .._model.session import SSH_PORT
from .facts import HostCapabilities


def known_hosts(kernels: Iterable[Kernel], keys: Mapping[str, PublicKeys]) -> str:
    """Return a complete ``known_hosts``: the host key of every container under its name and address."""
    return "".join(f"{_names(kernel)} {keys[kernel.hostname].host}\n" for kernel in kernels)


def ports(kernels: Iterable[Kernel]) -> str:
    """Return where containers listen that share their agents' network: ``hostname address port`` in each line."""
    return "".join(
        f"{kernel.hostname} {kernel.address} {kernel.ssh_port}\n" for kernel in kernels if kernel.ssh_port != SSH_PORT
    )


def _names(kernel: Kernel) -> str:
    """Return what a container is known as; with a port of its own, in the form that ``ssh`` looks for then."""
    names = filter(None, (kernel.hostname, kernel.address))
    return ",".join(name if kernel.ssh_port == SSH_PORT else f"[{name}]:{kernel.ssh_port}" for name in names)


def authorized_keys(
    kernel: Kernel, kernels: Iterable[Kernel], keys: Mapping[str, PublicKeys], users: Sequence[str]
) -> str:
    """Return who may log in to ``kernel``: every container of the session, and on main1 the user's own keys."""
    peers = [f"{keys[one.hostname].user} work@{one.hostname}" for one in kernels]
    return "".join(f"{line}\n" for line in [*peers, *(users if kernel.rank == 0 else ())])


@dataclasses.dataclass(frozen=True)
class RenderedFiles:
    """What the templates gave, and the keys of all containers: the same for every agent but for ``environments``.

    Those are of the containers here, by hostname.
    """

    hosts: str
    ssh_config: str
    environments: dict[str, dict[str, str]]
    keys: dict[str, PublicKeys]
    user_keys: tuple[str, ...]
    bootstrap: str = ""

    @classmethod
    def from_options(cls, options: Mapping[str, Any]) -> RenderedFiles:
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
class DesiredState:
    """A slice as it should be, adapter by adapter."""

    files: list[DesiredFile]
    network: networks.BridgeNetwork | None
    containers: list[containers.Container]


def desired_slice(
    store: Store,
    held: LocalSession,
    contents: RenderedFiles,
    images: Mapping[str, Image],
    default_network: str,
    host: HostCapabilities,
) -> DesiredState:
    """Return what this agent should have of a session: pure but for the path of the kit in use."""
    files: list[DesiredFile] = []
    wanted = []
    for kernel in held.kernels:
        folder = store.kernel_folder(held.plan.id, kernel.hostname)
        given, image = contents.environments[kernel.hostname], images[kernel.image]
        follows = derived_variables(image.environment, given, held.plan.interface_on(kernel.agent))
        files += _files(folder, held, kernel, contents, host.infiniband, follows)
        container = _container(held, kernel, given, image, str(folder), store.kit(), default_network)
        container = dataclasses.replace(container, ulimits=host.ulimits, cdi_gpus=host.cdi_gpus)
        wanted.append(dataclasses.replace(container, ssh_files=_ssh_digest(held.plan, kernel, contents)))
    return DesiredState(files, networks.desired_network(held.plan), wanted)


def _files(
    folder: Path,
    held: LocalSession,
    kernel: Kernel,
    contents: RenderedFiles,
    infiniband: Iterable[str],
    follows: Collection[str],
) -> list[DesiredFile]:
    """Return what a container sees at ``/run/backendai``; ``follows`` are the variables that are derived.

    ``infiniband`` are the agent's device nodes of that kind.
    """
    plan = held.plan
    known = known_hosts(plan.kernels, contents.keys)
    allowed = authorized_keys(kernel, plan.kernels, contents.keys, contents.user_keys)
    scripts = {"command": plan.command if plan.runs_command(kernel.hostname) else "", "bootstrap": contents.bootstrap}
    scripts |= {f"apps/{app.name}": app.command for app in plan.apps if kernel.rank == 0}
    pinned = held.pinned.get(kernel.hostname, PinnedResources())
    nodes = device_nodes([*pinned.device_ids, *(infiniband if plan.infiniband else ())])
    devices = [DesiredFile(folder / "devices", "".join(f"{path}\n" for path in nodes))] if nodes else []
    listening = ports(plan.kernels)
    shared = [DesiredFile(folder / "ports", listening)] if listening else []
    return [
        DesiredFile(folder / "hosts", contents.hosts, mode=0o644),
        DesiredFile(folder / "environment", environment_text(contents.environments[kernel.hostname]), secret=True),
        DesiredFile(folder / "derived", "".join(f"{name}\n" for name in REDERIVED_VARIABLES if name in follows)),
        DesiredFile(folder / "ssh" / "config", contents.ssh_config),
        DesiredFile(folder / "ssh" / "known_hosts", known),
        DesiredFile(folder / "ssh" / "authorized_keys", allowed),
        *(DesiredFile(folder / name, text, secret=True) for name, text in scripts.items() if text),
        *devices,
        *shared,
    ]


def _ssh_digest(plan: SessionPlan, kernel: Kernel, contents: RenderedFiles) -> str:
    """Return what identifies the SSH files: containers copy them when they start, so other files want another start."""
    allowed = authorized_keys(kernel, plan.kernels, contents.keys, contents.user_keys)
    text = "\0".join((known_hosts(plan.kernels, contents.keys), allowed, contents.ssh_config))
    return hashlib.sha256(text.encode()).hexdigest()


def _container(
    held: LocalSession, kernel: Kernel, given: dict[str, str], image: Image, folder: str, kit: str, default_network: str
) -> containers.Container:
    plan, pinned = held.plan, held.pinned.get(kernel.hostname, PinnedResources())
    # On the agent's own network everything is where gateways reach it already.
    published = plan.published if kernel.rank == 0 and not plan.shares_host_network else ()
    mounts = (f"{one.source}:{one.target}:{'ro' if one.read_only else 'rw'}" for one in plan.mounts)
    return containers.Container(
        name=kernel.container,
        hostname=kernel.hostname,
        image=kernel.image,
        argv=image.argv,
        explicit_environment=given,
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
        overlay=plan.network is not None and plan.network.swarm_manager is not None,
        published=tuple((one.port, one.address, one.host_port) for one in published),
        labels=_labels(plan, kernel, pinned, image.digest),
    )


def _labels(plan: SessionPlan, kernel: Kernel, pinned: PinnedResources, digest: str) -> dict[str, str]:
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
