# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Plans the network of running containers: their interfaces on both sides, addresses, and default routes.

A container has ``eth0`` on the agent's default network, made by the engine. ``cluster0`` is its interface on the
session network: a macvlan on the session's tunnel, made here, or a port of the session's bridge, made by the engine.
When all is as planned, the alias of ``eth0`` is set, so that a start of the container by somebody else is noticed.
"""

from __future__ import annotations

import dataclasses
import ipaddress
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from .._host.threads import in_threads
from .._model.change import Change
from .._model.network import DEFAULT_BRIDGE
from .iproute import LinkOperation, LinkState, ProcessExitedError, show_inside
from .pins import Pin, plan_pin

DEFAULT_INTERFACE = "eth0"

READY = "ready"
"""The alias of ``eth0`` once the network of its container is complete."""

# Metric of a second default route without a source address: the first one is lost with the session's interface.
_FALLBACK_METRIC = 1024


class Endpoint(NamedTuple):
    """A container on the agent's default network, as the engine made it; ``address`` has its prefix length."""

    address: str
    mac: str
    gateway: str


class SessionInterface(NamedTuple):
    """The desired interface on the session network; ``address`` has its prefix length, ``mtu`` is in bytes.

    It is a macvlan on the link ``parent``, or a port of the ``bridge``.
    """

    name: str
    address: str
    mac: str | None = None
    mtu: int | None = None
    parent: str | None = None
    bridge: str | None = None


class ContainerNetwork(NamedTuple):
    """The desired network of a running container; ``pid`` is one of its processes.

    ``mtu`` is that of ``eth0``, ``None`` if it stays as the engine has made it.
    """

    hostname: str
    pid: int
    endpoint: Endpoint
    session: SessionInterface | None = None
    mtu: int | None = None


class InterfacePlan(NamedTuple):
    """What must change: ``steps`` that repair the network, and containers that have ``lost`` an interface.

    The latter are the names of the interfaces by hostname: such containers can only be recreated. ``incomplete`` are
    the hostnames of containers that have been started since their network was complete.
    """

    steps: list[LinkOperation]
    lost: dict[str, str]
    incomplete: frozenset[str] = frozenset()


def plan_container_networks(desired: Iterable[ContainerNetwork], state: LinkState) -> InterfacePlan:
    """Return what must change for the networks to be as desired; containers that have ended are skipped."""
    steps: list[LinkOperation] = []
    lost: dict[str, str] = {}
    incomplete: set[str] = set()
    containers = list(desired)
    for container, inside in zip(containers, in_threads(_look_inside, containers)):
        if inside is None:
            continue
        links, routes = inside
        plan = _ContainerPlan(container, {link["ifname"]: link for link in links}, routes, state)
        if interface := plan.lost_interface():
            lost[container.hostname] = interface
        else:
            steps += plan.steps()
            incomplete |= set() if plan.complete else {container.hostname}
    return InterfacePlan(steps, lost, frozenset(incomplete))


def _look_inside(container: ContainerNetwork) -> list[list[dict[str, Any]]] | None:
    """Return the links, with addresses, and the routes of a container; ``None`` if it has ended."""
    try:
        return show_inside(container.pid, "addr show", "route show")
    except ProcessExitedError:
        return None


@dataclasses.dataclass(frozen=True)
class _ContainerPlan:
    """A desired network, and the actual one: links by name, with addresses, and routes."""

    desired: ContainerNetwork
    links: Mapping[str, dict[str, Any]]
    routes: list[dict[str, Any]]
    state: LinkState

    def lost_interface(self) -> str:
        """Return an interface that only the engine can make; empty if there is none."""
        if self._port(DEFAULT_INTERFACE) is None:
            return DEFAULT_INTERFACE
        session = self.desired.session
        if session and session.bridge and self._port(session.name) is None:
            return session.name
        if session and session.parent and session.name in self.links and not self._is_macvlan(session):
            return session.name
        return ""

    @property
    def complete(self) -> bool:
        """Whether the network was complete before."""
        return self.links[DEFAULT_INTERFACE].get("ifalias") == READY

    def steps(self) -> list[LinkOperation]:
        endpoint, session = self.desired.endpoint, self.desired.session
        eth0 = self.links[DEFAULT_INTERFACE]
        mtu = self.desired.mtu
        steps = [*self._attach(DEFAULT_INTERFACE, DEFAULT_BRIDGE, mtu), *self._pins()]
        steps += self._configure(DEFAULT_INTERFACE, eth0, endpoint.address, None, mtu)
        if session:
            source = session.address.partition("/")[0]
            steps += [*self._session_interface(session), *self._session_route(session), *self._default_routes(source)]
        if not self.complete:
            change = Change(f"network of {self.desired.hostname}", "incomplete", READY)
            steps.append(self._inside(change, f"link set dev {DEFAULT_INTERFACE} alias {READY}"))
        return steps

    def _session_interface(self, session: SessionInterface) -> Iterator[LinkOperation]:
        link = self.links.get(session.name)
        if session.parent and link is None:
            settings = f"address {session.mac} mtu {session.mtu} netns {self.desired.pid} type macvlan mode bridge"
            change = Change(self._subject(session.name), None, f"{session.address}, mtu {session.mtu}")
            yield LinkOperation(change, (f"link add link {session.parent} name {session.name} {settings}",))
            lines = (f"link set dev {session.name} addrgenmode none up", *_address_lines(session.name, session.address))
            yield self._inside(change, *lines)
        elif session.bridge:
            yield from self._attach(session.name, session.bridge, session.mtu)
        if link is not None:
            yield from self._configure(session.name, link, session.address, session.mac, session.mtu)

    def _attach(self, name: str, bridge: str, mtu: int | None) -> Iterator[LinkOperation]:
        """Yield the repairs of the host end of an interface, a port of a bridge."""
        port = self._port(name) or {}
        subject, port_name = f"port of {self.desired.hostname} on {bridge}", port["ifname"]
        if port.get("master") != bridge:
            change = Change(subject, f"on {port['master']}" if "master" in port else "detached", "attached")
            yield LinkOperation(change, (f"link set dev {port_name} master {bridge}",))
        if mtu is not None and port["mtu"] != mtu:
            change = Change(subject, f"mtu {port['mtu']}", f"mtu {mtu}")
            yield LinkOperation(change, (f"link set dev {port_name} mtu {mtu}",))
        if "UP" not in port["flags"]:
            yield LinkOperation(Change(subject, "down", "up"), (f"link set dev {port_name} up",))

    def _pins(self) -> list[LinkOperation]:
        """Return the steps that pin the container's port on the default network."""
        endpoint, port = self.desired.endpoint, self._port(DEFAULT_INTERFACE) or {}
        return plan_pin(Pin(port["ifname"], endpoint.mac, endpoint.address.partition("/")[0]), self.state)

    def _configure(
        self, name: str, link: Mapping[str, Any], address: str, mac: str | None, mtu: int | None
    ) -> Iterator[LinkOperation]:
        """Yield the repairs of an existing interface inside the container."""
        subject = self._subject(name)
        if mtu is not None and link["mtu"] != mtu:
            yield self._inside(Change(subject, f"mtu {link['mtu']}", f"mtu {mtu}"), f"link set dev {name} mtu {mtu}")
        if mac is not None and link["address"] != mac:
            change = Change(subject, f"mac {link['address']}", f"mac {mac}")
            yield self._inside(change, f"link set dev {name} address {mac}")
        if "UP" not in link["flags"]:
            yield self._inside(Change(subject, "down", "up"), f"link set dev {name} up")
        addresses = _ipv4_addresses(link)
        if addresses != [address]:
            change = Change(subject, f"address {', '.join(addresses) or 'none'}", f"address {address}")
            yield self._inside(change, f"addr flush dev {name} scope global", *_address_lines(name, address))

    def _session_route(self, session: SessionInterface) -> Iterator[LinkOperation]:
        """Yield the repair of the route to the session's containers: what they send is acknowledged at once.

        Programs that send small packets one by one wait for each acknowledgement: a login between OpenSSH 9.2 takes
        0.14 s with the kernel's delay, and 0.05 s without.
        """
        subnet = str(ipaddress.IPv4Interface(session.address).network)
        if any(
            route["dst"] == subnet and {"quickack": 1} in route.get("metrics", ()) and self._has_addresses()
            for route in self.routes
        ):
            return
        name, source = session.name, session.address.partition("/")[0]
        change = Change(f"route of {self.desired.hostname} to its session", "delayed", "acknowledged at once")
        yield self._inside(change, f"route replace {subnet} dev {name} proto kernel scope link src {source} quickack 1")

    def _default_routes(self, source: str) -> Iterator[LinkOperation]:
        """Yield the repairs of the default routes: programs that ask for their own address get the session's."""
        gateway = self.desired.endpoint.gateway
        present = {
            (route.get("gateway"), route.get("prefsrc"), route.get("metric", 0))
            for route in self.routes
            # A repair of the address removes the routes.
            if route["dst"] == "default" and route.get("dev") == DEFAULT_INTERFACE and self._has_addresses()
        }
        default, subject = f"default via {gateway} dev {DEFAULT_INTERFACE}", f"default route of {self.desired.hostname}"
        if (gateway, source, 0) not in present:
            before = next((f"from {route[1] or 'any address'}" for route in present if not route[2]), None)
            yield self._inside(Change(subject, before, f"from {source}"), f"route replace {default} src {source}")
        if (gateway, None, _FALLBACK_METRIC) not in present:
            change = Change(f"second {subject}", None, f"metric {_FALLBACK_METRIC}")
            yield self._inside(change, f"route replace {default} metric {_FALLBACK_METRIC}")

    def _has_addresses(self) -> bool:
        session, eth0 = self.desired.session, self.links[DEFAULT_INTERFACE]
        named = self.links.get(session.name) if session else None
        return _ipv4_addresses(eth0) == [self.desired.endpoint.address] and not (
            session and named and _ipv4_addresses(named) != [session.address]
        )

    def _port(self, name: str) -> dict[str, Any] | None:
        """Return the host end of a veth interface."""
        index = self.links.get(name, {}).get("link_index")
        return next((link for link in self.state.links.values() if link["ifindex"] == index), None)

    def _is_macvlan(self, session: SessionInterface) -> bool:
        link, parent = self.links[session.name], self.state.links.get(session.parent or "", {})
        kind = link.get("linkinfo", {}).get("info_kind")
        return kind == "macvlan" and link.get("link_index") == parent.get("ifindex")

    def _inside(self, change: Change, *lines: str) -> LinkOperation:
        return LinkOperation(change, lines, pid=self.desired.pid)

    def _subject(self, name: str) -> str:
        return f"{name} of {self.desired.hostname}"


def _ipv4_addresses(link: Mapping[str, Any]) -> list[str]:
    return [f"{entry['local']}/{entry['prefixlen']}" for entry in link["addr_info"] if entry["family"] == "inet"]


def _address_lines(name: str, address: str) -> tuple[str, ...]:
    return (f"addr add {address} brd + dev {name}",)
