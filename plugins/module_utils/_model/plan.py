# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The plan of a session: its containers with their agents, names and addresses. It contains no secrets."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import ipaddress
import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

from .addressing import is_address
from .devices import ANY_GPU, GpuRequest
from .network import HOST_NETWORK, SESSION_INTERFACE, Network, Underlay
from .plain_data import DataError, from_plain, to_plain
from .quantity import format_slots
from .session import (
    ALL,
    MAIN,
    MAIN1,
    MAX_APPS,
    MAX_GRACE,
    MAX_GROUPS,
    SSH_PORT,
    STOP_GRACE,
    App,
    Mount,
    PublishedPort,
    UserGroup,
    is_hostname,
    is_session_id,
)
from .timestamp import is_duration, is_time


@dataclasses.dataclass(frozen=True)
class Kernel:
    """One container of the session.

    ``resources`` are bytes for memory, counts for the rest. ``address`` and ``mac`` are on the session network; both
    are ``None`` in a session of one container. On the agents' own network ``address`` is the agent's, ``mac`` is
    ``None``, and each container of an agent has its own ``ssh_port``.
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
    """All decisions about a session.

    ``underlays`` are those of its agents, empty if the containers of different agents need no connection.
    ``agent_addresses`` are networks that cover the addresses of all agents known at planning time: containers cannot
    reach them. ``command`` is the shell command of a batch session, empty for others, and ``command_scope`` selects the
    containers that run it. ``failure_policy`` is the reaction to the failure of a container. The session belongs to
    ``user``, whose uid on the control node is ``user_uid``, if that is known, and counts towards the share of ``user``.
    ``uid`` and ``gid`` are those of user work, which is also in ``groups``. With ``infiniband`` every container has the
    agent's InfiniBand. The ``published`` ports of main1 on its agent accept connections from ``gateways``, the
    source addresses of gateways. At an end, main1 runs ``stop_command``, and all processes have ``stop_grace`` seconds.
    With ``no_new_privileges`` setuid programs give no privileges in its containers. Its NVIDIA GPUs are as in ``gpu``.
    The session ends when it has lived ``max_lifetime`` seconds, or has not been used for ``idle_timeout``; 0 for never.
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
    stop_grace: int = STOP_GRACE
    stop_command: str = ""
    max_lifetime: int = 0
    idle_timeout: int = 0
    user_uid: int | None = None
    no_new_privileges: bool = True
    gpu: GpuRequest = ANY_GPU
    groups: tuple[UserGroup, ...] = ()

    @property
    def agents(self) -> list[str]:
        """The agents of the session in rank order."""
        return list(dict.fromkeys(kernel.agent for kernel in self.kernels))

    @property
    def group_numbers(self) -> tuple[int, ...]:
        """The numbers of the supplementary groups of user work."""
        return tuple(group.number for group in self.groups)

    @property
    def images(self) -> list[str]:
        """The images of all containers, in rank order."""
        return list(dict.fromkeys(kernel.image for kernel in self.kernels))

    def kernels_on(self, agent: str) -> list[Kernel]:
        """Return the containers of one agent, in rank order."""
        return [*self._kernels_by_agent.get(agent, ())]

    @functools.cached_property
    def _kernels_by_agent(self) -> dict[str, list[Kernel]]:
        """The containers by agent: one that many agents share is asked for those of each."""
        by_agent: dict[str, list[Kernel]] = {}
        for kernel in self.kernels:
            by_agent.setdefault(kernel.agent, []).append(kernel)
        return by_agent

    def runs_command(self, hostname: str) -> bool:
        """Return whether a container runs the session's command, and exits with it."""
        return bool(self.command) and (self.command_scope == ALL or hostname == MAIN1)

    def interface_on(self, agent: str) -> str:
        """Return the name of the session interface inside containers on ``agent``."""
        return self.underlays[agent].interface if self.shares_host_network else SESSION_INTERFACE

    @property
    def shares_host_network(self) -> bool:
        """Whether containers share their agents' network."""
        return self.network is not None and self.network.driver == HOST_NETWORK

    @property
    def networks(self) -> str:
        """The networks of the containers' session addresses, such as ``10.128.3.0/29``, comma-separated, or empty."""
        if self.network is None:
            return ""
        hosts = dict.fromkeys(f"{kernel.address}/32" for kernel in self.kernels)
        return self.network.subnet or ",".join(hosts)

    def host_ports(self, agent: str) -> list[int]:
        """Return the SSH ports of containers that share the agent's network, in rank order."""
        return [kernel.ssh_port for kernel in self.kernels_on(agent) if self.shares_host_network]

    def published_on(self, agent: str) -> tuple[PublishedPort, ...]:
        """Return the published ports of main1 if it is on ``agent``."""
        return self.published if agent == self.kernels[0].agent else ()

    def tcp_ports(self, agent: str) -> list[int]:
        """Return all TCP ports that the session uses on an agent, without duplicates."""
        published = [published_port.host_port for published_port in self.published_on(agent)]
        return list(dict.fromkeys([*self.host_ports(agent), *published]))

    def to_dict(self) -> dict[str, Any]:
        """Return the plan as plain data, which :meth:`from_dict` reads."""
        return to_plain(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> SessionPlan:
        """Parse the plan that :meth:`to_dict` returned. Raises :class:`DataError` for damaged data."""
        plan = from_plain(cls, data, "the plan of a session is damaged")
        plan.check()
        return plan

    @functools.cached_property
    def digest(self) -> str:
        """The digest of the whole plan, by which a control node sees whether an agent has stored that of its record."""
        return hashlib.sha256(json.dumps(self.to_dict(), sort_keys=True).encode()).hexdigest()

    def check(self) -> None:
        """Raise :class:`DataError` for a plan that cannot be carried out, such as that of a damaged file.

        Its texts are parts of rules and commands that concern all sessions of an agent.
        """
        if self._problem:
            raise DataError(f"the plan of a session is damaged: {self._problem}")

    @functools.cached_property
    def _problem(self) -> str:
        return next(_problems(self), "")

    def lines(self) -> list[str]:
        """Return the plan as text: a line each for the session, its network and its containers."""
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


_INTERFACE = re.compile(r"[\w.-]{1,15}", re.ASCII)
_MAC = re.compile(r"([0-9a-f]{2}(:[0-9a-f]{2}){5})?", re.IGNORECASE)


def _problems(plan: SessionPlan) -> Iterator[str]:
    """Yield why a plan cannot be carried out."""
    kernels, network, underlays = plan.kernels, plan.network, plan.underlays.values()
    hostnames = [kernel.hostname for kernel in kernels]
    if not is_session_id(plan.id):
        yield "its id is not that of a session"
    if not hostnames or len({*hostnames}) < len(hostnames):
        yield "it has no containers, or two of one hostname"
    if not all(map(is_hostname, (plan.name, *hostnames))):
        yield "its name, or a hostname, has other characters than a-z, 0-9 and -"
    if len(plan.apps) > MAX_APPS or len(plan.published) > MAX_APPS + 1:
        yield f"it has more than {MAX_APPS} apps"
    yield from _group_problems(plan.groups)
    connected = plan.shares_host_network or (network is not None and network.vni is not None)
    if (connected or plan.underlays) and not plan.underlays.keys() >= {kernel.agent for kernel in kernels}:
        yield "an agent has no underlay"
    addresses = [*(kernel.address for kernel in kernels), *(published.address for published in plan.published)]
    networks = [*plan.agent_addresses, *plan.gateways, network.subnet if network else None]
    if not all(map(_is_address, _present(addresses))) or not all(map(_is_network, _present(networks))):
        yield "an address or a network is not valid"
    macs = [*(kernel.mac or "" for kernel in kernels), *(underlay.mac for underlay in underlays)]
    links = [*(underlay.interface for underlay in underlays), *([network.link, network.bridge] if network else [])]
    if not all(map(_MAC.fullmatch, macs)) or not all(map(_INTERFACE.fullmatch, filter(None, links))):
        yield "a MAC or the name of an interface is not valid"
    ports = [number for published in plan.published for number in (published.port, published.host_port)]
    ports += [*(kernel.ssh_port for kernel in kernels), (network.port if network else None) or 1]
    times = is_time(plan.created_at) and is_duration(plan.max_lifetime) and is_duration(plan.idle_timeout)
    if not times or not 0 <= plan.stop_grace <= MAX_GRACE:
        yield "its grace, or another time of it, is out of range"
    vni = (network.vni if network else None) or 0
    if not all(0 < port < 1 << 16 for port in ports) or not 0 <= vni < 1 << 24:
        yield "a port or a network identifier is out of range"


def _present(values: Iterable[str | None]) -> list[str]:
    """Return the values that are there; an empty text is one, and is no address."""
    return [value for value in values if value is not None]


def _group_problems(groups: Collection[UserGroup]) -> Iterator[str]:
    if len(groups) > MAX_GROUPS or len({group.number for group in groups}) < len(groups):
        yield f"it has more than {MAX_GROUPS} groups, or one twice"


# The plans of a cluster have the same networks again and again.
_is_address = functools.lru_cache(4096)(is_address)


@functools.lru_cache(4096)
def _is_network(text: str) -> bool:
    try:
        ipaddress.ip_network(text, strict=False)
    except ValueError:
        return False
    return True
