# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The decided session: who runs what where, under which names and addresses. It holds no secret."""

from __future__ import annotations

import dataclasses
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from ansible_collections.backendai.cluster.plugins.module_utils._core import addressing
from ansible_collections.backendai.cluster.plugins.module_utils._core.apps import SSH_PORT, App
from ansible_collections.backendai.cluster.plugins.module_utils._core.facts import AgentFacts, Underlay
from ansible_collections.backendai.cluster.plugins.module_utils._core.mounts import Mount
from ansible_collections.backendai.cluster.plugins.module_utils._core.network import (
    HOST_NETWORK,
    SESSION_INTERFACE,
    Network,
    PlanError,
    make_network,
)
from ansible_collections.backendai.cluster.plugins.module_utils._core.placement import Placement
from ansible_collections.backendai.cluster.plugins.module_utils._core.published import PublishedPort, publish
from ansible_collections.backendai.cluster.plugins.module_utils._core.quantity import format_slots
from ansible_collections.backendai.cluster.plugins.module_utils._core.roles import MAIN, MAIN1, Role
from ansible_collections.backendai.cluster.plugins.module_utils._core.run import Pools
from ansible_collections.backendai.cluster.plugins.module_utils._core.spec import EVERY, SessionSpec


@dataclasses.dataclass(frozen=True)
class Kernel:
    """One container of the session.

    ``resources`` are bytes for memory, counts for the rest. ``address`` and ``mac`` are on the session network, absent
    in a session of one. On the agents' own network the address is the agent's, there is no ``mac``, and ``ssh_port``
    tells the containers of one agent apart.
    """

    id: str
    role: str
    index: int
    rank: int
    hostname: str
    agent: str
    image: str
    resources: dict[str, int]
    address: str | None
    mac: str | None
    container: str
    ssh_port: int = SSH_PORT


@dataclasses.dataclass(frozen=True)
class SessionPlan:
    """Everything that is decided about a session.

    ``underlays`` is where its agents meet, empty where they need not. ``agent_addresses`` are the networks that make up
    the addresses of all agents that were known when it was planned: containers reach none of them. ``command`` is the
    text of a batch session's shell command, empty for others; ``failure_policy`` says what follows when a container
    dies. ``user`` is whose share it counts to. ``command_scope`` says which containers run the command, ``uid`` and
    ``gid`` are those of user work, and with ``infiniband`` every container has the agent's ``/dev/infiniband``. What
    main1's agent has ``published`` is for ``gateways``, the addresses that gateways come from.
    """

    id: str
    name: str
    user: str
    cluster_mode: str
    requested_cluster_mode: str
    resource_group: str
    command: str
    failure_policy: str
    mounts: tuple[Mount, ...]
    network: Network | None
    kernels: tuple[Kernel, ...]
    underlays: dict[str, Underlay]
    agent_addresses: tuple[str, ...]
    created_at: float
    command_scope: str = MAIN
    apps: tuple[App, ...] = ()
    uid: int = 1000
    gid: int = 1000
    infiniband: bool = False
    published: tuple[PublishedPort, ...] = ()
    gateways: tuple[str, ...] = ()

    @property
    def agents(self) -> list[str]:
        """The agents that take part, in rank order; one that has no container but makes their network is the last."""
        manager = [self.network.manager] if self.network and self.network.manager else []
        return list(dict.fromkeys([*(kernel.agent for kernel in self.kernels), *manager]))

    @property
    def images(self) -> list[str]:
        """The images of all containers, in rank order."""
        return list(dict.fromkeys(kernel.image for kernel in self.kernels))

    def kernels_on(self, agent: str) -> list[Kernel]:
        """Return the containers of one agent, in rank order."""
        return [kernel for kernel in self.kernels if kernel.agent == agent]

    def runs_command(self, hostname: str) -> bool:
        """Return whether a container runs the session's command, and ends with it."""
        return bool(self.command) and (self.command_scope == EVERY or hostname == MAIN1)

    def interface_on(self, agent: str) -> str:
        """Return the interface at which containers on ``agent`` meet the others, by its name inside of them.

        Docker Swarm names it when a container starts: then it is empty.
        """
        if self.network is not None and self.network.manager:
            return ""
        return self.underlays[agent].interface if self.shares_host_network else SESSION_INTERFACE

    @property
    def shares_host_network(self) -> bool:
        """Whether containers share their agents' own network."""
        return self.network is not None and self.network.driver == HOST_NETWORK

    @property
    def networks(self) -> str:
        """The networks at which all containers meet, comma-separated, such as ``10.128.3.0/29``; empty without one."""
        if self.network is None:
            return ""
        hosts = dict.fromkeys(f"{kernel.address}/32" for kernel in self.kernels)
        return self.network.subnet or ",".join(hosts)

    def host_ports(self, agent: str) -> list[int]:
        """Return the ports of the agent's own network at which containers of the session listen, in rank order."""
        return [kernel.ssh_port for kernel in self.kernels_on(agent) if self.shares_host_network]

    def published_on(self, agent: str) -> tuple[PublishedPort, ...]:
        """Return what an agent publishes of main1; nothing where that is on another one."""
        return self.published if agent == self.kernels[0].agent else ()

    def tcp_ports(self, agent: str) -> list[int]:
        """Return all TCP ports that the session has on an agent, each of them once."""
        published = [one.host_port for one in self.published_on(agent)]
        return list(dict.fromkeys([*self.host_ports(agent), *published]))

    def to_dict(self) -> dict[str, Any]:
        """Return the plan as plain data; :meth:`from_dict` gives it back."""
        data = dataclasses.asdict(self)
        return {key: list(value) if isinstance(value, tuple) else value for key, value in data.items()}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> SessionPlan:
        """Return the plan that :meth:`to_dict` wrote."""
        return cls(
            **{
                **data,
                "mounts": tuple(Mount(**mount) for mount in data["mounts"]),
                "apps": tuple(App(**app) for app in data.get("apps", ())),
                "published": tuple(PublishedPort(**port) for port in data.get("published", ())),
                "gateways": tuple(data.get("gateways", ())),
                "network": Network(**data["network"]) if data["network"] else None,
                "kernels": tuple(Kernel(**kernel) for kernel in data["kernels"]),
                "underlays": {agent: Underlay(**underlay) for agent, underlay in data["underlays"].items()},
                "agent_addresses": tuple(data["agent_addresses"]),
            }
        )

    def lines(self) -> list[str]:
        """Return the plan for people, a line for each thing that would be made."""
        images = ", ".join(self.images)
        text = [f"session {self.name}: {self.cluster_mode}, {len(self.kernels)} containers of {images}"]
        if self.network:
            vni = f", vni {self.network.vni}" if self.network.vni else ""
            subnet = f" {self.network.subnet}" if self.network.subnet else ""
            text.append(f"network {self.network.driver}{subnet}, mtu {self.network.mtu}{vni}")
        return text + [
            f"{one.hostname} on {one.agent}: {_where(one)}, {format_slots(one.resources)}" for one in self.kernels
        ]


@dataclasses.dataclass(frozen=True)
class _Place:
    """Where a container meets the others."""

    agent: str
    address: str | None = None
    mac: str | None = None
    ssh_port: int = SSH_PORT


def make_plan(
    spec: SessionSpec,
    placement: Placement,
    agents: Sequence[AgentFacts],
    pools: Pools,
    session_id: str,
    user: str,
    now: float,
) -> SessionPlan:
    """Return the plan of a session placed on agents: the same input gives the same plan.

    ``agents`` are all that were read; only those of the placement count. Raises :class:`PlanError` when the pool of
    addresses or network identifiers is exhausted, an agent's underlay address is not known or its MTU too small, or
    the port of the tunnels is taken.
    """
    by_name = {agent.name: agent for agent in agents}
    chosen = [by_name[name] for name in placement.agents]
    network = make_network(spec, chosen, agents, pools, session_id)
    meeting = network is not None and network.driver in ("vxlan", HOST_NETWORK)
    kernels = _kernels(spec, session_id, _places(placement.hosts, network, by_name, pools, session_id))
    main1s = kernels[0].agent
    sharing = network is not None and network.driver == HOST_NETWORK
    own_ssh_ports = [kernel.ssh_port for kernel in kernels if sharing and kernel.agent == main1s]
    return SessionPlan(
        id=session_id,
        name=spec.name,
        user=user,
        cluster_mode="multi-node" if len(chosen) > 1 else "single-node",
        requested_cluster_mode=spec.cluster_mode,
        resource_group=spec.resource_group,
        command=spec.command,
        failure_policy=spec.failure_policy,
        mounts=spec.mounts,
        network=network,
        kernels=kernels,
        underlays={agent.name: agent.underlay for agent in chosen if meeting and agent.underlay},
        agent_addresses=addressing.collapsed(address for agent in agents for address in agent.addresses),
        created_at=now,
        command_scope=spec.command_scope,
        apps=spec.apps,
        uid=spec.uid,
        gid=spec.gid,
        infiniband=spec.infiniband,
        published=publish(spec.apps, by_name[main1s], pools, session_id, own_ssh_ports),
        gateways=tuple(pools.gateways),
    )


def _where(kernel: Kernel) -> str:
    port = f":{kernel.ssh_port}" if kernel.ssh_port != SSH_PORT else ""
    return f"{kernel.address or '-'}{port}"


def _kernels(spec: SessionSpec, session_id: str, places: Sequence[_Place]) -> tuple[Kernel, ...]:
    members = [(role, index) for role in spec.groups for index in range(1, role.replicas + 1)]
    return tuple(
        _kernel(spec.name, session_id, role, index, rank, places[rank]) for rank, (role, index) in enumerate(members)
    )


def _kernel(name: str, session_id: str, role: Role, index: int, rank: int, place: _Place) -> Kernel:
    hostname = f"{role.name}{index}"
    return Kernel(
        id=session_id if role.name == MAIN else str(uuid.uuid5(uuid.UUID(session_id), hostname)),
        role=role.name,
        index=index,
        rank=rank,
        hostname=hostname,
        image=role.image,
        resources=dict(role.resources),
        container=f"backendai-{name}-{hostname}",
        **dataclasses.asdict(place),
    )


def _places(
    hosts: Sequence[str], network: Network | None, agents: Mapping[str, AgentFacts], pools: Pools, session_id: str
) -> list[_Place]:
    """Return where each container meets the others, in rank order."""
    if network is None:
        return [_Place(agent) for agent in hosts]
    if network.subnet is not None:
        addresses = [addressing.address_of(network.subnet, rank) for rank in range(len(hosts))]
        # Engine 20.10 takes no MAC for an overlay, and Swarm needs none.
        macs = [None if network.manager else addressing.mac_of(address) for address in addresses]
        return [_Place(*place) for place in zip(hosts, addresses, macs)]
    first, last = pools.first_host_port, pools.last_host_port
    free = {name: addressing.free_ports(first, last, agents[name].tcp_ports, session_id) for name in set(hosts)}
    return [_host_place(agents[name], next(free[name], None), pools) for name in hosts]


def _host_place(agent: AgentFacts, port: int | None, pools: Pools) -> _Place:
    if port is None:
        pool = f"{pools.first_host_port}-{pools.last_host_port}"
        raise PlanError(f"session_host_port_pool: {pool} has no port left on {agent.name}")
    return _Place(agent.name, agent.underlay.address if agent.underlay else None, None, port)
