# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What is known of an agent: made there, sent as plain data, and made again on the control node."""

from __future__ import annotations

import dataclasses
import functools
import ipaddress
from collections.abc import Callable, Iterable
from typing import Any

from .devices import Device
from .held_session import HeldSession
from .images import ImageIdentity
from .network import Underlay
from .plain_data import DataError, from_plain, to_plain
from .plan import SessionPlan

# The UDP port of a swarm's overlays where `docker swarm init` was given no other.
DEFAULT_DATA_PATH_PORT = 4789


@dataclasses.dataclass(frozen=True)
class Swarm:
    """An agent's place in a Docker Swarm: the id of its ``node``.

    ``nodes`` are the ids of those that are ready, and ``port`` is the UDP port of the swarm's overlays, where the agent
    manages the swarm; other agents know neither.
    """

    node: str
    nodes: tuple[str, ...] = ()
    port: int = 0


@dataclasses.dataclass(frozen=True)
class SessionUsage:
    """What a session takes on one agent. ``slots`` are bytes for memory, counts for the rest.

    ``created_at`` is when the session was made, in seconds since the epoch.
    """

    session_id: str
    name: str
    created_at: float
    slots: dict[str, int]
    containers: int

    @classmethod
    def of(cls, agent: str, plan: SessionPlan) -> SessionUsage:
        """Return what the session of that plan takes on ``agent``."""
        requests = [kernel.resources for kernel in plan.kernels_on(agent)]
        slots: dict[str, int] = {}
        for slot, amount in (item for request in requests for item in request.items()):
            slots[slot] = slots.get(slot, 0) + amount
        return cls(plan.id, plan.name, plan.created_at, slots, len(requests))


@dataclasses.dataclass(frozen=True)
class AgentFacts:
    """One agent as it describes itself; ``name`` is that of the inventory, which the agent need not know.

    ``architecture`` is as images name it, ``engine`` the version of its Docker engine, ``kit`` that of its runtime kit,
    and ``program`` the digest of the program that restores its sessions, ``None`` where it is not installed.

    ``capacity`` and ``taken`` are slots: bytes for memory, counts for the rest; ``capacity`` has what is reserved for
    the agent itself already taken off, and ``free`` is what is left, never negative. ``online_cpus`` are the numbers
    of its cores, and ``online_cpu_count`` bounds one container, whatever the overcommit. ``max_containers`` 0 stands
    for no limit. ``warnings`` are sentences for the operator.

    ``addresses`` are those at which the agent itself can be reached, of both families, and ``udp_ports`` says who uses
    a UDP port there that is not ours. ``tcp_ports`` are the TCP ports that somebody listens at or a session has
    claimed, and ``allow_host_network`` says whether containers may share the agent's own network. ``networks`` are the
    address ranges in use on the agent, ``vnis`` the VXLAN network identifiers. ``swarm`` is ``None`` for an agent that
    is in none. ``infiniband`` says whether the agent has device nodes of InfiniBand.

    ``images`` and ``missing_paths`` answer what was asked: the images by name, ``None`` for those that are not there,
    and the folders that are not there. ``sessions`` are all that it holds.
    """

    name: str
    resource_group: str
    schedulable: bool
    architecture: str
    engine: str
    kit: str
    program: str | None
    online_cpus: tuple[int, ...]
    capacity: dict[str, int]
    allocated: dict[str, int]
    devices: tuple[Device, ...]
    warnings: tuple[str, ...]
    containers: int
    max_containers: int
    underlay: Underlay | None
    addresses: tuple[str, ...]
    udp_ports: dict[int, str]
    swarm: Swarm | None
    tcp_ports: frozenset[int]
    allow_host_network: bool
    infiniband: bool
    networks: tuple[str, ...]
    vnis: tuple[int, ...]
    images: dict[str, ImageIdentity | None]
    missing_paths: tuple[str, ...]
    sessions: tuple[HeldSession, ...]
    free: dict[str, int] = dataclasses.field(init=False, repr=False, compare=False)
    online_cpu_count: int = dataclasses.field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        # No properties, because a decision looks at these of every agent, several times.
        taken = self.allocated
        free = {slot: max(0, amount - taken.get(slot, 0)) for slot, amount in self.capacity.items()}
        object.__setattr__(self, "free", free)
        object.__setattr__(self, "online_cpu_count", len(self.online_cpus))

    @functools.cached_property
    def session_usage(self) -> tuple[SessionUsage, ...]:
        """What the sessions of this agent take: those that were given up hold nothing."""
        return tuple(SessionUsage.of(self.name, session.plan) for session in self.sessions if not session.expired)

    @functools.cached_property
    def latest_session(self) -> float:
        """When the newest session of this agent was made, in seconds since the epoch; 0 where it has none."""
        return max((session.plan.created_at for session in self.sessions), default=0.0)

    @property
    def tunnel_ports(self) -> frozenset[int]:
        """The UDP ports of its sessions' VXLANs."""
        networks = [session.plan.network for session in self.sessions]
        return frozenset(network.port for network in networks if network and network.port)

    def offers(self, slot: str) -> bool:
        """Return whether this agent has any of ``slot`` at all."""
        return self.capacity.get(slot, 0) > 0

    def to_dict(self) -> dict[str, Any]:
        """Return the facts as plain data, without the name, which is not the agent's to say."""
        return {key: value for key, value in to_plain(self).items() if key != "name"}

    @classmethod
    def from_dict(cls, name: str, data: object) -> AgentFacts:
        """Return the facts that :meth:`to_dict` gave on the agent of that inventory name.

        Raises :class:`DataError`, one sentence that names the agent and the field, for data that is damaged.
        """
        prefix = f"the facts of {name} are damaged"
        facts = from_plain(cls, {**data, "name": name} if isinstance(data, dict) else data, prefix)
        problem = _find_invalid_value(facts)
        if problem:
            raise DataError(f"{prefix}: {problem}")
        return facts


def _find_invalid_value(facts: AgentFacts) -> str:
    """Return what is wrong with values that are of their type; empty where nothing is."""
    if facts.underlay and not _are_valid(ipaddress.ip_address, [facts.underlay.address]):
        return "underlay.address must be an IP address"
    if not _are_valid(ipaddress.ip_address, facts.addresses):
        return "addresses must be IP addresses"
    if not _are_valid(functools.partial(ipaddress.ip_network, strict=False), facts.networks):
        return "networks must be IP networks"
    return "" if all(session.plan.kernels for session in facts.sessions) else "sessions must have containers"


def _are_valid(parse: Callable[[str], object], texts: Iterable[str]) -> bool:
    try:
        for text in texts:
            parse(text)
    except ValueError:
        return False
    return True
