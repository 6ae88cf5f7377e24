# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The ports of main1 that its agent publishes for gateways: that of its sshd, and those of its apps. No sub has any."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence

from ansible_collections.backendai.cluster.plugins.module_utils._model import addressing
from ansible_collections.backendai.cluster.plugins.module_utils._model.facts import AgentFacts
from ansible_collections.backendai.cluster.plugins.module_utils._model.session import SSH, SSH_PORT, App, PublishedPort
from ansible_collections.backendai.cluster.plugins.plugin_utils._planner.session_network import PlanError
from ansible_collections.backendai.cluster.plugins.plugin_utils._request.run_options import Pools


def publish(
    apps: Sequence[App], agent: AgentFacts, pools: Pools, session_id: str, own_ssh_ports: Sequence[int]
) -> tuple[PublishedPort, ...]:
    """Return what main1 publishes on its agent: nothing where there is no gateway that could reach it.

    ``own_ssh_ports`` are where sshds of the session, main1's first, listen on the agent's own network, should they
    share it: then everything is reached where it listens, and nothing has to be translated. Raises :class:`PlanError`
    when the agent's address is not known, or its ports are used up.
    """
    if not pools.gateways:
        return ()
    address = _address(agent)
    if own_ssh_ports:
        _refuse_taken(apps, agent, own_ssh_ports)
        shared = [PublishedPort(app.name, app.protocol, app.port, address, app.port) for app in apps]
        return (PublishedPort(SSH, "tcp", own_ssh_ports[0], address, own_ssh_ports[0]), *shared)
    inside = [(SSH, "tcp", SSH_PORT), *((app.name, app.protocol, app.port) for app in apps)]
    ports = _ports(agent, pools, len(inside), session_id)
    return tuple(PublishedPort(*one, address, port) for one, port in zip(inside, ports, strict=True))


def _refuse_taken(apps: Iterable[App], agent: AgentFacts, own_ssh_ports: Sequence[int]) -> None:
    for app in apps:
        if app.port in agent.tcp_ports or app.port in own_ssh_ports:
            raise PlanError(f"session_apps: the port {app.port} of {app.name} is in use on {agent.name} itself")


def _address(agent: AgentFacts) -> str:
    """Return where gateways reach an agent; under encryption, its peers alone reach the address of the underlay."""
    if agent.underlay is None:
        raise PlanError(f"agent_underlay_address: no address of {agent.name} is known that gateways could reach")
    endpoint = agent.underlay.endpoint.rpartition(":")[0].strip("[]")
    return endpoint or agent.underlay.address


def _ports(agent: AgentFacts, pools: Pools, wanted: int, session_id: str) -> list[int]:
    first, last = pools.first_published_port, pools.last_published_port
    free = addressing.free_ports(first, last, agent.tcp_ports, session_id)
    ports = list(itertools.islice(free, wanted))
    if len(ports) < wanted:
        raise PlanError(f"session_published_port_pool: {first}-{last} has no {wanted} ports left on {agent.name}")
    return ports
