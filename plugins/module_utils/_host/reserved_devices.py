# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The devices that the inventory keeps for the host and what else runs there (``agent_reserved_devices``)."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from .._model.devices import GPU_IDS, Device, device_nodes
from .nvidia import gpu_nodes

RULE = (
    "must be the UUID of an NVIDIA GPU or MIG instance, as nvidia-smi -L prints it (GPU-…, MIG-…), or the path of a"
    " device node"
)


class Reserved(NamedTuple):
    """The ``ids`` of the devices that are reserved, and ``warnings`` about names of which there is no device."""

    ids: frozenset[str]
    warnings: list[str]


def find_reserved(names: Iterable[str], devices: Iterable[Device], root: Path = Path("/")) -> Reserved:
    """Return which of the devices have one of the names; ``root`` is the root of the host.

    A device is named by its id, by any of its nodes, and as an instance by its GPU. Nodes may be named by links.
    Raises :class:`ValueError` with one sentence for what cannot be the name of a device.
    """
    wanted = {name: _resolved(name) for name in names}
    if not wanted:
        return Reserved(frozenset(), [])
    by_gpu = gpu_nodes(root)
    names_of = {device.id: _names_of(device, by_gpu) for device in devices}
    known = {name for each in names_of.values() for name in each}
    return Reserved(
        frozenset(device for device, each in names_of.items() if each.intersection(wanted.values())),
        [
            f"agent_reserved_devices: this agent offers no device {name}: compare nvidia-smi -L, and agent_slots."
            for name, resolved in wanted.items()
            if resolved not in known
        ],
    )


def _resolved(name: str) -> str:
    if name.startswith("/"):
        return os.path.realpath(name)
    if name.startswith(GPU_IDS):
        return name
    raise ValueError(f"agent_reserved_devices: {name!r} {RULE}")


def _names_of(device: Device, by_gpu: Mapping[str, tuple[str, ...]]) -> set[str]:
    gpu = device.gpu or device.id
    nodes = device_nodes([device.id]) or by_gpu.get(gpu, ())
    return {device.id, gpu, *map(os.path.realpath, nodes)}
