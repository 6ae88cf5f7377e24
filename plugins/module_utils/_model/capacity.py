# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Compute how many more containers, or bundles of containers, fit on an agent."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from .facts import AgentFacts

UNLIMITED = 1 << 30


class HasCapacity(Protocol):
    """The part of an agent's facts that determines its free capacity."""

    @property
    def free(self) -> Mapping[str, int]:
        """The free amount of each slot."""

    @property
    def online_cpu_count(self) -> int:
        """The maximum number of cores of one container."""

    @property
    def containers(self) -> int:
        """The number of containers on the agent."""

    @property
    def max_containers(self) -> int:
        """The maximum number of containers; 0 for no limit."""


@dataclasses.dataclass(frozen=True)
class Bundle:
    """Containers that are placed on one agent together: their total request, largest core count and number."""

    amounts: tuple[tuple[str, int], ...]
    max_cpus_per_container: int
    containers: int

    @classmethod
    def of(cls, requests: Iterable[tuple[Mapping[str, int], int]]) -> Bundle:
        """Return the bundle for pairs of (request of one container, number of containers)."""
        normalized = [(schedulable_slots(request), count) for request, count in requests]
        total: dict[str, int] = {}
        for slot, amount in (
            (slot, amount * count) for request, count in normalized for slot, amount in request.items()
        ):
            total[slot] = total.get(slot, 0) + amount
        # Accelerators first: where they are scarce, the first comparison rules most agents out.
        amounts = sorted(total.items(), key=lambda item: (item[0] in ("cpu", "mem"), item[0]))
        widest = max((request.get("cpu", 0) for request, _count in normalized), default=0)
        return cls(tuple(amounts), widest, sum(count for _request, count in normalized))

    def fitting_agents(self, agents: Sequence[AgentFacts]) -> list[AgentFacts]:
        """Return the agents that can hold the whole bundle."""
        return [agent for agent, room in zip(agents, self.capacities(agents)) if room]

    def capacities(self, agents: Iterable[AgentFacts]) -> list[int]:
        """Return for each agent how many times the whole bundle fits."""
        headrooms = [agent.headroom for agent in agents]
        known = {headroom: self.capacity(headroom) for headroom in set(headrooms)}
        return [known[headroom] for headroom in headrooms]

    def capacity(self, agent: HasCapacity) -> int:
        """Return how many times the whole bundle fits."""
        free = agent.free
        room = UNLIMITED
        for slot, amount in self.amounts:
            available = free.get(slot, 0)
            if available < amount:
                return 0
            room = min(room, available // amount)
        if self.max_cpus_per_container > agent.online_cpu_count:
            return 0
        if not agent.max_containers:
            return room
        left = agent.max_containers - agent.containers
        if left < self.containers:
            return 0
        return min(room, left // self.containers)


def schedulable_slots(request: Mapping[str, int]) -> dict[str, int]:
    """Return the slots that limit placement: without zero amounts, and without shared memory, a part of memory."""
    return {slot: amount for slot, amount in request.items() if amount and slot != "shmem"}


def fits(agent: AgentFacts, requests: Sequence[dict[str, int]]) -> bool:
    """Return whether the agent can hold containers of all these requests together."""
    return bool(Bundle.of((request, 1) for request in requests).fitting_agents([agent]))
