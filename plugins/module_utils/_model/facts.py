# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The facts of an agent: collected there, sent as plain data, and parsed on the control node."""

from __future__ import annotations

import dataclasses
import functools
import ipaddress
import socket
from collections.abc import Iterator
from typing import Any

from .addressing import is_address
from .cordon import Cordon
from .devices import Device, GpuRequest
from .held_session import HeldSession
from .images import ImageDisk, ImageIdentity
from .mounts import Unusable
from .network import Underlay
from .plain_data import DataError, from_plain, to_plain
from .session import is_session_id
from .storage import StorageService

MAX_ADDRESSES = 1024
"""How many addresses an agent may have: containers of all agents do not reach them."""


@dataclasses.dataclass(frozen=True, eq=False)
class Headroom:
    """What decides how many more containers an agent can hold, as in its facts.

    Agents with equal headroom share one object, so that a decision about thousands looks at a few: it is hashed and
    compared by identity.
    """

    free: dict[str, int]
    online_cpu_count: int
    containers: int
    max_containers: int


@functools.lru_cache(4096)
def _shared_headroom(free: tuple[tuple[str, int], ...], *others: int) -> Headroom:
    return Headroom(dict(free), *others)


@dataclasses.dataclass(frozen=True)
class AgentFacts:
    """The facts of one agent; ``name`` is its inventory name, which the agent need not know.

    ``architecture`` is named as by images, ``engine`` is the version of the Docker engine, ``kit`` that of the runtime
    kit, and ``program`` the digest of the program that restores sessions, ``None`` if it is not installed.

    ``capacity``, ``allocated`` and ``free`` are slots: bytes for memory, counts for the rest. ``capacity`` excludes
    what is reserved for the agent itself; ``free`` is never negative. ``online_cpus`` are the numbers of its cores;
    ``online_cpu_count`` limits one container, regardless of overcommit. ``max_containers`` is 0 for no limit.
    ``warnings`` are sentences for the operator.

    ``addresses`` are the agent's own, of both families, :data:`MAX_ADDRESSES` at most. ``udp_ports`` maps UDP ports
    that other software uses to its name. ``tcp_ports`` are the TCP ports that are listened on, claimed by a session, or
    reserved, and ``reserved_ports`` those of ended sessions, by id, to which gateways may have a route.
    ``allow_host_network`` is whether containers may share the agent's network. ``networks`` are the address ranges in
    use on the agent, ``vnis`` the VXLAN network identifiers. ``has_infiniband`` is whether the agent has InfiniBand
    device nodes, and ``infiniband`` whether containers may have them.

    ``images`` are the requested images by name, ``None`` if absent, and ``unusable_images`` why others cannot be read;
    ``image_disk`` is where the engine keeps them, ``None`` if that is not known. ``unusable_paths`` are the requested
    folders that cannot be mounted, and ``path_groups`` the numbers of the groups that own the others. ``sessions`` are
    all sessions on the agent, and ``damaged_sessions`` the ids of those that it holds and cannot read. ``cordon`` is an
    operator's decision that the agent takes no new sessions; it is not ``schedulable`` then. ``labels`` are words by
    which sessions choose agents, and ``obstacles`` sentences about what is wrong with one that is not ``schedulable``
    for that. ``topology`` are the domains that it is in, from the outside in, and ``topology_levels`` the names of
    their levels, if they have any. ``closed_storage`` are the services of storage servers that its containers do not
    reach.
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
    tcp_ports: frozenset[int]
    reserved_ports: dict[str, tuple[int, ...]]
    allow_host_network: bool
    has_infiniband: bool
    infiniband: bool
    networks: tuple[str, ...]
    vnis: tuple[int, ...]
    images: dict[str, ImageIdentity | None]
    unusable_images: dict[str, str]
    image_disk: ImageDisk | None
    unusable_paths: dict[str, Unusable]
    path_groups: dict[str, int]
    sessions: tuple[HeldSession, ...]
    damaged_sessions: tuple[str, ...]
    cordon: Cordon | None
    labels: frozenset[str]
    obstacles: tuple[str, ...]
    topology: tuple[str, ...]
    topology_levels: tuple[str, ...]
    closed_storage: tuple[StorageService, ...]
    free: dict[str, int] = dataclasses.field(init=False, repr=False, compare=False)
    online_cpu_count: int = dataclasses.field(init=False, repr=False, compare=False)
    lasting_slots: frozenset[str] = dataclasses.field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        # Not properties, because each scheduling decision reads them several times for every agent.
        taken = self.allocated
        free = {slot: max(0, amount - taken.get(slot, 0)) for slot, amount in self.capacity.items()}
        object.__setattr__(self, "free", free)
        object.__setattr__(self, "online_cpu_count", len(self.online_cpus))
        # Those that a request does not accept: sessions free none of them when they end, as far as is known.
        object.__setattr__(self, "lasting_slots", frozenset())

    @functools.cached_property
    def headroom(self) -> Headroom:
        """What decides how many more containers this agent can hold."""
        return _shared_headroom(tuple(self.free.items()), self.online_cpu_count, self.containers, self.max_containers)

    @functools.cached_property
    def emptied(self) -> AgentFacts:
        """These facts as if nothing ran here, and without images: what can be held at all, whatever is here now."""
        return dataclasses.replace(self, allocated={}, containers=0, images={})

    @functools.cached_property
    def latest_session(self) -> float:
        """The creation time of this agent's newest session, in seconds since the epoch; 0 without sessions."""
        return max((session.created_at for session in self.sessions), default=0.0)

    def offers(self, slot: str) -> bool:
        """Return whether this agent has any capacity of ``slot``."""
        return self.capacity.get(slot, 0) > 0

    def with_gpus(self, request: GpuRequest) -> AgentFacts:
        """Return these facts as if the agent had no other NVIDIA GPUs than those that a request accepts."""
        slots = {device.slot for device in self.devices if not request.accepts(device)}
        if not slots:
            return self
        capacity, allocated = dict(self.capacity), dict(self.allocated)
        for slot in slots:
            accepted = [device for device in self.devices if device.slot == slot and request.accepts(device)]
            capacity[slot] = min(self.capacity.get(slot, 0), len(accepted))
            unused = [device for device in accepted if device.free or not self.allocated.get(slot)]
            allocated[slot] = capacity[slot] - min(capacity[slot], self.free.get(slot, 0), len(unused))
        facts = dataclasses.replace(self, capacity=capacity, allocated=allocated)
        object.__setattr__(facts, "lasting_slots", frozenset(slots))
        return facts

    def to_dict(self) -> dict[str, Any]:
        """Return the facts as plain data, without the name: that is defined by the inventory."""
        return {key: value for key, value in to_plain(self).items() if key != "name"}

    @classmethod
    def from_dict(cls, name: str, data: object) -> AgentFacts:
        """Parse the facts that :meth:`to_dict` returned on the agent of that inventory name.

        Raises :class:`DataError`, one sentence with the agent and the field, for damaged data.
        """
        prefix = f"the facts of {name} are damaged"
        facts = from_plain(cls, {**data, "name": name} if isinstance(data, dict) else data, prefix)
        problem = next(_invalid_values(facts), "")
        if problem:
            raise DataError(f"{prefix}: {problem}")
        return facts


def _invalid_values(facts: AgentFacts) -> Iterator[str]:
    """Yield the problem of each value that has the right type but is invalid."""
    if not all(map(_is_address, facts.addresses)):
        yield "addresses must be IP addresses"
    if len(facts.addresses) > MAX_ADDRESSES:
        yield f"addresses must be {MAX_ADDRESSES} at most"
    if not all(map(_is_network, facts.networks)):
        yield "networks must be IP networks"
    if not all(map(is_session_id, facts.reserved_ports)):
        yield "reserved_ports must be those of sessions"
    if not all(map(is_session_id, facts.damaged_sessions)):
        yield "damaged_sessions must be ids of sessions"


def _is_address(text: str) -> bool:
    """Return whether a text is an address without a zone; of IPv4 quickly: a cluster has hundreds of thousands."""
    try:
        return bool(socket.inet_pton(socket.AF_INET, text))
    except (OSError, ValueError):
        return is_address(text)


# Agents have the same networks again and again.
@functools.lru_cache(4096)
def _is_network(text: str) -> bool:
    try:
        return bool(ipaddress.ip_network(text, strict=False))
    except ValueError:
        return False
