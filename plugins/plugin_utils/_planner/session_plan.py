# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Makes a plan from a request and a placement: names, addresses and ports."""

from __future__ import annotations

import dataclasses
import uuid
from collections.abc import Mapping, Sequence

from ...module_utils._model import addressing
from ...module_utils._model.facts import AgentFacts
from ...module_utils._model.network import HOST_NETWORK, Network
from ...module_utils._model.plan import Kernel, SessionPlan
from ...module_utils._model.session import MAIN, SSH_PORT, container_name
from .._placement.place import Placement
from .._request.roles import Role
from .._request.run_options import NetworkPools
from .._request.spec import SessionSpec
from .published_ports import allocate_published_ports
from .session_network import UnfitAgentsError, make_network


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
    or the VXLAN port is in use; :class:`UnfitAgentsError` if another agent may have the ports that one lacks.
    """
    by_name = {agent.name: agent for agent in agents}
    chosen = [by_name[name] for name in placement.agents]
    network = make_network(spec, chosen, pools, session_id)
    uses_underlay = network is not None and network.driver in ("vxlan", HOST_NETWORK)
    kernels = _make_kernels(
        spec, session_id, _make_attachments(spec, placement.hosts, network, by_name, pools, session_id)
    )
    main_agent = kernels[0].agent
    shares_host = network is not None and network.driver == HOST_NETWORK
    own_ssh_port = kernels[0].ssh_port if shares_host else None
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
            for port in allocate_published_ports(spec.apps, by_name[main_agent], pools, session_id, own_ssh_port)
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
        container=container_name(name, hostname),
        **dataclasses.asdict(place),
    )


def _make_attachments(
    spec: SessionSpec,
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
        return [
            _Attachment(agent, address, addressing.mac_of(address))
            for agent, address in zip(hosts, addresses, strict=True)
        ]
    first, last = pools.first_host_port, pools.last_host_port
    of_apps = {app.port for app in spec.apps}
    free = {
        name: addressing.free_ports(first, last, agents[name].tcp_ports | of_apps, session_id) for name in set(hosts)
    }
    return [_host_attachment(agents[name], next(free[name], None), pools) for name in hosts]


def _host_attachment(agent: AgentFacts, port: int | None, pools: NetworkPools) -> _Attachment:
    if port is None:
        pool = f"{pools.first_host_port}-{pools.last_host_port}"
        raise UnfitAgentsError({agent.name: f"session_host_port_pool: {pool} has no port left on {agent.name}"})
    return _Attachment(agent.name, agent.underlay.address if agent.underlay else None, None, port)


def _find_origins(spec: SessionSpec, name: str, pools: NetworkPools) -> tuple[str, ...]:
    """Return the origins by which all gateways offer an app."""
    paths = [app.path for app in spec.apps if app.name == name and app.protocol == "http"]
    return tuple(
        dict.fromkeys(
            origin for path in paths for site in pools.sites for origin in site.app_origins(spec.name, name, path)
        )
    )
