# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The decided session: who runs what where, under which names and addresses. It holds no secret."""

from __future__ import annotations

import dataclasses
import uuid
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ansible_collections.backendai.cluster.plugins.module_utils._core import addressing
from ansible_collections.backendai.cluster.plugins.module_utils._core.facts import AgentFacts
from ansible_collections.backendai.cluster.plugins.module_utils._core.mounts import Mount
from ansible_collections.backendai.cluster.plugins.module_utils._core.placement import Placement
from ansible_collections.backendai.cluster.plugins.module_utils._core.quantity import format_slots
from ansible_collections.backendai.cluster.plugins.module_utils._core.roles import MAIN, Role
from ansible_collections.backendai.cluster.plugins.module_utils._core.run import Pools
from ansible_collections.backendai.cluster.plugins.module_utils._core.spec import SessionSpec

INTERFACE_PREFIX = "cluster"
"""The engine appends a number, so that the session interface of every container is ``cluster0``."""


class PlanError(ValueError):
    """The session can never start as asked on these agents; one sentence."""


@dataclasses.dataclass(frozen=True)
class Kernel:
    """One container of the session.

    ``resources`` are bytes for memory, counts for the rest. ``address`` and ``mac`` are on the session network, absent
    in a session of one.
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


@dataclasses.dataclass(frozen=True)
class Network:
    """The session's network. ``vni`` and ``port`` are those of the VXLAN, ``None`` on a private bridge.

    ``bridge`` and ``link`` are names of interfaces on the agents; ``mtu`` is in bytes.
    """

    driver: str
    name: str
    subnet: str
    mtu: int
    bridge: str
    vni: int | None = None
    port: int | None = None
    link: str | None = None


@dataclasses.dataclass(frozen=True)
class SessionPlan:
    """Everything that is decided about a session.

    ``underlays`` are the tunnel addresses of its agents. ``command`` is the text of a batch session's shell command,
    empty for others; ``failure_policy`` says what follows when a container dies. ``user`` is whose share it counts to.
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
    underlays: dict[str, str]
    created_at: float

    @property
    def agents(self) -> list[str]:
        """The agents that take part, in rank order."""
        return list(dict.fromkeys(kernel.agent for kernel in self.kernels))

    @property
    def images(self) -> list[str]:
        """The images of all containers, in rank order."""
        return list(dict.fromkeys(kernel.image for kernel in self.kernels))

    def kernels_on(self, agent: str) -> list[Kernel]:
        """Return the containers of one agent, in rank order."""
        return [kernel for kernel in self.kernels if kernel.agent == agent]

    def to_dict(self) -> dict[str, Any]:
        """Return the plan as plain data; :meth:`from_dict` gives it back."""
        data = dataclasses.asdict(self)
        return {**data, "mounts": list(data["mounts"]), "kernels": list(data["kernels"])}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> SessionPlan:
        """Return the plan that :meth:`to_dict` wrote."""
        return cls(
            **{
                **data,
                "mounts": tuple(Mount(**mount) for mount in data["mounts"]),
                "network": Network(**data["network"]) if data["network"] else None,
                "kernels": tuple(Kernel(**kernel) for kernel in data["kernels"]),
            }
        )

    def lines(self) -> list[str]:
        """Return the plan for people, a line for each thing that would be made."""
        images = ", ".join(self.images)
        text = [f"session {self.name}: {self.cluster_mode}, {len(self.kernels)} containers of {images}"]
        if self.network:
            vni = f", vni {self.network.vni}" if self.network.vni else ""
            text.append(f"network {self.network.driver} {self.network.subnet}, mtu {self.network.mtu}{vni}")
        return text + [
            f"{one.hostname} on {one.agent}: {one.address or '-'}, {format_slots(one.resources)}"
            for one in self.kernels
        ]


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
    addresses or network identifiers is exhausted, or an agent's underlay address is not known or its MTU too small.
    """
    by_name = {agent.name: agent for agent in agents}
    chosen = [by_name[name] for name in placement.agents]
    network = _network(spec, chosen, pools, session_id)
    tunnelled = network is not None and network.driver == "vxlan"
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
        kernels=_kernels(spec, session_id, placement.hosts, network),
        underlays={agent.name: agent.underlay.address for agent in chosen if tunnelled and agent.underlay},
        created_at=now,
    )


def _kernels(spec: SessionSpec, session_id: str, hosts: Sequence[str], network: Network | None) -> tuple[Kernel, ...]:
    members = [(role, index) for role in spec.groups for index in range(1, role.replicas + 1)]
    return tuple(
        _kernel(spec.name, session_id, role, index, rank, hosts[rank], network)
        for rank, (role, index) in enumerate(members)
    )


def _kernel(
    name: str, session_id: str, role: Role, index: int, rank: int, agent: str, network: Network | None
) -> Kernel:
    hostname = f"{role.name}{index}"
    address = addressing.address_of(network.subnet, rank) if network else None
    return Kernel(
        id=session_id if role.name == MAIN else str(uuid.uuid5(uuid.UUID(session_id), hostname)),
        role=role.name,
        index=index,
        rank=rank,
        hostname=hostname,
        agent=agent,
        image=role.image,
        resources=dict(role.resources),
        address=address,
        mac=addressing.mac_of(address) if address else None,
        container=f"backendai-{name}-{hostname}",
    )


def _network(spec: SessionSpec, chosen: Sequence[AgentFacts], pools: Pools, session_id: str) -> Network | None:
    if spec.cluster_size == 1:
        return None
    used = [network for agent in chosen for network in agent.networks]
    subnet = addressing.pick_subnet(pools.network, spec.cluster_size, used, session_id)
    if subnet is None:
        raise PlanError(f"session_network_pool: {pools.network} has no subnet left for {spec.cluster_size} containers")
    name, bridge = f"backendai-{spec.name}", f"bai-{_tag(session_id)}"
    if len(chosen) == 1:
        return Network("bridge", name, subnet, addressing.DEFAULT_MTU, bridge)
    vni = addressing.pick_vni(pools.first_vni, pools.last_vni, [v for agent in chosen for v in agent.vnis], session_id)
    if vni is None:
        raise PlanError(f"session_vni_pool: {pools.first_vni}-{pools.last_vni} has no network identifier left")
    mtu = addressing.vxlan_mtu(_underlays(chosen))
    return Network("vxlan", name, subnet, mtu, bridge, vni, pools.vxlan_port, link_of(session_id))


def link_of(session_id: str) -> str:
    """Return the name of a session's VXLAN link, the same on every agent; names of links have 15 characters at most."""
    return f"bax-{_tag(session_id)}"


def _tag(session_id: str) -> str:
    return session_id.replace("-", "")[:10]


def _underlays(chosen: Iterable[AgentFacts]) -> list[tuple[str, int]]:
    """Return (address, MTU) of every agent; a tunnel needs them all, and room for the smallest frame."""
    found = []
    for agent in chosen:
        if agent.underlay is None:
            raise PlanError(f"agent_underlay_address: no address of {agent.name} is known that its peers could reach")
        least = addressing.MIN_MTU + addressing.overhead(agent.underlay.address)
        if agent.underlay.mtu < least:
            here = f"{agent.underlay.interface} of {agent.name} has an MTU of {agent.underlay.mtu}"
            raise PlanError(f"agent_underlay_address: {here}, a tunnel needs at least {least}")
        found.append((agent.name, agent.underlay.address, agent.underlay.mtu))
    name, address, _mtu = found[0]
    for other, peer, _mtu in found:
        if (":" in peer) != (":" in address):
            both = f"{name} has {address} and {other} has {peer}"
            raise PlanError(f"agent_underlay_address: {both}, a tunnel needs addresses of one kind")
    return [(address, mtu) for _name, address, mtu in found]
