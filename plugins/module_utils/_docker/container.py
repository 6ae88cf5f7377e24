# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A container as a session wants it, and how the engine is asked to create it."""

from __future__ import annotations

import dataclasses
import json
import re
from typing import Any, NamedTuple

from .._model.devices import device_nodes
from .._model.environment import build_environment, derived_variables, is_nvidia_switch
from .._model.network import HOST_NETWORK, SESSION_INTERFACE
from . import labels
from .api_version import ENDPOINT_MAC, speaks
from .derived_variables import describe_derived
from .sdk import docker

# What no-new-privileges leaves in the bounding set. No process can get these. But without the first, the kernel
# executes no program that has it by its file, such as Debian's ping; without the second, the engine's filter of system
# calls forbids mbind and set_mempolicy, which bind memory to NUMA nodes.
BOUNDING = ["NET_RAW", "SYS_NICE"]

# Engines before this one, such as that of Debian 11, make all of it inheritable, too (CVE-2022-24769), and processes of
# sessions have no capability of any kind: there, nothing is left in it. Their API is older than that of 23.0.
_NOT_INHERITABLE, _NEWER_API = (20, 10, 14), "1.42"

# With it, a setuid program of the image could send any frame over InfiniBand: raw packet queue pairs pass no firewall.
FORBIDDEN_WITH_INFINIBAND = ["NET_RAW"]

KIT = "/opt/backendai"
ENTRYPOINT = [f"{KIT}/bin/entrypoint"]

# What of a container may change while it runs, or when it starts again.
VOLATILE = (
    *("argv", "image_environment", "kit", "labels", "ulimits", "cdi_gpus", "gpu_nodes", "infiniband", "image_binds"),
    *("sources", "leads", "recursive", "nodes", "groups", "pids", "log", "omp_threads", "stale"),
    "interface_names",
)

# Nothing inside ends the first process but this signal, so that signals to all processes of a user are for others. The
# entrypoint forwards it to them, whatever the image's stop signal.
STOP_SIGNAL = "SIGPWR"

# The log drivers whose files grow without a limit unless they have one. Others keep no files, or limit them.
FILE_LOG_DRIVERS = ("json-file", "local")


@dataclasses.dataclass(frozen=True)
class LogConfig:
    """The logging configuration of a container: at most ``files`` files of ``max_bytes`` by this ``driver``."""

    driver: str
    max_bytes: int
    files: int


class Bind(NamedTuple):
    """A file or folder of the agent that a container has at ``target``.

    With ``recursive`` the engine makes file systems below a read-only folder read-only, too.
    """

    source: str
    target: str
    read_only: bool = True
    recursive: bool = False


@dataclasses.dataclass(frozen=True)
class Container:
    """The desired state of a container. ``memory`` and ``shm_size`` are in bytes, ``cpus`` are core numbers.

    Without ``shm_size`` half of the memory may be shared memory, as in any tmpfs. ``omp_threads`` is the default of
    ``OMP_NUM_THREADS``, 0 for none.

    ``devices`` are the ids of its exclusive devices. ``infiniband`` are the InfiniBand device nodes, which containers
    share, ``None`` if it has none. ``network``, ``address`` and ``mac`` are those of the session network; without it
    the container has only the agent's default network, and on the agent's own network (``HOST_NETWORK``) it has no
    other. ``interface`` is its session interface, ``interface_names`` are the variables that name it, ``networks`` are
    the session's networks.

    ``explicit_environment`` is set by the session; it may contain secrets of the user and is never shown.
    ``image_environment`` and ``argv`` are the environment and command of the image, ``stale`` are variables that it has
    and that are not its own. ``kit`` is the folder of the
    runtime kit, ``ssh_files`` the digest of the files that the container copies when it starts. ``ulimits`` are the
    limits of its processes, -1 for none, ``cdi_gpus`` all GPUs on the agent that have a CDI name, and ``gpu_nodes`` the
    device nodes of its own. ``published`` are (port of the container, address of the agent, port of the agent).

    It runs as ``uid`` and ``gid``, with these supplementary ``groups``. ``binds`` are the session's files and the
    folders that it mounts, ``image_binds`` what else it gets over files that its image has or lacks. ``sources`` are
    the paths that the engine gets for folders that the session mounts, and ``leads`` those for targets that are links
    of the image; with ``recursive`` the engine can make all below a read-only folder read-only. ``nodes`` are the
    device nodes that the agent has made for it, by path inside.

    ``pids`` is the limit of processes and threads, ``log`` is its logging configuration; with ``None`` the engine's own
    settings apply. With ``no_new_privileges`` nothing in it can get a capability or become another user.
    """

    name: str
    hostname: str
    image: str
    explicit_environment: dict[str, str]
    image_environment: dict[str, str]
    argv: tuple[str, ...]
    kit: str
    uid: int
    gid: int
    binds: tuple[Bind, ...]
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
    published: tuple[tuple[int, str, int], ...] = ()
    ulimits: dict[str, int] = dataclasses.field(default_factory=dict)
    cdi_gpus: frozenset[str] = frozenset()
    gpu_nodes: tuple[str, ...] = ()
    infiniband: tuple[str, ...] | None = None
    groups: tuple[int, ...] = ()
    image_binds: tuple[Bind, ...] = ()
    sources: dict[str, str] = dataclasses.field(default_factory=dict)
    leads: dict[str, str] = dataclasses.field(default_factory=dict)
    recursive: bool = False
    nodes: dict[str, str] = dataclasses.field(default_factory=dict)
    pids: int | None = None
    log: LogConfig | None = None
    no_new_privileges: bool = True
    omp_threads: int = 0
    interface_names: tuple[str, ...] = ()
    stale: frozenset[str] = frozenset()

    def digest(self) -> str:
        """Return a digest of all properties that cannot be changed after the container is created.

        Running containers are not replaced because of a newer kit, a moved image tag, groups of the user, or changed
        limits, GPU assignment or InfiniBand device nodes of the agent.
        """
        properties = dataclasses.asdict(self)
        for name in VOLATILE:
            del properties[name]
        return labels.content_digest({**properties, "infiniband": self.infiniband is not None})

    @property
    def user(self) -> str:
        """The user and the group as numbers: no file of the image says who that is."""
        return f"{self.uid}:{self.gid}"

    @property
    def all_binds(self) -> list[Bind]:
        """All that the engine mounts, with the paths that it gets."""
        return [
            Bind(
                self.sources.get(bind.source, bind.source),
                self.leads.get(bind.target, bind.target),
                bind.read_only,
                # Ours have nothing mounted below them, and not every kernel of such an engine knows it.
                recursive=self.recursive and bind.read_only and bind.source in self.sources,
            )
            for bind in (Bind(self.kit, KIT), *self.binds, *self.image_binds)
        ]

    @property
    def description(self) -> str:
        """What an operator wants to know of it, on one line."""
        cpus = ",".join(map(str, self.cpus))
        devices = "".join(f", device {device}" for device in (*self.devices, *(self.infiniband or ())))
        return f"image {self.image}, address {self.address or '-'}, cores {cpus}, memory {self.memory}{devices}"


def create_container(client: docker.APIClient, container: Container) -> str:
    """Create a container, and return its id.

    It gets its first network, and is then connected to the other: API 1.41 accepts only one at creation.
    """
    (first, first_address), *others = _network_attachments(container)
    has_endpoint_mac = speaks(client, ENDPOINT_MAC)
    endpoint = _endpoint(first_address, container.mac if has_endpoint_mac else None)
    config = {
        "Image": container.image,
        "Hostname": container.hostname,
        "Entrypoint": ENTRYPOINT,
        "Cmd": list(container.argv),
        "User": container.user,
        # That of the image would be made by root, through links that its user may have put.
        "WorkingDir": "/",
        # That of the image would be run beside the session's own checks, and outside of its environment.
        "Healthcheck": {"Test": ["NONE"]},
        "StopSignal": STOP_SIGNAL,
        "Env": [
            name if value is None else f"{name}={value}" for name, value in _container_environment(container).items()
        ],
        "Labels": _labels(container),
        "ExposedPorts": {_tcp(port): {} for port, _address, _host_port in container.published},
        "HostConfig": _host_config(client, container, first),
        "NetworkingConfig": {"EndpointsConfig": {first: endpoint} if endpoint else {}},
        # Newer engines refuse it here, and older ones know it nowhere else.
        **({} if has_endpoint_mac or not container.mac else {"MacAddress": container.mac}),
    }
    container_id = client.create_container_from_config(config, container.name)["Id"]
    for network, _any_address in others:
        client.connect_container_to_network(container_id, network)
    return str(container_id)


def _host_config(client: docker.APIClient, container: Container, network: str) -> dict[str, Any]:
    """Return what the engine gives a container, whose first network is ``network``; what is ``None`` is its default."""
    config = {
        "NetworkMode": network,
        # With userns-remap of the engine, the user of the container would be another one to the files that it gets.
        "UsernsMode": "host",
        "Mounts": [_mount(bind) for bind in container.all_binds],
        # The entrypoint adopts processes, and starts again what somebody has killed.
        "Init": False,
        "GroupAdd": list(map(str, container.groups)),
        "CpusetCpus": ",".join(map(str, container.cpus)),
        "Devices": _device_mappings(container),
        "DeviceRequests": _gpu_requests(container),
        "CapAdd": _bounding(client) if container.no_new_privileges else None,
        "CapDrop": ["ALL"]
        if container.no_new_privileges
        else FORBIDDEN_WITH_INFINIBAND
        if container.infiniband is not None
        else None,
        "SecurityOpt": ["no-new-privileges"] if container.no_new_privileges else None,
        "Ulimits": _ulimits(container),
        "Memory": container.memory,
        # The limit of memory and swap together: equal to the memory limit, so no swap.
        "MemorySwap": container.memory,
        # The engine's default of 64 MiB is too little for the workers of data loaders, and for Ray. What is used
        # counts towards the memory limit.
        "ShmSize": container.shm_size or container.memory // 2,
        "PidsLimit": container.pids,
        "LogConfig": _log_config(container.log),
        "RestartPolicy": {"Name": "no"},
        "PortBindings": {
            _tcp(port): [{"HostIp": address, "HostPort": str(host_port)}]
            for port, address, host_port in container.published
        },
    }
    return {name: value for name, value in config.items() if value is not None}


def _tcp(port: int) -> str:
    return f"{port}/tcp"


def _bounding(client: docker.APIClient) -> list[str] | None:
    """Return what no-new-privileges leaves in the bounding set with this engine."""
    if speaks(client, _NEWER_API):
        return BOUNDING
    numbers = re.findall(r"\d+", str(client.version().get("Version")))[:3]
    return BOUNDING if tuple(map(int, numbers)) >= _NOT_INHERITABLE else None


def _endpoint(address: str | None, mac: str | None) -> dict[str, Any]:
    """Return how a container joins its first network.

    The MAC address is set when the container is created: until API 1.54, engines ignore that of a later connection.
    """
    endpoint: dict[str, Any] = {"IPAMConfig": {"IPv4Address": address}} if address else {}
    return {**endpoint, "MacAddress": mac} if mac else endpoint


def _mount(bind: Bind) -> dict[str, Any]:
    """Return a bind mount; the engine refuses a missing source of it.

    The engine's default is that mounts that the agent gets later do not appear in it, but for sources beside its own
    data.
    """
    mount = {"Type": "bind", "Source": bind.source, "Target": bind.target, "ReadOnly": bind.read_only}
    options = {"Propagation": "rprivate", "ReadOnlyForceRecursive": True}
    return {**mount, "BindOptions": options} if bind.recursive else mount


def _labels(container: Container) -> dict[str, str]:
    """Return all labels that are read of a container: one that it lacked would be its image's, which may be ours."""
    return {
        **container.labels,
        labels.DIGEST: container.digest(),
        labels.DERIVED: describe_derived(_derived(container)),
        labels.GROUPS: json.dumps(container.groups),
        labels.INFINIBAND: json.dumps(container.infiniband or ()),
    }


def _network_attachments(container: Container) -> list[tuple[str, str | None]]:
    """Return the networks of a container in the order in which it joins them, each with its address there."""
    default = (container.default_network, None)
    if container.network is None:
        return [default]
    if container.network == HOST_NETWORK:
        return [(HOST_NETWORK, None)]
    return [(container.network, container.address), default]


def _nvidia_gpus(container: Container) -> list[str]:
    return [device for device in container.devices if not device_nodes([device])]


def _device_mappings(container: Container) -> list[Any]:
    """Return the device nodes of a container.

    Where NVIDIA's hook gives GPUs, runc does not know of their nodes, and a later change of the container's control
    group would take them away; so they are requested, too, as NVIDIA advises. CDI requests them by itself.
    """
    by_hook = () if _uses_cdi(container) else container.gpu_nodes
    paths = device_nodes([*container.devices, *(container.infiniband or ()), *by_hook])
    return [
        {"PathOnHost": container.nodes.get(path, path), "PathInContainer": path, "CgroupPermissions": "rwm"}
        for path in paths
    ]


def _ulimits(container: Container) -> list[Any]:
    return [{"Name": name, "Soft": limit, "Hard": limit} for name, limit in container.ulimits.items()]


def _log_config(log: LogConfig | None) -> dict[str, Any] | None:
    """Return the logging configuration; ``None`` for the engine's default."""
    if log is None:
        return None
    config = {"max-size": str(log.max_bytes), "max-file": str(log.files)}
    # Only files that are no longer written are compressed: with a single one, drivers refuse what may be their default.
    compressed = {"compress": "false"} if log.files == 1 else {}
    return {"Type": log.driver, "Config": {**config, **compressed}}


def _gpu_requests(container: Container) -> list[dict[str, Any]]:
    """Return the request for the GPUs of a container, by CDI or NVIDIA's runtime."""
    gpus = _nvidia_gpus(container)
    if not gpus:
        return []
    by_name = {"Driver": "cdi", "DeviceIDs": [f"nvidia.com/gpu={gpu}" for gpu in gpus], "Capabilities": []}
    by_hook = {"Driver": "nvidia", "DeviceIDs": gpus, "Capabilities": [["gpu"]]}
    return [{"Count": 0, "Options": {}, **(by_name if _uses_cdi(container) else by_hook)}]


def _uses_cdi(container: Container) -> bool:
    """Return whether all GPUs of a container have a CDI name."""
    return container.cdi_gpus.issuperset(_nvidia_gpus(container))


def _derived(container: Container) -> dict[str, str]:
    """Return the variables that are derived for a container."""
    return derived_variables(
        container.image_environment,
        container.explicit_environment,
        container.interface,
        container.networks,
        container.omp_threads,
        container.interface_names,
    )


def _container_environment(container: Container) -> dict[str, Any]:
    """Return the whole environment of a container; what is ``None`` is taken away from that of the image.

    If NVIDIA's runtime is the engine's default, CUDA images and users that set ``NVIDIA_VISIBLE_DEVICES`` would get all
    GPUs, so the variable is set to the container's own GPUs wherever it could have an effect. With CDI it is ``void``:
    GPUs must not be requested from that runtime too.

    It also reads switches, such as ``NVIDIA_MOFED``, which adds InfiniBand to a container: none of the image or of the
    user reaches it. What an image sets can only be made empty.
    """
    environment = build_environment(
        container.image_environment,
        container.explicit_environment,
        container.interface,
        container.networks,
        container.omp_threads,
        container.interface_names,
    )
    names = [*container.image_environment, *environment]
    environment |= dict.fromkeys(filter(is_nvidia_switch, names), "")
    gpus = _nvidia_gpus(container)
    if gpus or environment.keys() & {"NVIDIA_VISIBLE_DEVICES", "CUDA_VERSION"}:
        environment["NVIDIA_VISIBLE_DEVICES"] = "void" if _uses_cdi(container) else ",".join(gpus)
    return {**dict.fromkeys(container.stale), **environment}
