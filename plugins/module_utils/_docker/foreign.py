# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What others have in a Docker engine that sessions use, as the engine says: labels are those of an image, too."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

from .._host.machine import parse_cpu_list
from .._host.nvidia import gpu_nodes
from .._model.devices import Device, device_nodes
from .._model.mounts import is_within
from .containers import listed_name
from .image_files import NAME_PREFIX
from .sdk import docker

DEFAULT_PERIOD = 100_000
"""The microseconds in which a quota of CPU time is given, unless the container says otherwise."""


RUNS = ("running", "paused", "restarting")
"""The engine's states of a container that has processes."""

_VISIBLE_GPUS = "NVIDIA_VISIBLE_DEVICES"
_CDI_GPU = "nvidia.com/gpu="


def list_foreign(client: docker.APIClient) -> list[str]:
    """Return the containers and volumes of an engine without sessions: with it they would be lost."""
    containers = [
        f"container {listed_name(each)}" for each in client.containers(all=True) if not _only_showed_an_image(each)
    ]
    volumes = [f"volume {volume['Name']}" for volume in client.volumes()["Volumes"] or []]
    return sorted(containers) + sorted(volumes)


def _only_showed_an_image(container: Mapping[str, Any]) -> bool:
    """Return whether a container was made to look at an image, and has never run."""
    return container["State"] == "created" and listed_name(container).startswith(NAME_PREFIX)


def devices_of(inspected: Mapping[str, Any], devices: Collection[Device]) -> list[Device]:
    """Return which of the devices a container has.

    It has one if it has a node that no other device has, or all of its nodes. A privileged container has all. What the
    engine or NVIDIA's runtime was asked for in another way than by UUID may be any GPU.
    """
    settings = inspected["HostConfig"]
    if settings.get("Privileged"):
        return [*devices]
    by_gpu = gpu_nodes()
    nodes = {device.id: device_nodes([device.id]) or by_gpu.get(device.id, ()) for device in devices}
    users = Counter(node for each in nodes.values() for node in each)
    given = {each[key] for each in settings.get("Devices") or () for key in ("PathOnHost", "PathInContainer")}
    gpus = set(_requested_gpus(inspected))
    known = {device.id for device in devices}
    any_gpu = bool(gpus - known)

    def has(device: Device) -> bool:
        if not device.id.startswith("/") and (any_gpu or device.id in gpus):
            return True
        there = [node for node in nodes[device.id] if any(is_within(node, path) for path in given)]
        return any(users[node] == 1 for node in there) or (bool(there) and len(there) == len(nodes[device.id]))

    return [device for device in devices if has(device)]


def _requested_gpus(inspected: Mapping[str, Any]) -> Iterator[str]:
    """Yield the NVIDIA GPUs that a container was given, by UUID or in other words."""
    settings = inspected["HostConfig"]
    for request in settings.get("DeviceRequests") or ():
        yield from (each.removeprefix(_CDI_GPU) for each in request.get("DeviceIDs") or ["all"])
    if "nvidia" in str(settings.get("Runtime")):
        yield from _visible_gpus(inspected["Config"].get("Env") or ())


def _visible_gpus(environment: Iterable[str]) -> Iterator[str]:
    for variable in environment:
        name, _equals, value = variable.partition("=")
        if name == _VISIBLE_GPUS:
            yield from (gpu for gpu in value.split(",") if gpu not in ("", "none", "void"))


def cores_of(settings: Mapping[str, Any]) -> float | None:
    """Return the cores that a container may use, as the smallest of its limits says; ``None`` without one."""
    limits = [
        (settings.get("NanoCpus") or 0) / 1e9,
        (settings.get("CpuQuota") or 0) / (settings.get("CpuPeriod") or DEFAULT_PERIOD),
        float(len(parse_cpu_list(settings.get("CpusetCpus") or ""))),
    ]
    # Without a quota it is -1.
    return min((limit for limit in limits if limit > 0), default=None)
