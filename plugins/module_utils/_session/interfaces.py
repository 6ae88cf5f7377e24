# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Makes the networks of a session's running containers on an agent as planned.

One function for a container that has just started, was restarted from outside, or has lost its tunnel.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Mapping
from typing import Any

from .._docker import containers, labels
from .._docker.sdk import docker
from .._firewall.sync import sync_ruleset
from .._firewall.translation import plan_translation
from .._host.store import LocalSession, Store
from .._model.change import Change
from .._model.network import SESSION_INTERFACE
from .._model.plan import Kernel, SessionPlan
from .._network.container import (
    DEFAULT_INTERFACE,
    ContainerNetwork,
    Endpoint,
    InterfacePlan,
    SessionInterface,
    plan_container_networks,
)
from .._network.iproute import LinkOperation, LinkState, apply_operations


def plan_interfaces(client: docker.APIClient, session: LocalSession, state: LinkState | None = None) -> InterfacePlan:
    """Return what must change for the networks of this agent's running containers to be as planned.

    ``state`` is a snapshot of this host, by default a new one.
    """
    if session.plan.host_ports(session.agent):
        return InterfacePlan([], {})
    kernels = {kernel.hostname: kernel for kernel in session.kernels}
    desired = [
        _container_network(session.plan, kernels[hostname], containers.inspect(client, container["Id"]))
        for container in containers.find_containers(client, session.plan.id)
        if container["State"] == "running" and (hostname := container["Labels"].get(labels.HOSTNAME)) in kernels
    ]
    running = [network for network in desired if network]
    plan = plan_container_networks(running, state or LinkState())
    repairable = [network for network in running if network.hostname not in plan.lost]
    return InterfacePlan([*plan.steps, *(step for network in repairable for step in _translate(network))], plan.lost)


def apply_interfaces(store: Store, steps: Iterable[LinkOperation]) -> list[Change]:
    """Apply the steps of a plan: ports and links of this host, then the rules that admit them, then the containers."""
    listed = list(steps)
    if not listed:
        return []
    changes = sync_ruleset(store, check_mode=False, ports=[step for step in listed if step.pid is None])
    apply_operations(step for step in listed if step.pid is not None)
    return changes


def _container_network(plan: SessionPlan, kernel: Kernel, inspected: Mapping[str, Any]) -> ContainerNetwork | None:
    """Return the desired network of a container; ``None`` if it has ended."""
    pid = inspected["State"]["Pid"]
    endpoint = _default_endpoint(plan, inspected["NetworkSettings"]["Networks"])
    if not pid or endpoint is None:
        return None
    return ContainerNetwork(kernel.hostname, pid, endpoint, _session_interface(plan, kernel))


def _translate(network: ContainerNetwork) -> list[LinkOperation]:
    if network.session is None:
        return []
    address = network.session.address.partition("/")[0]
    subnet = str(ipaddress.IPv4Interface(network.endpoint.address).network)
    return plan_translation(network.hostname, network.pid, DEFAULT_INTERFACE, address, subnet)


def _default_endpoint(plan: SessionPlan, endpoints: Mapping[str, Mapping[str, Any]]) -> Endpoint | None:
    """Return a container's endpoint on the agent's default network: the one that is not on the session's."""
    session_network = plan.network and plan.network.engine_network
    for name, endpoint in endpoints.items():
        if name != session_network and endpoint["IPAddress"]:
            address = f"{endpoint['IPAddress']}/{endpoint['IPPrefixLen']}"
            return Endpoint(address, endpoint["MacAddress"].lower(), endpoint["Gateway"])
    return None


def _session_interface(plan: SessionPlan, kernel: Kernel) -> SessionInterface | None:
    network = plan.network
    if network is None or network.subnet is None:
        return None
    address = f"{kernel.address}/{ipaddress.IPv4Network(network.subnet).prefixlen}"
    if network.swarm_manager:
        return SessionInterface("", address)
    return SessionInterface(
        SESSION_INTERFACE,
        address,
        kernel.mac,
        network.mtu,
        parent=None if network.bridge else network.link,
        bridge=network.bridge,
    )
