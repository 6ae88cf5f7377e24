# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Devices of agents, what sessions ask of them, and the cores and devices that are pinned to one container."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable

from .quantity import BYTE_SLOTS, format_slot

# Slots that every host has; all others count devices.
HOST_SLOTS = frozenset({"cpu", *BYTE_SLOTS})

# How the names of the slots of NVIDIA GPUs begin, and how the UUIDs of GPUs and of their MIG instances do.
CUDA_PREFIX = "cuda."
GPU_IDS = ("GPU-", "MIG-")

GPU_SLOTS = (CUDA_PREFIX, "rocm.")
"""How the names of the slots of all GPUs begin."""

_WORDS = re.compile(r"[a-z0-9]+")


@dataclasses.dataclass(frozen=True)
class Device:
    """One device of a slot. ``numa`` is its NUMA node; ``None`` (unknown) counts as near every node.

    ``id`` is the comma-separated list of its device nodes, or the UUID of an NVIDIA GPU or of a MIG instance of one. A
    device is ``free`` unless it is assigned to a container. Of an NVIDIA GPU, ``model`` is the name of the product, and
    ``memory`` is in bytes, 0 if it is unknown; an instance has the model of its GPU, memory of its own, and the UUID of
    its ``gpu``.
    """

    slot: str
    id: str
    numa: int | None = None
    free: bool = True
    model: str = ""
    memory: int = 0
    gpu: str = ""


@dataclasses.dataclass(frozen=True)
class GpuRequest:
    """What a session asks of its NVIDIA GPUs: words of the name of their ``model``, and the least ``memory`` in bytes.

    Words are compared without case. A GPU may have a tenth less memory: drivers report less than a product's name says,
    such as 79.6 GiB of 80, or 14.8 of 16.
    """

    model: str = ""
    memory: int = 0

    def accepts(self, device: Device) -> bool:
        """Return whether containers of the session may have a device; what is no NVIDIA GPU they may."""
        if not device.slot.startswith(CUDA_PREFIX):
            return True
        return _contains(_words(device.model), _words(self.model)) and 10 * device.memory >= 9 * self.memory

    @property
    def description(self) -> str:
        """The request as a phrase, such as ``H100 with 80g``."""
        memory = f"with {format_slot('mem', self.memory)}" if self.memory else ""
        return " ".join(filter(None, [self.model, memory]))


ANY_GPU = GpuRequest()


def _words(text: str) -> list[str]:
    return _WORDS.findall(text.lower())


def _contains(words: list[str], wanted: list[str]) -> bool:
    """Return whether the wanted words are among others, one after the other."""
    return any(words[at : at + len(wanted)] == wanted for at in range(len(words) - len(wanted) + 1))


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

    NVIDIA GPUs have none here; CDI or NVIDIA's hook adds their nodes.
    """
    return list(
        dict.fromkeys(path for device_id in device_ids if device_id.startswith("/") for path in device_id.split(","))
    )
