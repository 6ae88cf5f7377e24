# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What counts of containers that have the labels of sessions and are of none that can be read, and what is said of it.

Nobody touches them. While they run, they take what the engine has given to them, whatever their labels say.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from math import ceil
from typing import Any

from .._docker import labels
from .._docker.containers import inspect, listed_name
from .._docker.foreign import RUNS, cores_of, devices_of
from .._docker.networks import list_networks
from .._docker.sdk import docker
from .._model.devices import Device
from .._model.quantity import format_slots

NAMED = 5
"""How many containers a warning names."""


@dataclasses.dataclass(frozen=True)
class Taken:
    """What containers without a session that can be read take of an agent: a number of them, slots, and devices."""

    containers: int = 0
    slots: dict[str, int] = dataclasses.field(default_factory=dict)
    devices: frozenset[str] = frozenset()


def taken_by(client: docker.APIClient, containers: Iterable[Mapping[str, Any]], devices: Sequence[Device]) -> Taken:
    """Return what containers take, as the engine says: their limits of cores and memory, and devices."""
    count, slots, ids = 0, Counter[str](), set[str]()
    for inspected in _inspect_all(client, containers):
        count += 1
        settings = inspected["HostConfig"]
        slots.update({"cpu": ceil(cores_of(settings) or 0), "mem": settings.get("Memory") or 0})
        held = devices_of(inspected, devices)
        ids |= {device.id for device in held}
    slots.update(device.slot for device in devices if device.id in ids)
    return Taken(count, {slot: amount for slot, amount in slots.items() if amount}, frozenset(ids))


def running(containers: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return those of listed containers that have processes."""
    return [container for container in containers if container["State"] in RUNS]


def _inspect_all(client: docker.APIClient, containers: Iterable[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    for container in containers:
        try:
            inspected = inspect(client, container["Id"])
        except docker.errors.NotFound:
            # It has been removed since.
            continue
        yield inspected


def unmanaged_warnings(containers: Sequence[Mapping[str, Any]], taken: Taken) -> list[str]:
    """Return the sentence about containers that have the labels of sessions and are of none; none without any."""
    if not containers:
        return []
    names = sorted(map(listed_name, containers))
    first = names[:NAMED]
    more = [f"{len(names) - NAMED} more"] if len(names) > NAMED else []
    listed = f"container{'s' if len(names) > 1 else ''} {', '.join([*first, *more])}"
    devices = f" ({', '.join(sorted(taken.devices))})" if taken.devices else ""
    counted = f"what runs of it counts: {format_slots(taken.slots)}{devices}" if taken.slots else "none of it counts"
    labelled = "of no session here, although labels name one, as those of an image do that was made of a container"
    remedy = f"remove what is not needed with docker rm -f {' '.join(first)}"
    return [f"{listed}: {labelled}. Nothing touches what is of no session, and {counted}: {remedy}."]


def stray_networks(client: docker.APIClient, held: Collection[str]) -> list[str]:
    """Return the sentence about networks of sessions that are not held here; none without any."""
    names = sorted(
        network["Name"]
        for network in list_networks(client, filters=labels.label_filter())
        # Those of sessions are bridges.
        if network["Driver"] == "bridge" and network["Labels"].get(labels.SESSION_ID) not in held
    )
    if not names:
        return []
    remedy = f"remove what is not needed with docker network rm {' '.join(names)}"
    return [f"network {', '.join(names)}: of no session here, although labels name one. Nothing touches it: {remedy}."]
