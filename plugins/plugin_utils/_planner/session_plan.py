# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Makes a plan from a request and a placement: names, addresses and ports."""

from __future__ import annotations

import dataclasses
import itertools
import uuid
from collections.abc import Iterable, Mapping, Sequence

from ...module_utils._model import addressing
from ...module_utils._model.facts import AgentFacts
from ...module_utils._model.network import HOST_NETWORK, Network
from ...module_utils._model.plan import Kernel, SessionPlan
from ...module_utils._model.session import MAIN, SSH, SSH_PORT, App, PublishedPort
from .._placement.place import Placement
from .._request.roles import Role
from .._request.run_options import NetworkPools
from .._request.spec import SessionSpec
from .session_network import PlanningError, make_network


@dataclasses.dataclass(frozen=True)
class _Attachment:
    """How a container is attached to the session's network."""

    agent: str
    address: str | None = None
    mac: str | None = None
    ssh_port: int = SSH_PORT


def make_plan(
    spec: SessionSpec,
    placement: Placement,
    agents: Sequence[AgentFacts],
    pools: NetworkPools,
    session_id: str,
    user: str,
    now: float,
) -> SessionPlan:
    """Return the plan of a placed session, deterministically.

    ``agents`` are all agents with facts, including those outside the placement. Raises :class:`PlanningError` if the
    pool of addresses or network identifiers is exhausted, an agent's underlay address is unknown or its MTU too small,
    or the VXLAN port is in use.
    """
    by_name = {agent.name: agent for agent in agents}
    chosen = [by_name[name] for name in placement.agents]
    network = make_network(spec, chosen, agents, pools, session_id)
    uses_underlay = network is not None and network.driver in ("vxlan", HOST_NETWORK)
    kernels = _make_kernels(spec, session_id, _make_attachments(placement.hosts, network, by_name, pools, session_id))
    main_agent = kernels[0].agent
    shares_host = network is not None and network.driver == HOST_NETWORK
    own_ssh_ports = [kernel.ssh_port for kernel in kernels if shares_host and kernel.agent == main_agent]
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
        underlays={agent.name: agent.underlay for agent in chosen if uses_underlay and agent.underlay},
        agent_addresses=addressing.collapse(address for agent in agents for address in agent.addresses),
        created_at=now,
        command_scope=spec.command_scope,
        apps=spec.apps,
        uid=spec.uid,
        gid=spec.gid,
        infiniband=spec.infiniband,
        published=tuple(
            dataclasses.replace(port, origins=_find_origins(spec, port.name, pools))
            for port in allocate_published_ports(spec.apps, by_name[main_agent], pools, session_id, own_ssh_ports)
        ),
        gateways=tuple(pools.gateways),
        stop_grace=spec.stop_grace,
        stop_command=spec.stop_command,
        max_lifetime=spec.max_lifetime or pools.max_lifetime,
        idle_timeout=spec.idle_timeout or pools.idle_timeout,
        no_new_privileges=spec.no_new_privileges,
        gpu=spec.gpu,
    )


def _make_kernels(spec: SessionSpec, session_id: str, places: Sequence[_Attachment]) -> tuple[Kernel, ...]:
    members = [(role, index) for role in spec.effective_roles for index in range(1, role.replicas + 1)]
    return tuple(
        _make_kernel(spec.name, session_id, role, index, rank, places[rank])
        for rank, (role, index) in enumerate(members)
    )


def _make_kernel(name: str, session_id: str, role: Role, index: int, rank: int, place: _Attachment) -> Kernel:
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


def _make_attachments(
    hosts: Sequence[str],
    network: Network | None,
    agents: Mapping[str, AgentFacts],
    pools: NetworkPools,
    session_id: str,
) -> list[_Attachment]:
    """Return the attachment of each container, in rank order."""
    if network is None:
        return [_Attachment(agent) for agent in hosts]
    if network.subnet is not None:
        addresses = [addressing.address_of(network.subnet, rank) for rank in range(len(hosts))]
        # Docker 20.10 accepts no MAC address for an overlay, and Swarm needs none.
        macs = [None if network.swarm_manager else addressing.mac_of(address) for address in addresses]
        return [_Attachment(*place) for place in zip(hosts, addresses, macs, strict=True)]
    first, last = pools.first_host_port, pools.last_host_port
    free = {name: addressing.free_ports(first, last, agents[name].tcp_ports, session_id) for name in set(hosts)}
    return [_host_attachment(agents[name], next(free[name], None), pools) for name in hosts]


def _host_attachment(agent: AgentFacts, port: int | None, pools: NetworkPools) -> _Attachment:
    if port is None:
        pool = f"{pools.first_host_port}-{pools.last_host_port}"
        raise PlanningError(f"session_host_port_pool: {pool} has no port left on {agent.name}")
    return _Attachment(agent.name, agent.underlay.address if agent.underlay else None, None, port)


def allocate_published_ports(
    apps: Sequence[App], agent: AgentFacts, pools: NetworkPools, session_id: str, own_ssh_ports: Sequence[int]
) -> tuple[PublishedPort, ...]:
    """Return the ports that main1 publishes on its agent: empty if there is no gateway.

    ``own_ssh_ports`` are the ports of the session's sshds on the network of main1's agent, main1's first, if they share
    it: published ports are then the ports that the processes listen on, without translation. Raises
    :class:`PlanningError` if the agent's address is unknown, or its port pool is exhausted.
    """
    if not pools.gateways:
        return ()
    address = gateway_address(agent)
    if own_ssh_ports:
        _check_app_ports(apps, agent, own_ssh_ports)
        shared = [PublishedPort(app.name, app.protocol, app.port, address, app.port) for app in apps]
        return (PublishedPort(SSH, "tcp", own_ssh_ports[0], address, own_ssh_ports[0]), *shared)
    inside = [(SSH, "tcp", SSH_PORT), *((app.name, app.protocol, app.port) for app in apps)]
    ports = _pick_ports(agent, pools, len(inside), session_id)
    return tuple(PublishedPort(*endpoint, address, port) for endpoint, port in zip(inside, ports, strict=True))


def _find_origins(spec: SessionSpec, name: str, pools: NetworkPools) -> tuple[str, ...]:
    """Return the origins by which all gateways offer an app."""
    paths = [app.path for app in spec.apps if app.name == name and app.protocol == "http"]
    return tuple(
        dict.fromkeys(
            origin for path in paths for site in pools.sites for origin in site.app_origins(spec.name, name, path)
        )
    )


def _check_app_ports(apps: Iterable[App], agent: AgentFacts, own_ssh_ports: Sequence[int]) -> None:
    for app in apps:
        if app.port in _reserved(agent):
            raise PlanningError(
                f"session_apps: an ended session keeps the port {app.port} of {app.name} on {agent.name} until all"
                f" gateways have confirmed that its route is gone: {_REMEDY}"
            )
        if app.port in agent.tcp_ports or app.port in own_ssh_ports:
            raise PlanningError(f"session_apps: the port {app.port} of {app.name} is in use on {agent.name} itself")


def gateway_address(agent: AgentFacts) -> str:
    """Return the address at which gateways reach an agent.

    Raises :class:`PlanningError` if it is unknown.
    """
    if agent.underlay is None:
        raise PlanningError(f"agent_underlay_address: no address of {agent.name} is known that gateways could reach")
    return agent.underlay.host


def _pick_ports(agent: AgentFacts, pools: NetworkPools, count: int, session_id: str) -> list[int]:
    first, last = pools.first_published_port, pools.last_published_port
    free = addressing.free_ports(first, last, agent.tcp_ports, session_id)
    ports = list(itertools.islice(free, count))
    if len(ports) < count:
        problem = f"session_published_port_pool: {first}-{last} has fewer free ports on {agent.name} than the {count}"
        problem += " that are needed"
        reserved = len([port for port in _reserved(agent) if first <= port <= last])
        if reserved:
            problem += f"; ended sessions keep {reserved} until all gateways have confirmed that their routes are gone"
            problem += f": {_REMEDY}"
        raise PlanningError(problem)
    return ports


_REMEDY = "make every gateway of the inventory reachable, or remove it there, and run schedule_sessions"


def _reserved(agent: AgentFacts) -> set[int]:
    """Return the ports that ended sessions published, and that a gateway may still have a route to."""
    return {port for ports in agent.reserved_ports.values() for port in ports}
