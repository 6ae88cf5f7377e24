# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What runs on an agent beside sessions, and what is said of it: nothing of it counts, but a claim takes other GPUs.

Containers with the labels of sessions are not meant: those that are of no session count (``unmanaged.py``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from .._docker.containers import listed_name
from .._docker.labels import has_session
from .._docker.sdk import docker
from .._host.gpu_processes import GpuProcesses, describe_users, read_gpu_processes
from .._model.devices import GPU_IDS, Device

NAMED = 5
"""How many containers a warning names."""


class Others(NamedTuple):
    """The names of running ``containers``, and processes in words, by the UUIDs of the ``gpus`` that the driver names.

    ``unknown`` is why the driver does not say who uses GPUs, as a phrase; empty if it does, or was not asked.
    """

    containers: Sequence[str]
    gpus: Mapping[str, str]
    unknown: str = ""

    def use(self, device: Device) -> str:
        """Return the process that uses a device, or the GPU that it is an instance of; empty if none does."""
        return self.gpus.get(device.id) or self.gpus.get(device.gpu, "")

    def spare(self, free: Iterable[Device], needed: Mapping[str, int]) -> list[Device]:
        """Return the free devices without those in use, but for as many of a slot as are needed beyond the others."""
        offered: Counter[str] = Counter()
        spare = []
        for device in sorted(free, key=lambda device: bool(self.use(device))):
            if not self.use(device) or offered[device.slot] < needed.get(device.slot, 0):
                offered[device.slot] += 1
                spare.append(device)
        return spare

    def warnings(self, devices: Sequence[Device]) -> list[str]:
        """Return a sentence for each of the ``devices`` that is in use, and one about the containers."""
        named = dict.fromkeys(name for device in devices for name in (device.id, device.gpu) if name in self.gpus)
        told = [f"{gpu} is used by {self.gpus[gpu]}: name it in agent_reserved_devices." for gpu in named]
        if self.unknown and any(device.id.startswith(GPU_IDS) for device in devices):
            told.append(f"it is not known who uses its GPUs ({self.unknown}): sessions may get one that is in use.")
        count = len(self.containers)
        if count:
            more = [f"{count - NAMED} more"] if count > NAMED else []
            listed = f"container{'s' if count > 1 else ''} {', '.join([*self.containers[:NAMED], *more])}"
            keep = "keep what they need with agent_reserved and agent_reserved_devices"
            told.append(f"{listed}: of no session, and not counted: {keep}.")
        return told


def find_others(client: docker.APIClient, *, ask_driver: bool) -> Others:
    """Return what runs beside sessions; ``ask_driver``: whether also on GPUs, which takes two seconds at most."""
    # Before the containers are listed: those of sessions may be new.
    found = read_gpu_processes() if ask_driver else GpuProcesses([])
    running = client.containers()
    counted = {container["Id"] for container in running if has_session(container["Labels"])}
    names = sorted(listed_name(container) for container in running if container["Id"] not in counted)
    return Others(names, describe_users(found.users, counted), found.unknown)
