# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Plans the network links of a session on an agent: its bridge, its tunnel, and the interfaces of its containers."""

from __future__ import annotations

import ipaddress

from .._docker import containers, labels
from .._docker.sdk import docker
from .._host.store import LocalSession
from .._model.network import DEFAULT_BRIDGE, SESSION_INTERFACE
from .._model.plan import Kernel, SessionPlan
from .._network.bridge import desired_bridge, plan_bridge
from .._network.iproute import LinkOperation, LinkState
from .._network.veth import InterfacePlan, VethInterface, plan_veths
from .._network.vxlan import desired_vxlan, plan_vxlan

DEFAULT_INTERFACE = "eth0"


def plan_links(plan: SessionPlan, agent: str, state: LinkState) -> list[LinkOperation]:
    """Return what must change for the session's bridge and tunnel to match the plan. Needs no engine."""
    bridge, link = desired_bridge(plan), desired_vxlan(plan, agent)
    return [*(plan_bridge(bridge, state) if bridge else []), *(plan_vxlan(link, state) if link else [])]


def plan_interfaces(client: docker.APIClient, session: LocalSession) -> InterfacePlan:
    """Return what must change for the interfaces of this agent's running containers to match the plan."""
    running = [
        container
        for container in containers.find_containers(client, session.plan.id)
        if container["State"] == "running"
    ]
    pids = {
        container["Labels"].get(labels.HOSTNAME): containers.pid_of(client, container["Id"]) for container in running
    }
    running_kernels = [(kernel, pids[kernel.hostname]) for kernel in session.kernels if pids.get(kernel.hostname)]
    return plan_veths(port for kernel, pid in running_kernels for port in _veth_interfaces(session.plan, kernel, pid))


def _veth_interfaces(plan: SessionPlan, kernel: Kernel, pid: int) -> list[VethInterface]:
    network = plan.network
    if plan.host_ports(kernel.agent):
        return []
    ports = [VethInterface(kernel.hostname, pid, DEFAULT_INTERFACE, DEFAULT_BRIDGE)]
    if network and network.bridge and network.subnet:
        address = f"{kernel.address}/{ipaddress.IPv4Network(network.subnet).prefixlen}"
        ports.append(
            VethInterface(kernel.hostname, pid, SESSION_INTERFACE, network.bridge, address, kernel.mac, network.mtu)
        )
    return ports
