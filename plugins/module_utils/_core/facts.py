# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What is known of an agent: the part of the facts that planning needs, as typed values."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any


@dataclasses.dataclass(frozen=True)
class Underlay:
    """Where an agent meets its peers. ``address`` is IPv4 or IPv6; ``mtu`` is that of its interface, in bytes."""

    address: str
    interface: str
    mtu: int


@dataclasses.dataclass(frozen=True)
class AgentFacts:
    """One agent as its facts describe it.

    ``capacity`` and ``taken`` are slots: bytes for memory, counts for the rest; ``capacity`` has what is reserved
    for the agent itself already taken off. ``online_cpus`` bounds one container, whatever the overcommit.
    ``max_containers`` 0 stands for no limit. ``networks`` are the address ranges in use on the agent, ``vnis`` the
    VXLAN network identifiers. ``missing_paths`` are those of the asked folders that are not there, and
    ``latest_session`` is when the newest of its sessions was made, in seconds since the epoch.
    """

    name: str
    resource_group: str
    schedulable: bool
    capacity: dict[str, int]
    taken: dict[str, int]
    online_cpus: int
    containers: int
    max_containers: int
    underlay: Underlay | None
    networks: tuple[str, ...]
    vnis: tuple[int, ...]
    images: dict[str, str | None]
    missing_paths: tuple[str, ...]
    latest_session: float

    @property
    def free(self) -> dict[str, int]:
        """What is left of each slot; never negative."""
        return {slot: max(0, amount - self.taken.get(slot, 0)) for slot, amount in self.capacity.items()}

    def offers(self, slot: str) -> bool:
        """Return whether this agent has any of ``slot`` at all."""
        return self.capacity.get(slot, 0) > 0

    @classmethod
    def from_dict(cls, name: str, data: Mapping[str, Any]) -> AgentFacts:
        """Return the facts that ``backendai.cluster.agent_info`` gave for the agent of that inventory name."""
        underlay = data["underlay"]
        return cls(
            name=name,
            resource_group=str(data["resource_group"]),
            schedulable=bool(data["schedulable"]),
            capacity=dict(data["capacity"]),
            taken=dict(data["taken"]),
            online_cpus=len(data["online_cpus"]),
            containers=int(data["containers"]),
            max_containers=int(data["max_containers"]),
            underlay=Underlay(**underlay) if underlay else None,
            networks=tuple(data["networks"]),
            vnis=tuple(data["vnis"]),
            images=dict(data["images"]),
            missing_paths=tuple(data["missing_paths"]),
            latest_session=max((session["plan"]["created_at"] for session in data["sessions"]), default=0.0),
        )
