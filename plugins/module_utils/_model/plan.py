# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The decided session: who runs what where, under which names and addresses. It holds no secret."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from .network import HOST_NETWORK, SESSION_INTERFACE, Network, Underlay
from .plain_data import from_plain, to_plain
from .quantity import format_slots
from .session import ALL, MAIN, MAIN1, SSH_PORT, App, Mount, PublishedPort


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
        manager = [self.network.swarm_manager] if self.network and self.network.swarm_manager else []
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
        return bool(self.command) and (self.command_scope == ALL or hostname == MAIN1)

    def interface_on(self, agent: str) -> str:
        """Return the interface at which containers on ``agent`` meet the others, by its name inside of them.

        Docker Swarm names it when a container starts: then it is empty.
        """
        if self.network is not None and self.network.swarm_manager:
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
        published = [published_port.host_port for published_port in self.published_on(agent)]
        return list(dict.fromkeys([*self.host_ports(agent), *published]))

    def to_dict(self) -> dict[str, Any]:
        """Return the plan as plain data; :meth:`from_dict` gives it back."""
        return to_plain(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> SessionPlan:
        """Return the plan that :meth:`to_dict` wrote. Raises :class:`DataError` for what it did not."""
        return from_plain(cls, data, "the plan of a session is damaged")

    def lines(self) -> list[str]:
        """Return the plan for people, a line for each thing that would be made."""
        images = ", ".join(self.images)
        text = [f"session {self.name}: {self.cluster_mode}, {len(self.kernels)} containers of {images}"]
        if self.network:
            vni = f", vni {self.network.vni}" if self.network.vni else ""
            subnet = f" {self.network.subnet}" if self.network.subnet else ""
            text.append(f"network {self.network.driver}{subnet}, mtu {self.network.mtu}{vni}")
        return text + [
            f"{kernel.hostname} on {kernel.agent}: {_format_endpoint(kernel)}, {format_slots(kernel.resources)}"
            for kernel in self.kernels
        ]


def _format_endpoint(kernel: Kernel) -> str:
    port = f":{kernel.ssh_port}" if kernel.ssh_port != SSH_PORT else ""
    return f"{kernel.address or '-'}{port}"
