# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What is known of an agent: the part of the facts that planning needs, as typed values."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from ansible_collections.backendai.cluster.plugins.module_utils._model.images import KnownImage


@dataclasses.dataclass(frozen=True)
class Underlay:
    """Where an agent meets its peers: its IPv4 or IPv6 address, and the interface that has it with its MTU in bytes.

    ``mac`` is that of the interface, empty where it has none. ``public_key`` is that of a WireGuard interface, and
    ``endpoint`` (``address:port``) where its peers reach that; both are empty for an underlay that is not encrypted.
    """

    address: str
    interface: str
    mtu: int
    mac: str = ""
    public_key: str = ""
    endpoint: str = ""


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
class Holding:
    """What a session takes on one agent. ``slots`` are bytes for memory, counts for the rest.

    ``created_at`` is when the session was made, in seconds since the epoch.
    """

    session_id: str
    name: str
    created_at: float
    slots: dict[str, int]
    containers: int

    @classmethod
    def of(cls, agent: str, plan: Mapping[str, Any]) -> Holding:
        """Return what the session of that plan (as plain data) takes on ``agent``."""
        requests = [kernel["resources"] for kernel in plan["kernels"] if kernel["agent"] == agent]
        slots: dict[str, int] = {}
        for slot, amount in (item for request in requests for item in request.items()):
            slots[slot] = slots.get(slot, 0) + amount
        return cls(plan["id"], plan["name"], plan["created_at"], slots, len(requests))


@dataclasses.dataclass(frozen=True)
class AgentFacts:
    """One agent as its facts describe it.

    ``capacity`` and ``taken`` are slots: bytes for memory, counts for the rest; ``capacity`` has what is reserved
    for the agent itself already taken off. ``free`` is what is left of each slot, never negative. ``online_cpus``
    bounds one container, whatever the overcommit. ``max_containers`` 0 stands for no limit. ``networks`` are the
    address ranges in use on the agent, ``vnis`` the VXLAN network identifiers. ``missing_paths`` are those of the
    asked folders that are not there, ``latest_session`` is when the newest of its sessions was made, in seconds since
    the epoch, and ``holdings`` are what its sessions take: those that were given up hold nothing. ``architecture`` is
    as the kernel names it, empty where it is not known. ``addresses`` are those at which the agent itself can be
    reached, of both families, and ``udp_ports`` says who uses a UDP port there that is not ours. ``tcp_ports`` are the
    TCP ports that somebody listens at or a session has claimed, and ``allow_host_network`` says whether containers may
    share the agent's own network. ``infiniband`` says whether the agent has device nodes of InfiniBand. ``swarm`` is
    ``None`` for an agent that is in none, and ``tunnel_ports`` are the UDP ports of its sessions' VXLANs.
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
    images: dict[str, KnownImage | None]
    missing_paths: tuple[str, ...]
    latest_session: float
    architecture: str = ""
    holdings: tuple[Holding, ...] = ()
    addresses: tuple[str, ...] = ()
    udp_ports: dict[int, str] = dataclasses.field(default_factory=dict)
    tcp_ports: frozenset[int] = frozenset()
    allow_host_network: bool = False
    infiniband: bool = False
    swarm: Swarm | None = None
    tunnel_ports: frozenset[int] = frozenset()
    free: dict[str, int] = dataclasses.field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        taken = self.taken
        free = {slot: max(0, amount - taken.get(slot, 0)) for slot, amount in self.capacity.items()}
        object.__setattr__(self, "free", free)

    def offers(self, slot: str) -> bool:
        """Return whether this agent has any of ``slot`` at all."""
        return self.capacity.get(slot, 0) > 0

    @classmethod
    def from_dict(cls, name: str, data: Mapping[str, Any]) -> AgentFacts:
        """Return the facts that ``backendai.cluster.agent_info`` gave for the agent of that inventory name."""
        underlay, swarm = data["underlay"], data["swarm"]
        networks = [session["plan"]["network"] for session in data["sessions"]]
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
            images={image: KnownImage(**known) if known else None for image, known in data["images"].items()},
            missing_paths=tuple(data["missing_paths"]),
            latest_session=max((session["plan"]["created_at"] for session in data["sessions"]), default=0.0),
            architecture=str(data.get("architecture", "")),
            holdings=tuple(Holding.of(name, session["plan"]) for session in data["sessions"] if not session["expired"]),
            addresses=tuple(data["addresses"]),
            udp_ports={int(port): user for port, user in data["udp_ports"].items()},
            tcp_ports=frozenset(data["tcp_ports"]),
            allow_host_network=bool(data["allow_host_network"]),
            infiniband=bool(data["infiniband"]),
            swarm=Swarm(**{**swarm, "nodes": tuple(swarm["nodes"])}) if swarm else None,
            tunnel_ports=frozenset(network["port"] for network in networks if network and network["port"]),
        )
