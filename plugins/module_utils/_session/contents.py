# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Computes the desired state of a session on an agent: files, network and containers."""

from __future__ import annotations

import dataclasses
import hashlib
import shlex
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from .._docker import labels, networks
from .._docker.container import FILE_LOG_DRIVERS, Bind, Container, LogConfig
from .._docker.images import Image
from .._host.files import DesiredFile
from .._host.kit import BOUND_FILES
from .._host.local_session import LocalSession
from .._host.store import Store
from .._model.accounts import HOME, LOGIN_SHELL, group_text, passwd_text
from .._model.devices import PinnedResources, device_nodes
from .._model.environment import (
    REDERIVED_VARIABLES,
    derived_variables,
    environment_text,
    hostfile,
    interface_variables,
    threads,
)
from .._model.held_session import PublicKeys
from .._model.image_look import ImageLook
from .._model.limits import DEFAULT_LIMITS, ContainerLimits
from .._model.plan import Kernel, SessionPlan
from .._model.session import MAIN1, SSH_PORT, STOP_GRACE, App
from .._model.sshd import sshd_config
from .host_capabilities import HostCapabilities
from .session_folder import READABLE, device_names


def known_hosts(kernels: Iterable[Kernel], keys: Mapping[str, PublicKeys]) -> str:
    """Return a complete ``known_hosts``: the host key of every container under its name and address."""
    return "".join(f"{_names(kernel)} {keys[kernel.hostname].host}\n" for kernel in kernels)


def ssh_ports_file(kernels: Iterable[Kernel]) -> str:
    """Return the sshds that listen on their agents' networks, as lines of ``hostname address port``."""
    return "".join(
        f"{kernel.hostname} {kernel.address} {kernel.ssh_port}\n" for kernel in kernels if kernel.ssh_port != SSH_PORT
    )


def _names(kernel: Kernel) -> str:
    """Return the names of a container in ``known_hosts``; with a port other than 22, also as ``[name]:port``.

    Its hostname is its alias in the configuration of ssh.
    """
    names = [name for name in (kernel.hostname, kernel.address) if name]
    if kernel.ssh_port != SSH_PORT:
        names = [kernel.hostname, *(f"[{name}]:{kernel.ssh_port}" for name in names)]
    return ",".join(names)


def authorized_keys(kernels: Iterable[Kernel], keys: Mapping[str, PublicKeys], users: Sequence[str]) -> str:
    """Return the ``authorized_keys`` of every container: all containers of the session, and the user's own keys.

    The network lets users reach main1 only; from there, ``ProxyJump`` leads to the others.
    """
    peers = [f"{keys[peer.hostname].user} work@{peer.hostname}" for peer in kernels]
    return "".join(f"{line}\n" for line in [*peers, *users])


class RenderedFiles(NamedTuple):
    """The rendered templates, and the keys of all containers.

    The same for every agent except ``environments``, which are those of the containers here, by hostname.
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


class DesiredState(NamedTuple):
    """The desired state of a slice, by adapter."""

    files: list[DesiredFile]
    network: networks.BridgeNetwork | None
    containers: list[Container]


def desired_slice(
    store: Store,
    session: LocalSession,
    contents: RenderedFiles,
    images: Mapping[str, Image],
    default_network: str,
    host: HostCapabilities,
    limits: ContainerLimits = DEFAULT_LIMITS,
) -> DesiredState:
    """Return the desired state of a session on this agent, given its images by name.

    It reads nothing from the host but the paths of the kit and of homes.
    """
    files: list[DesiredFile] = []
    desired = []
    for kernel in session.kernels:
        folder = store.kernel_folder(session.plan.id, kernel.hostname)
        environment, image = contents.environments[kernel.hostname], images[kernel.image]
        derived = derived_variables(image.environment, environment)
        files += _files(folder, session, kernel, contents, image, derived)
        container = _container(session, kernel, environment, image, store.kit(), default_network)
        container = dataclasses.replace(
            container,
            binds=_binds(store, session.plan, kernel),
            image_binds=_image_binds(store, session.plan, kernel, image.look),
            leads=image.look.leads,
            recursive=host.recursive,
        )
        infiniband = host.infiniband if session.plan.infiniband else None
        nodes = dict.fromkeys(node for device in container.devices for node in host.gpu_nodes.get(device, ()))
        container = dataclasses.replace(container, ulimits=host.ulimits, cdi_gpus=host.cdi_gpus, infiniband=infiniband)
        own_nodes = device_names(folder, device_nodes([*container.devices, *(infiniband or ())]))
        container = dataclasses.replace(container, gpu_nodes=tuple(nodes), nodes=own_nodes)
        pids, log = limits.pids_of(len(container.cpus)), log_config(host.log_driver, limits)
        container = dataclasses.replace(container, pids=pids, log=log)
        desired.append(dataclasses.replace(container, ssh_files=_ssh_digest(session.plan, contents)))
    return DesiredState(files, networks.desired_network(session.plan), desired)


def log_config(driver: str, limits: ContainerLimits) -> LogConfig | None:
    """Return the logging configuration of a container where ``driver`` is the engine's default; ``None`` for that."""
    if driver not in FILE_LOG_DRIVERS or not limits.log_bytes:
        return None
    return LogConfig(driver, limits.log_bytes, limits.log_files)


def _files(
    folder: Path,
    session: LocalSession,
    kernel: Kernel,
    contents: RenderedFiles,
    image: Image,
    derived: Collection[str],
) -> list[DesiredFile]:
    """Return a container's files, which its user may read; ``derived`` are its derived variables."""
    plan = session.plan
    main = kernel.rank == 0
    bound = {
        "hosts": contents.hosts,
        "passwd": passwd_text(image.look.passwd, plan.uid, plan.gid, LOGIN_SHELL),
        "group": group_text(image.look.group, plan.gid, {group.number: group.name for group in plan.groups}),
    }
    files = {
        "derived": "".join(f"{name}\n" for name in REDERIVED_VARIABLES if name in derived),
        "hostfile": hostfile(plan),
        "sshd_config": sshd_config(kernel),
        "ssh/config": contents.ssh_config,
        "ssh/known_hosts": known_hosts(plan.kernels, contents.keys),
        "ssh/authorized_keys": authorized_keys(plan.kernels, contents.keys, contents.user_keys),
    }
    optional = {
        "folder": "" if image.folder == "/" else f"{image.folder}\n",
        "grace": "" if plan.stop_grace == STOP_GRACE else f"{plan.stop_grace}\n",
        "ports": ssh_ports_file(plan.kernels),
        "programs": "".join(f"{app.program} {app.name}\n" for app in plan.apps if main and app.program),
    }
    secret = {
        "environment": environment_text(contents.environments[kernel.hostname]),
        "command": plan.command if plan.runs_command(kernel.hostname) else "",
        "bootstrap": contents.bootstrap,
        "stop-command": plan.stop_command if kernel.hostname == MAIN1 else "",
        **{f"apps/{app.name}": _app_script(plan, app) for app in plan.apps if main},
    }
    return [
        *(DesiredFile(folder / name, text, mode=0o644, in_place=True) for name, text in bound.items()),
        *(DesiredFile(folder / name, text, mode=READABLE) for name, text in files.items()),
        *(DesiredFile(folder / name, text, mode=READABLE) for name, text in optional.items() if text),
        *(DesiredFile(folder / name, text, mode=READABLE, secret=True) for name, text in secret.items() if text),
    ]


def _binds(store: Store, plan: SessionPlan, kernel: Kernel) -> tuple[Bind, ...]:
    """Return what a container mounts of its session, with the folders of its plan."""
    folder, own = store.kernel_folder(plan.id, kernel.hostname), store.homes.folder(plan.id, kernel.hostname)
    return (
        Bind(str(folder), "/run/backendai"),
        *(Bind(str(folder / name), f"/etc/{name}") for name in ("hosts", "passwd", "group")),
        Bind(str(own / "own"), "/var/lib/backendai", read_only=False),
        Bind(str(own / "log"), "/var/log/backendai", read_only=False),
        *(Bind(mount.source, mount.target, mount.read_only) for mount in plan.mounts),
    )


def _image_binds(store: Store, plan: SessionPlan, kernel: Kernel, look: ImageLook) -> tuple[Bind, ...]:
    """Return what a container mounts because of what its image has or lacks."""
    kit = store.kit()
    files = [Bind(f"{kit}/{name}", target) for name, targets in BOUND_FILES.items() for target in targets]
    clients = (Bind(f"{kit}/bin/{name}", f"/usr/bin/{name}") for name in look.clients)
    return (*files, *clients, *_home_bind(store, plan, kernel, look))


def _home_bind(store: Store, plan: SessionPlan, kernel: Kernel, look: ImageLook) -> Iterator[Bind]:
    if not look.keeps_home(plan.uid, plan.gid, plan.group_numbers):
        yield Bind(str(store.homes.home(plan.id, kernel.hostname)), HOME, read_only=False)


def _app_script(plan: SessionPlan, app: App) -> str:
    """Return the script that runs an app, which learns where browsers find it; empty without a command."""
    origins = ",".join(origin for port in plan.published if port.name == app.name for origin in port.origins)
    variables = {"BACKENDAI_APP_BASE_URL": app.base_url(plan.name), "BACKENDAI_APP_ORIGINS": origins}
    exports = " ".join(f"{name}={shlex.quote(value)}" for name, value in variables.items())
    return f"export {exports}\n{app.command}" if app.command else ""


def _ssh_digest(plan: SessionPlan, contents: RenderedFiles) -> str:
    """Return a digest of the SSH files: containers copy them when they start, so a change requires a restart."""
    allowed = authorized_keys(plan.kernels, contents.keys, contents.user_keys)
    text = "\0".join((known_hosts(plan.kernels, contents.keys), allowed, contents.ssh_config))
    return hashlib.sha256(text.encode()).hexdigest()


def _container(
    session: LocalSession,
    kernel: Kernel,
    environment: dict[str, str],
    image: Image,
    kit: str,
    default_network: str,
) -> Container:
    plan, pinned = session.plan, session.pinned.get(kernel.hostname, PinnedResources())
    # On the agent's own network gateways reach all ports without publishing.
    published = plan.published if kernel.rank == 0 and not plan.shares_host_network else ()
    return Container(
        name=kernel.container,
        hostname=kernel.hostname,
        image=kernel.image,
        argv=image.argv,
        explicit_environment=environment,
        image_environment=image.environment,
        stale=image.derived,
        kit=kit,
        uid=plan.uid,
        gid=plan.gid,
        groups=plan.group_numbers,
        binds=(),
        cpus=tuple(pinned.cpus),
        devices=tuple(pinned.device_ids),
        memory=kernel.resources["mem"],
        shm_size=kernel.resources.get("shmem"),
        default_network=default_network,
        network=plan.network.engine_network if plan.network else None,
        address=kernel.address,
        mac=kernel.mac if plan.network and plan.network.engine_network else None,
        interface=plan.interface_on(kernel.agent),
        networks=plan.networks,
        no_new_privileges=plan.no_new_privileges,
        published=tuple((mapping.port, mapping.address, mapping.host_port) for mapping in published),
        labels=_labels(plan, kernel, session.nonce, image),
        omp_threads=threads(kernel),
        interface_names=interface_variables(plan),
    )


def _labels(plan: SessionPlan, kernel: Kernel, nonce: str, image: Image) -> dict[str, str]:
    return {
        labels.OWNER: labels.OWNER_VALUE,
        labels.SESSION_ID: plan.id,
        labels.SESSION_NAME: plan.name,
        labels.KERNEL_ID: kernel.id,
        labels.HOSTNAME: kernel.hostname,
        labels.NONCE: nonce,
        labels.IMAGE_DIGEST: image.digest,
        labels.FOLDER: image.folder,
    }
