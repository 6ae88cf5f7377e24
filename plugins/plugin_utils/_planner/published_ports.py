# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The ports that main1 publishes on its agent, and whether an agent has as many."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence

from ...module_utils._model import addressing
from ...module_utils._model.facts import AgentFacts
from ...module_utils._model.session import SSH, SSH_PORT, App, PublishedPort
from .._request.run_options import NetworkPools
from .session_network import PlanningError, UnfitAgentsError


def allocate_published_ports(
    apps: Sequence[App], agent: AgentFacts, pools: NetworkPools, session_id: str, own_ssh_port: int | None
) -> tuple[PublishedPort, ...]:
    """Return the ports that main1 publishes on its agent: empty if there is no gateway.

    ``own_ssh_port`` is that of main1's sshd on its agent's own network, if it is there: published ports are then
    the ports that the processes listen on, without translation. Raises :class:`PlanningError` if the agent's address is
    unknown, and :class:`UnfitAgentsError` if it has too few ports.
    """
    if not pools.gateways:
        return ()
    address = gateway_address(agent)
    if own_ssh_port is not None:
        _check_app_ports(apps, agent)
        shared = [PublishedPort(app.name, app.protocol, app.port, address, app.port) for app in apps]
        return (PublishedPort(SSH, "tcp", own_ssh_port, address, own_ssh_port), *shared)
    inside = [(SSH, "tcp", SSH_PORT), *((app.name, app.protocol, app.port) for app in apps)]
    ports = _pick_ports(agent, pools, len(inside), session_id)
    return tuple(PublishedPort(*endpoint, address, port) for endpoint, port in zip(inside, ports, strict=True))


def _check_app_ports(apps: Iterable[App], agent: AgentFacts) -> None:
    for app in apps:
        if app.port in _reserved(agent):
            problem = (
                f"session_apps: an ended session keeps the port {app.port} of {app.name} on {agent.name} until all"
            )
            raise UnfitAgentsError({agent.name: f"{problem} gateways have confirmed that its route is gone: {_REMEDY}"})
        if app.port in agent.tcp_ports:
            problem = f"session_apps: the port {app.port} of {app.name} is in use on {agent.name} itself"
            raise UnfitAgentsError({agent.name: problem})


def gateway_address(agent: AgentFacts) -> str:
    """Return the address at which gateways reach an agent.

    Raises :class:`PlanningError` if it is unknown.
    """
    if agent.underlay is None:
        raise PlanningError(f"agent_underlay_address: no address of {agent.name} is known that gateways could reach")
    return agent.underlay.host


def _pick_ports(agent: AgentFacts, pools: NetworkPools, count: int, session_id: str) -> list[int]:
    problem = describe_lack(agent, pools, count)
    if problem:
        raise UnfitAgentsError({agent.name: problem})
    first, last = pools.first_published_port, pools.last_published_port
    return list(itertools.islice(addressing.free_ports(first, last, agent.tcp_ports, session_id), count))


def needed_ports(apps: Sequence[App], pools: NetworkPools) -> int:
    """Return how many ports of the pool a session needs on main1's agent: those of its sshd and its apps.

    Raises :class:`PlanningError` if the pool has fewer, whatever is in use.
    """
    needed = len(apps) + 1 if pools.gateways else 0
    first, last = pools.first_published_port, pools.last_published_port
    if needed > last - first + 1:
        raise PlanningError(
            f"session_published_port_pool: {first}-{last} has fewer ports than the {needed} that are needed"
        )
    return needed


def count_free(agent: AgentFacts, pools: NetworkPools) -> int:
    """Return how many ports of the pool are free on an agent."""
    first, last = pools.first_published_port, pools.last_published_port
    return last - first + 1 - sum(first <= port <= last for port in agent.tcp_ports)


def describe_lack(agent: AgentFacts, pools: NetworkPools, needed: int) -> str:
    """Return why an agent cannot publish so many ports; empty if it can."""
    if count_free(agent, pools) >= needed:
        return ""
    first, last = pools.first_published_port, pools.last_published_port
    problem = f"session_published_port_pool: {first}-{last} has fewer free ports on {agent.name} than the {needed}"
    problem += " that are needed"
    reserved = len([port for port in _reserved(agent) if first <= port <= last])
    if reserved:
        problem += f"; ended sessions keep {reserved} until all gateways have confirmed that their routes are gone"
        problem += f": {_REMEDY}"
    return problem


_REMEDY = "make every gateway of the inventory reachable, or remove it there, and run schedule_sessions"


def _reserved(agent: AgentFacts) -> set[int]:
    """Return the ports that ended sessions published, and that a gateway may still have a route to."""
    return {port for ports in agent.reserved_ports.values() for port in ports}
