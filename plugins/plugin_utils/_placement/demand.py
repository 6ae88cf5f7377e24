# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a session asks of its agents: groups of containers, and the shapes among them."""

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
    """All containers of a session, ``members`` in rank order; those that ask the same are of one shape.

    ``requests`` are what one container of each shape asks, without what does not count, and ``counts`` how many
    containers of it there are.
    """

    requests: tuple[dict[str, int], ...]
    counts: tuple[int, ...]
    members: tuple[Member, ...]

    @classmethod
    def of(cls, groups: Iterable[Group]) -> Demand:
        """Return what these groups, in rank order, ask together."""
        requests: list[dict[str, int]] = []
        members: list[Member] = []
        for group in groups:
            request = schedulable_slots(group.request)
            if request not in requests:
                requests.append(request)
            shape = requests.index(request)
            members += (Member(group.role, f"{group.role}{index}", shape) for index in range(1, group.count + 1))
        shapes = [member.shape for member in members]
        return cls(tuple(requests), tuple(shapes.count(shape) for shape in range(len(requests))), tuple(members))

    @property
    def size(self) -> int:
        """How many containers there are."""
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
        """Return the containers left when that many of each shape, in rank order, have a place."""
        remaining = list(placed)
        unplaced = []
        for member in self.members:
            if remaining[member.shape]:
                remaining[member.shape] -= 1
            else:
                unplaced.append(member)
        return unplaced
