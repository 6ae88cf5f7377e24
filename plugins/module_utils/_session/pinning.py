# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Pins containers to cores and devices of an agent: deterministic, on one NUMA node if possible.

Devices are chosen first. All devices of a container are on one NUMA node if any node has enough: preferably one that
also has enough cores, then the one with the fewest devices of these kinds, so that larger nodes stay free. If no node
has enough, the node with the most of them is used, and so on for the rest.

Cores are chosen next. A core is available while fewer containers are pinned to it than the overcommit allows. All cores
come from a node of the devices if it has enough available cores; else from the node with the fewest available cores
that are enough, then the least loaded. If no node has enough, all cores of the node with the most are used, and so on
for the rest, which results in the fewest nodes. Within a node the least loaded cores are used first. Cores that are not
available are used only if there are too few.

Ties are broken by the lowest number. On a host with one node this selects the least loaded cores.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from .._model.devices import HOST_SLOTS, Device, PinnedResources


def pin_containers(
    nodes: Mapping[int, int],
    load: Mapping[int, int],
    overcommit: int,
    free: Iterable[Device],
    requests: Iterable[Mapping[str, int]],
) -> list[PinnedResources]:
    """Return the resources of each container, in the order of ``requests`` (the slots of one container each).

    ``nodes`` has the NUMA node of each core, ``load`` the number of containers that are pinned to a core, and
    ``overcommit`` the maximum of that. ``free`` are the unallocated devices. Raises :class:`ValueError` when there are
    fewer devices than requested, or fewer cores than one container requests.
    """
    busy = {cpu: load.get(cpu, 0) for cpu in nodes}
    remaining = list(free)
    pinned = []
    for request in requests:
        requested = {slot: count for slot, count in request.items() if count and slot not in HOST_SLOTS}
        cores = _available_cores(nodes, busy, overcommit)
        has_cores = {node: len(cpus) >= request["cpu"] for node, cpus in cores.items()}
        devices = _pick_devices(remaining, requested, has_cores)
        cpus = _pick_cores(cores, busy, request["cpu"], {device.numa for device in devices})
        remaining = [device for device in remaining if device not in devices]
        for cpu in cpus:
            busy[cpu] += 1
        by_slot = {slot: [device.id for device in devices if device.slot == slot] for slot in requested}
        pinned.append(PinnedResources(sorted(cpus), by_slot))
    return pinned


def _available_cores(nodes: Mapping[int, int], busy: Mapping[int, int], overcommit: int) -> dict[int, list[int]]:
    """Return the available cores of every node, the least loaded first."""
    cores: dict[int, list[int]] = {node: [] for node in nodes.values()}
    for cpu in sorted(nodes, key=lambda cpu: (busy[cpu], cpu)):
        if busy[cpu] < overcommit:
            cores[nodes[cpu]].append(cpu)
    return cores


def _pick_devices(free: Sequence[Device], requested: Mapping[str, int], has_cores: Mapping[int, bool]) -> list[Device]:
    """Return the devices of one container; ``has_cores``: whether a node also has enough available cores."""
    chosen: list[Device] = []
    missing = dict(requested)
    while any(missing.values()):
        candidates = [device for device in free if missing.get(device.slot) and device not in chosen]
        if not candidates:
            short = ", ".join(f"{count} of {slot}" for slot, count in missing.items() if count)
            raise ValueError(f"{short} are requested beyond what is free")
        for device in _pick_from_one_node(candidates, missing, has_cores):
            chosen.append(device)
            missing[device.slot] -= 1
    return chosen


def _pick_from_one_node(
    candidates: Sequence[Device], missing: Mapping[str, int], has_cores: Mapping[int, bool]
) -> list[Device]:
    """Return the missing devices that the best node has."""
    offers = {}
    for node in {*has_cores, *(device.numa for device in candidates if device.numa is not None)}:
        near = sorted(
            (device for device in candidates if device.numa in (node, None)), key=lambda device: device.numa is None
        )
        offers[node] = [device for slot, count in missing.items() for device in _take_of_slot(near, slot, count)]

    def order(node: int) -> tuple[int, bool, int, int]:
        return (
            -len(offers[node]),
            not has_cores.get(node, False),
            sum(device.numa == node for device in candidates),
            node,
        )

    return offers[min(offers, key=order)]


def _take_of_slot(devices: Iterable[Device], slot: str, count: int) -> list[Device]:
    return [device for device in devices if device.slot == slot][:count]


def _pick_cores(
    cores: Mapping[int, Sequence[int]], busy: Mapping[int, int], count: int, near: Collection[int | None]
) -> list[int]:
    """Return the cores of one container, preferably on the nodes of its devices (``near``)."""
    chosen: list[int] = []
    remaining = dict(cores)
    while len(chosen) < count and any(remaining.values()):
        chosen += remaining.pop(_next_node(remaining, busy, count - len(chosen), near))[: count - len(chosen)]
    others = sorted(busy.keys() - chosen, key=lambda cpu: (busy[cpu], cpu))
    if len(chosen) + len(others) < count:
        raise ValueError(f"a container requests {count} cores, and {len(busy)} are online")
    return chosen + others[: count - len(chosen)]


def _next_node(
    cores: Mapping[int, Sequence[int]], busy: Mapping[int, int], count: int, near: Collection[int | None]
) -> int:
    """Return the next node to take cores from, in the order that the module's docstring defines."""

    def order(node: int) -> tuple[bool, int, bool, int, int, int]:
        has = len(cores[node])
        load = sum(busy[cpu] for cpu in cores[node][:count])
        return has < count, -has if has < count else 0, node not in near, has, load, node

    return min(cores, key=order)
