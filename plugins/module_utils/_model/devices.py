# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Devices of agents, and the cores and devices that are pinned to one container."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

from .quantity import BYTE_SLOTS

# Slots that every host has; all others count devices.
HOST_SLOTS = frozenset({"cpu", *BYTE_SLOTS})


@dataclasses.dataclass(frozen=True)
class Device:
    """One device of a slot. ``numa`` is its NUMA node; ``None`` (unknown) counts as near every node.

    ``id`` is the comma-separated list of its device nodes, or the UUID of an NVIDIA GPU. A device is ``free`` unless
    it is assigned to a container.
    """

    slot: str
    id: str
    numa: int | None = None
    free: bool = True


@dataclasses.dataclass(frozen=True)
class PinnedResources:
    """The cores (by number) and devices (ids by slot) that one container uses exclusively."""

    cpus: list[int] = dataclasses.field(default_factory=list)
    devices: dict[str, list[str]] = dataclasses.field(default_factory=dict)

    @property
    def device_ids(self) -> list[str]:
        """The ids of all devices, slot by slot."""
        return [device_id for ids in self.devices.values() for device_id in ids]


def device_nodes(device_ids: Iterable[str]) -> list[str]:
    """Return the device nodes of devices without duplicates: devices may share a node.

    NVIDIA GPUs have none here; NVIDIA's runtime adds their nodes.
    """
    return list(
        dict.fromkeys(path for device_id in device_ids if device_id.startswith("/") for path in device_id.split(","))
    )
