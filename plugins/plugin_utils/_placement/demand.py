# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The demand of a session, groups of containers and their shapes, and where they are placed."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence

from ...module_utils._model.capacity import Bundle, schedulable_slots


@dataclasses.dataclass(frozen=True)
class Group:
    """Containers of one role. ``request`` is of one container: bytes for mem and shmem, counts for the rest."""

    role: str
    request: dict[str, int]
    count: int


@dataclasses.dataclass(frozen=True)
class Member:
    """One container: its role, its hostname, and the number of its shape."""

    role: str
    hostname: str
    shape: int


@dataclasses.dataclass(frozen=True)
class Demand:
    """All containers of a session, ``members`` in rank order; containers with equal requests have the same shape.

    ``requests`` are the requests of one container of each shape, limited to the slots that are scheduled, and
    ``counts`` the number of its containers.
    """

    requests: tuple[dict[str, int], ...]
    counts: tuple[int, ...]
    members: tuple[Member, ...]

    @classmethod
    def of(cls, groups: Iterable[Group]) -> Demand:
        """Return the demand of these groups, which are in rank order."""
        shapes: dict[frozenset[tuple[str, int]], int] = {}
        requests: list[dict[str, int]] = []
        counts: list[int] = []
        members: list[Member] = []
        for group in groups:
            request = schedulable_slots(group.request)
            shape = shapes.setdefault(frozenset(request.items()), len(requests))
            if shape == len(requests):
                requests.append(request)
                counts.append(0)
            counts[shape] += group.count
            members += (Member(group.role, f"{group.role}{index}", shape) for index in range(1, group.count + 1))
        return cls(tuple(requests), tuple(counts), tuple(members))

    @property
    def size(self) -> int:
        """The number of containers."""
        return len(self.members)

    @property
    def total(self) -> Bundle:
        """All containers together."""
        return Bundle.of(zip(self.requests, self.counts, strict=True))

    @property
    def per_shape(self) -> list[Bundle]:
        """One container of each shape."""
        return [Bundle.of([(request, 1)]) for request in self.requests]

    def unplaced(self, placed: Sequence[int]) -> list[Member]:
        """Return the containers that remain if that many of each shape, in rank order, are placed."""
        remaining = list(placed)
        unplaced = []
        for member in self.members:
            if remaining[member.shape]:
                remaining[member.shape] -= 1
            else:
                unplaced.append(member)
        return unplaced


@dataclasses.dataclass(frozen=True)
class Placement:
    """The agent of each container, in rank order."""

    hosts: tuple[str, ...]

    @property
    def agents(self) -> tuple[str, ...]:
        """The agents that take part, in rank order."""
        return tuple(dict.fromkeys(self.hosts))
