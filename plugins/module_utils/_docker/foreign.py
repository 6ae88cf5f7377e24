# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What others have in a Docker engine that sessions use."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from .._host.machine import parse_cpu_list
from .._model.foreign import ForeignContainer
from . import labels
from .containers import listed_name
from .sdk import docker

DEFAULT_PERIOD = 100_000
"""The microseconds in which a quota of CPU time is given, unless the container says otherwise."""


def list_foreign(client: docker.APIClient) -> list[str]:
    """Return the containers and volumes that are not of this collection: with the engine they would be lost."""
    containers = [
        f"container {listed_name(container)}" for container in client.containers(all=True) if _is_foreign(container)
    ]
    volumes = [f"volume {volume['Name']}" for volume in client.volumes()["Volumes"] or []]
    return sorted(containers) + sorted(volumes)


def running_foreign(client: docker.APIClient) -> Iterator[tuple[str, int, ForeignContainer]]:
    """Return the running containers that are not of this collection: their ids, first processes, and limits."""
    for listed in filter(_is_foreign, client.containers()):
        try:
            entry = client.inspect_container(listed["Id"])
        except docker.errors.NotFound:
            # It has ended since.
            continue
        settings = entry["HostConfig"]
        limits = (_cores(settings), settings.get("Memory") or None)
        yield listed["Id"], entry["State"]["Pid"], ForeignContainer(listed_name(listed), *limits)


def _is_foreign(container: Mapping[str, Any]) -> bool:
    return (container["Labels"] or {}).get(labels.OWNER) not in (labels.OWNER_VALUE, labels.LOOK_VALUE)


def _cores(settings: Mapping[str, Any]) -> float | None:
    """Return the cores that a container may use, as the smallest of its limits says; ``None`` without one."""
    limits = [
        (settings.get("NanoCpus") or 0) / 1e9,
        (settings.get("CpuQuota") or 0) / (settings.get("CpuPeriod") or DEFAULT_PERIOD),
        float(len(parse_cpu_list(settings.get("CpusetCpus") or ""))),
    ]
    # Without a quota it is -1.
    return min((limit for limit in limits if limit > 0), default=None)
