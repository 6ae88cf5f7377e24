# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The facts of one agent: what it has, what is taken, and which sessions it holds."""

from __future__ import annotations

import dataclasses
import json
import os
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ansible_collections.backendai.cluster.plugins.module_utils._core.quantity import parse_slot
from ansible_collections.backendai.cluster.plugins.module_utils._docker import labels
from ansible_collections.backendai.cluster.plugins.module_utils._docker.containers import find_containers
from ansible_collections.backendai.cluster.plugins.module_utils._docker.images import find_image
from ansible_collections.backendai.cluster.plugins.module_utils._docker.networks import subnets
from ansible_collections.backendai.cluster.plugins.module_utils._host import machine
from ansible_collections.backendai.cluster.plugins.module_utils._host.store import Held, Store
from ansible_collections.backendai.cluster.plugins.module_utils._net import survey as network

if TYPE_CHECKING:
    import docker


@dataclasses.dataclass(frozen=True)
class Settings:
    """What the inventory says of an agent; the fields are the role's ``agent_*`` variables."""

    resource_group: str
    schedulable: bool
    slots: Sequence[Mapping[str, Any]]
    reserved: Mapping[str, Any]
    cpu_overcommit: int
    max_containers: int
    underlay_address: str


@dataclasses.dataclass(frozen=True)
class Questions:
    """What a particular session wants to know: images and folders that it needs."""

    images: Sequence[str] = ()
    paths: Sequence[str] = ()


def survey(client: docker.APIClient, store: Store, settings: Settings, questions: Questions) -> dict[str, Any]:
    """Return the facts of this agent as plain data; ``AgentFacts.from_dict`` says what each part means.

    Sessions whose time is over count as gone: the next claim removes them. Raises :class:`ValueError` for settings
    that are not amounts, and what the adapters raise.
    """
    now = time.time()
    containers = find_containers(client)
    held = store.sessions()
    live = [one for one in held if not one.expired(now)]
    orphans = _orphans(containers, held)
    return {
        "resource_group": settings.resource_group,
        "schedulable": settings.schedulable,
        "architecture": machine.architecture(),
        "engine": client.version()["Version"],
        "kit": os.path.basename(store.kit()),
        "online_cpus": machine.online_cpus(),
        "capacity": _capacity(settings),
        "taken": _sum([*(one.slots for one in live), *orphans]),
        "containers": sum(len(one.kernels) for one in live) + len(orphans),
        "max_containers": settings.max_containers,
        "underlay": _underlay(settings.underlay_address),
        "networks": sorted({*network.networks_in_use(), *subnets(client), *_claimed_subnets(live)}),
        "vnis": sorted({*network.vnis_in_use(), *_claimed_vnis(live)}),
        "images": {name: _digest_of(client, name) for name in questions.images},
        "missing_paths": [path for path in questions.paths if not os.path.isdir(path)],
        "sessions": [_as_found(one, containers, now) for one in held],
    }


def cpu_load(held: Iterable[Held]) -> dict[int, int]:
    """Return how many containers are pinned to each core."""
    load: dict[int, int] = {}
    for cpu in (cpu for one in held for cpus in one.cpus.values() for cpu in cpus):
        load[cpu] = load.get(cpu, 0) + 1
    return load


def _capacity(settings: Settings) -> dict[str, int]:
    total = {"cpu": len(machine.online_cpus()) * settings.cpu_overcommit, "mem": machine.memory_total()}
    for slot in settings.slots:
        total[slot["name"]] = total.get(slot["name"], 0) + len(slot["devices"])
    reserved = {slot: _reserved(slot, amount) for slot, amount in settings.reserved.items()}
    return {slot: max(0, amount - reserved.get(slot, 0)) for slot, amount in total.items()}


def _reserved(slot: str, amount: Any) -> int:
    try:
        return parse_slot(slot, amount)
    except ValueError as error:
        raise ValueError(f"agent_reserved.{slot}: {amount!r} {error}") from None


def _orphans(containers: Iterable[Mapping[str, Any]], held: Iterable[Held]) -> list[dict[str, int]]:
    """Return what containers take whose session's folder was lost: they are ours, and they are there."""
    known = {one.plan.id for one in held}
    lost = (one["Labels"] for one in containers if one["Labels"].get(labels.SESSION_ID) not in known)
    return [json.loads(label.get(labels.SLOTS, "{}")) for label in lost]


def _sum(amounts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    total: dict[str, int] = {}
    for slots in amounts:
        for slot, amount in slots.items():
            total[slot] = total.get(slot, 0) + amount
    return total


def _underlay(address: str) -> dict[str, Any] | None:
    found = network.find_underlay(address)
    return dataclasses.asdict(found) if found else None


def _claimed_subnets(held: Iterable[Held]) -> set[str]:
    return {one.plan.network.subnet for one in held if one.plan.network}


def _claimed_vnis(held: Iterable[Held]) -> set[int]:
    return {one.plan.network.vni for one in held if one.plan.network and one.plan.network.vni}


def _digest_of(client: docker.APIClient, image: str) -> str | None:
    found = find_image(client, image)
    return found.digest if found else None


def _as_found(one: Held, containers: Iterable[Mapping[str, Any]], now: float) -> dict[str, Any]:
    ours = [container for container in containers if container["Labels"].get(labels.SESSION_ID) == one.plan.id]
    return {
        "plan": one.plan.to_dict(),
        "request": one.request,
        "committed": one.committed,
        "expired": one.expired(now),
        "public_keys": {hostname: dataclasses.asdict(keys) for hostname, keys in one.keys.items()},
        "containers": container_states(ours),
    }


def container_states(containers: Iterable[Mapping[str, Any]]) -> dict[str, dict[str, str]]:
    """Return what a session's containers are doing, by hostname: ``status`` and the ``image_digest`` they run."""
    return {
        one["Labels"][labels.HOSTNAME]: {"status": one["State"], "image_digest": one["Labels"][labels.IMAGE_DIGEST]}
        for one in containers
    }
