# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Makes the networks of a session's running containers on an agent as planned.

One function for a container that has just started, was restarted from outside, or has lost its tunnel.
"""

from __future__ import annotations

import ipaddress
import itertools
import time
from collections.abc import Collection, Mapping
from typing import Any

from .._docker import containers
from .._docker.sdk import docker
from .._firewall.sync import admit_ports
from .._firewall.translation import plan_translation
from .._host.local_session import LocalSession
from .._host.store import Store
from .._host.threads import in_threads
from .._model.network import DEFAULT_BRIDGE, SESSION_INTERFACE
from .._model.plan import Kernel, SessionPlan
from .._network.container import (
    DEFAULT_INTERFACE,
    ContainerNetwork,
    Endpoint,
    InterfacePlan,
    SessionInterface,
    plan_container_networks,
)
from .._network.iproute import LinkOperation, LinkState, NetworkError, apply_operations
from .ownership import own_containers

RETRIES, RETRY_SECONDS = 4, 0.25


def plan_interfaces(
    client: docker.APIClient, store: Store, session: LocalSession, state: LinkState | None = None
) -> InterfacePlan:
    """Return what must change for the networks of this agent's running containers to be as planned.

    ``state`` is a snapshot of this host, by default a new one.
    """
    if session.plan.host_ports(session.agent):
        return InterfacePlan([], {})
    kernels = {kernel.hostname: kernel for kernel in session.kernels}
    links = state or LinkState()
    gateways = {entry["local"] for entry in links.addresses.get(DEFAULT_BRIDGE, [])}
    running, lost = [], {}
    for hostname, container in own_containers(client, store, session).items():
        kernel = kernels.get(hostname)
        inspected = containers.inspect(client, container["Id"])
        if kernel is None or not inspected["State"]["Pid"]:
            continue
        endpoint = _default_endpoint(inspected["NetworkSettings"]["Networks"], gateways)
        if endpoint is None:
            lost[kernel.hostname] = DEFAULT_INTERFACE
        else:
            session_interface = _session_interface(session.plan, kernel)
            pid, mtu = inspected["State"]["Pid"], links.way_out.mtu if links.way_out else None
            running.append(ContainerNetwork(kernel.hostname, pid, endpoint, session_interface, mtu))
    plan = plan_container_networks(running, links)
    repairable = [network for network in running if network.hostname not in plan.lost]
    translations = in_threads(lambda network: _translate(network, plan.incomplete), repairable)
    return InterfacePlan(
        [*plan.steps, *itertools.chain.from_iterable(translations)], {**lost, **plan.lost}, plan.incomplete
    )


def apply_interfaces(
    client: docker.APIClient, store: Store, session: LocalSession, plan: InterfacePlan, retries: int = RETRIES
) -> None:
    """Apply a plan; after an error, plan again and retry for a second.

    A container may have ended meanwhile, or the interface of one that was restarted may still exist. Raises
    :class:`NetworkError`.
    """
    try:
        _apply(store, plan.steps)
    except NetworkError:
        if not retries:
            raise
        time.sleep(RETRY_SECONDS)
        apply_interfaces(client, store, session, plan_interfaces(client, store, session), retries - 1)


def _apply(store: Store, steps: Collection[LinkOperation]) -> None:
    """Apply steps: ports and links of this host, then the rules that admit them, then inside the containers."""
    on_host = [step for step in steps if step.pid is None]
    if on_host:
        admit_ports(store, on_host)
    apply_operations(step for step in steps if step.pid is not None)


def _translate(network: ContainerNetwork, incomplete: Collection[str]) -> list[LinkOperation]:
    if network.session is None:
        return []
    address = network.session.address.partition("/")[0]
    subnet = str(ipaddress.IPv4Interface(network.endpoint.address).network)
    fresh = network.hostname in incomplete
    return plan_translation(network.hostname, network.pid, DEFAULT_INTERFACE, address, subnet, fresh=fresh)


def _default_endpoint(endpoints: Mapping[str, Mapping[str, Any]], gateways: Collection[str]) -> Endpoint | None:
    """Return a container's endpoint on the agent's default network: the one with the address of its bridge."""
    for endpoint in endpoints.values():
        if endpoint["IPAddress"] and endpoint["Gateway"] in gateways:
            address = f"{endpoint['IPAddress']}/{endpoint['IPPrefixLen']}"
            return Endpoint(address, endpoint["MacAddress"].lower(), endpoint["Gateway"])
    return None


def _session_interface(plan: SessionPlan, kernel: Kernel) -> SessionInterface | None:
    network = plan.network
    if network is None or network.subnet is None:
        return None
    address = f"{kernel.address}/{ipaddress.IPv4Network(network.subnet).prefixlen}"
    return SessionInterface(
        SESSION_INTERFACE,
        address,
        kernel.mac,
        network.mtu,
        parent=network.link,
        bridge=network.bridge,
    )
