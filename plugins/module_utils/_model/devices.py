# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Devices of agents, and what one container has to itself."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

from .quantity import BYTE_SLOTS

# Slots that every host has; all others count devices.
HOST_SLOTS = frozenset({"cpu", *BYTE_SLOTS})


@dataclasses.dataclass(frozen=True)
class Device:
    """One of what a slot counts. ``numa`` is the number of its NUMA node; ``None``, unknown, is near every node.

    ``id`` is the paths of the device nodes that it consists of, joined by commas, or the UUID of an NVIDIA GPU. It is
    ``free`` unless a container has it.
    """

    slot: str
    id: str
    numa: int | None = None
    free: bool = True


@dataclasses.dataclass(frozen=True)
class PinnedResources:
    """What one container has to itself: the numbers of its cores, and the ids of its devices by slot."""

    cpus: list[int] = dataclasses.field(default_factory=list)
    devices: dict[str, list[str]] = dataclasses.field(default_factory=dict)

    @property
    def device_ids(self) -> list[str]:
        """The ids of all devices, slot by slot."""
        return [device_id for ids in self.devices.values() for device_id in ids]


def device_nodes(device_ids: Iterable[str]) -> list[str]:
    """Return the paths of the nodes that devices consist of, each once: several may share one.

    An NVIDIA GPU has none here; its own runtime knows them.
    """
    return list(
        dict.fromkeys(path for device_id in device_ids if device_id.startswith("/") for path in device_id.split(","))
    )
