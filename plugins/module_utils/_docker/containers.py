# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The containers of a session on one agent: read what is, compute the difference, apply it to all of them at once."""

from __future__ import annotations

import calendar
import concurrent.futures
import dataclasses
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from .._model.change import Change
from .._model.devices import device_nodes
from .._model.environment import build_environment
from .._model.network import HOST_NETWORK, SESSION_INTERFACE
from . import labels
from .sdk import docker

# How many containers the engine is asked for at once; more only queue in the engine.
PARALLEL = 8

# What containers may beside the engine's own list: lock memory for RDMA, and place it near their cores.
CAPABILITIES = ["IPC_LOCK", "SYS_NICE"]

ENTRYPOINT = ["/opt/backendai/bin/entrypoint"]


@dataclasses.dataclass(frozen=True)
class Container:
    """A container as it should be. ``memory`` and ``shm_size`` are in bytes, ``cpus`` are the numbers of its cores.

    ``devices`` are the ids of the devices that it has to itself, and the folders of those that it shares. ``network``
    is the session's, with the container's address and MAC there; without it the container has the agent's default
    network alone. ``given`` is the environment that the session sets; it may hold the user's secrets and is never
    shown. ``image_environment`` is what the image brings and ``argv`` what it would run by itself, ``kit`` the
    folder of the runtime kit, ``ssh_files`` the digest of what the container copies from its folder when it
    starts, ``interface`` the one at which it meets the others. On the agent's own network (``HOST_NETWORK``) it
    has no other. ``networks`` are those at which all meet. ``overlay`` says that the session's network is a
    swarm's. ``ulimits`` are the limits of its processes, -1 for none, and ``cdi_gpus`` the GPUs that the engine
    knows by CDI, the container's or not. ``published`` are ports that others reach: each is one of the container's,
    with the address and the port of its agent that lead there.
    """

    name: str
    hostname: str
    image: str
    explicit_environment: dict[str, str]
    image_environment: dict[str, str]
    argv: tuple[str, ...]
    kit: str
    binds: tuple[str, ...]
    cpus: tuple[int, ...]
    devices: tuple[str, ...]
    memory: int
    shm_size: int | None
    default_network: str
    network: str | None
    address: str | None
    mac: str | None
    labels: dict[str, str]
    ssh_files: str = ""
    interface: str = SESSION_INTERFACE
    networks: str = ""
    overlay: bool = False
    published: tuple[tuple[int, str, int], ...] = ()
    ulimits: dict[str, int] = dataclasses.field(default_factory=dict)
    cdi_gpus: frozenset[str] = frozenset()

    def digest(self) -> str:
        """Return what identifies everything that cannot be changed once the container is made.

        A newer kit, a tag that names another image today, or an agent that could give other limits, or its GPUs in
        another way, is no reason to end a running container.
        """
        made_from = dataclasses.asdict(self)
        for later in ("argv", "image_environment", "kit", "labels", "ulimits", "cdi_gpus"):
            del made_from[later]
        if not self.published:
            # As containers that an older version made.
            del made_from["published"]
        return labels.content_digest(made_from)


@dataclasses.dataclass(frozen=True)
class ContainerStep:
    """What must happen to one container: make it in place of the ``existing`` one, or only start that."""

    desired: Container
    change: Change
    existing: str | None
    create: bool


def find_containers(client: docker.APIClient, session_id: str | None = None) -> list[dict[str, Any]]:
    """Return the containers of one session, or of all, as the engine lists them; stopped ones too."""
    return list(client.containers(all=True, filters=labels.label_filter(session_id)))


def cdi_folders(client: docker.APIClient) -> list[str]:
    """Return the folders where the engine looks for what CDI names; none where it knows no CDI, or it is off."""
    return list(client.info().get("CDISpecDirs") or ())


def pid_of(client: docker.APIClient, container: str) -> int:
    """Return the first process of a container, by its number on the agent; 0 where it does not run."""
    return int(client.inspect_container(container)["State"]["Pid"])


def _parse_time(moment: str) -> int:
    """Return a moment as the engine writes it, in whole seconds since the epoch."""
    return calendar.timegm(time.strptime(moment[:19], "%Y-%m-%dT%H:%M:%S"))


def exit_status(client: docker.APIClient, container: str) -> tuple[int | None, int | None]:
    """Return a stopped container's exit code and the time of its end, in seconds since the epoch.

    Both are ``None`` where it was never started, or is gone by now.
    """
    try:
        state = client.inspect_container(container)["State"]
    except docker.errors.NotFound:
        return None, None
    if state["FinishedAt"].startswith("0001-"):
        return None, None
    return int(state["ExitCode"]), _parse_time(state["FinishedAt"])


def conflicting_names(client: docker.APIClient, names: Collection[str], session_id: str) -> list[str]:
    """Return those of the names that containers bear which are not of this session, whoever made them."""
    ours = {container["Id"] for container in find_containers(client, session_id)}
    others = (container for container in client.containers(all=True) if container["Id"] not in ours)
    return sorted(name for container in others for name in names if f"/{name}" in (container["Names"] or ()))


def plan_containers(
    existing: Sequence[dict[str, Any]], desired: Iterable[Container], unplugged: Mapping[str, str] | None = None
) -> list[ContainerStep]:
    """Return what must happen for the containers to be there as wanted, and running.

    ``unplugged`` names, by hostname, the interface that a running container has lost: it is made anew.
    """
    lost = unplugged or {}
    by_hostname = {entry["Labels"].get(labels.HOSTNAME): entry for entry in existing}
    steps = []
    for container in desired:
        subject, after = f"container {container.name}", f"running, {_describe(container)}"
        current = by_hostname.get(container.hostname)
        if current is None:
            steps.append(ContainerStep(container, Change(subject, None, after), None, True))
        elif current["Labels"].get(labels.DIGEST) != container.digest():
            steps.append(
                ContainerStep(
                    container, Change(subject, f"{current['State']}, made differently", after), current["Id"], True
                )
            )
        elif container.hostname in lost:
            before = f"{current['State']}, without {lost[container.hostname]}"
            steps.append(ContainerStep(container, Change(subject, before, after), current["Id"], True))
        elif current["State"] != "running":
            steps.append(ContainerStep(container, Change(subject, current["State"], after), current["Id"], False))
    return steps


def apply_containers(client: docker.APIClient, steps: Sequence[ContainerStep]) -> None:
    """Take all steps, several at once. The first error is raised after every step has ended."""
    _in_parallel(lambda step: _apply_step(client, step), steps)


def start_stopped(
    client: docker.APIClient, session_id: str, hostnames: Collection[str], timeout: float = 0.0
) -> list[Change]:
    """Start those of a session's containers that do not run, several at once, and return what was started.

    What the engine refuses is tried again for ``patience`` seconds.
    """
    deadline = time.monotonic() + timeout
    stopped = [
        container
        for container in find_containers(client, session_id)
        if container["Labels"].get(labels.HOSTNAME) in hostnames and container["State"] != "running"
    ]
    _in_parallel(lambda container: _start_until(client, container["Id"], deadline), stopped)
    return [
        Change(f"container {container['Names'][0].lstrip('/')}", container["State"], "running") for container in stopped
    ]


def remove_containers(client: docker.APIClient, existing: Sequence[dict[str, Any]]) -> list[Change]:
    """Remove containers, running or not, several at once, and return what was removed."""
    _in_parallel(lambda container: _remove(client, container["Id"]), existing)
    return [
        Change(f"container {container['Names'][0].lstrip('/')}", container["State"], None) for container in existing
    ]


def _start_until(client: docker.APIClient, container: str, deadline: float) -> None:
    while not _try_start(client, container, last=time.monotonic() >= deadline):
        time.sleep(0.5)


def _try_start(client: docker.APIClient, container: str, *, last: bool) -> bool:
    """Return whether a container starts; what the engine refuses is raised where this is the ``last`` try."""
    try:
        client.start(container)
    except docker.errors.APIError:
        if last:
            raise
        return False
    return True


def _apply_step(client: docker.APIClient, step: ContainerStep) -> None:
    if step.existing and not step.create:
        client.start(step.existing)
        return
    if step.existing:
        _remove(client, step.existing)
    client.start(_create(client, step.desired))


def _create(client: docker.APIClient, container: Container) -> str:
    """Make the container with its first network, then let it join the other: API 1.41 takes one at a time."""
    (first, address), *others = _network_attachments(container)
    endpoint = client.create_endpoint_config(ipv4_address=address) if address else None
    container_id = client.create_container(
        container.image,
        name=container.name,
        hostname=container.hostname,
        entrypoint=ENTRYPOINT,
        command=list(container.argv),
        user="0:0",
        # The entrypoint passes it on to everything in the container, whatever the image would rather have.
        stop_signal="SIGTERM",
        environment=_container_environment(container),
        labels={**container.labels, labels.DIGEST: container.digest()},
        mac_address=container.mac,
        ports=[port for port, _address, _host_port in container.published],
        networking_config={"EndpointsConfig": {first: endpoint}} if endpoint else None,
        host_config=client.create_host_config(
            network_mode=first,
            binds=[f"{container.kit}:/opt/backendai:ro", *container.binds],
            init=True,
            cpuset_cpus=",".join(map(str, container.cpus)),
            devices=_device_mappings(container),
            device_requests=_gpu_request(container),
            cap_add=CAPABILITIES,
            ulimits=_ulimits(container),
            mem_limit=container.memory,
            # The same limit with swap included: no swap.
            memswap_limit=container.memory,
            shm_size=container.shm_size,
            restart_policy={"Name": "no"},
            port_bindings={port: (address, host_port) for port, address, host_port in container.published},
        ),
    )["Id"]
    for network, its_address in others:
        client.connect_container_to_network(container_id, network, ipv4_address=its_address)
    return str(container_id)


def _network_attachments(container: Container) -> list[tuple[str, str | None]]:
    """Return the networks of a container in the order in which it joins them, each with its address there.

    An overlay is the second: engine 26.1 never starts a container again whose first one is an overlay that the host has
    lost, as all have when the engine starts.
    """
    default = (container.default_network, None)
    if container.network is None:
        return [default]
    if container.network == HOST_NETWORK:
        return [(HOST_NETWORK, None)]
    session = (container.network, container.address)
    return [default, session] if container.overlay else [session, default]


def _nvidia_gpus(container: Container) -> list[str]:
    return [device for device in container.devices if not device_nodes([device])]


def _device_mappings(container: Container) -> list[Any]:
    """Return the device nodes of a container as the engine takes them."""
    paths = device_nodes(container.devices)
    return [{"PathOnHost": path, "PathInContainer": path, "CgroupPermissions": "rwm"} for path in paths]


def _ulimits(container: Container) -> list[Any]:
    return [{"Name": name, "Soft": limit, "Hard": limit} for name, limit in container.ulimits.items()]


def _gpu_request(container: Container) -> list[Any] | None:
    """Return what asks for the GPUs of a container, by CDI or else of NVIDIA's runtime; ``None`` asks for none."""
    gpus = _nvidia_gpus(container)
    if gpus and _uses_cdi(container):
        return [{"Driver": "cdi", "DeviceIDs": [f"nvidia.com/gpu={gpu}" for gpu in gpus]}]
    return [{"Driver": "nvidia", "DeviceIDs": gpus, "Capabilities": [["gpu"]]}] if gpus else None


def _uses_cdi(container: Container) -> bool:
    """Return whether the engine knows all GPUs of a container by CDI."""
    return container.cdi_gpus.issuperset(_nvidia_gpus(container))


def _container_environment(container: Container) -> dict[str, str]:
    """Return the whole environment of a container.

    Where NVIDIA's runtime is the engine's default one, images with CUDA would be shown all GPUs, and so would a user
    who sets the variable that asks for them: it says what the container has, wherever it could count. What comes by CDI
    must not be asked of that runtime too.
    """
    environment = build_environment(
        container.image_environment, container.explicit_environment, container.interface, container.networks
    )
    gpus = _nvidia_gpus(container)
    if gpus or environment.keys() & {"NVIDIA_VISIBLE_DEVICES", "CUDA_VERSION"}:
        environment["NVIDIA_VISIBLE_DEVICES"] = "void" if _uses_cdi(container) else ",".join(gpus)
    return environment


def _remove(client: docker.APIClient, container: str) -> None:
    try:
        client.remove_container(container, force=True, v=True)
    except docker.errors.NotFound:
        return


def _in_parallel(act: Callable[[Any], None], things: Sequence[Any]) -> None:
    with concurrent.futures.ThreadPoolExecutor(PARALLEL) as pool:
        futures = [pool.submit(act, thing) for thing in things]
    for future in futures:
        future.result()


def _describe(container: Container) -> str:
    cpus = ",".join(map(str, container.cpus))
    devices = "".join(f", device {device}" for device in container.devices)
    return (
        f"image {container.image}, address {container.address or '-'}, cores {cpus}, memory {container.memory}{devices}"
    )
