"""Blackhole routes that keep the lab's traffic on this machine.

Packets to a session subnet or an underlay address that is down would otherwise follow the default route. The
routes carry the lab's own metric, so that each of several labs can recognise its own.
"""

from __future__ import annotations

import os
import re
import socket
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path
from urllib.parse import urlsplit

from tests.lab.command import output, report
from tests.lab.debian import mirror
from tests.lab.identity import SESSION_POOL, Lab
from tests.lab.routes import Route, machine_routes


def ensure_blackholes(lab: Lab, subnet: IPv4Network) -> None:
    """Route the session pool and the underlay into blackholes, except the addresses that the machine itself needs."""
    existing = own_blackholes(lab)
    needed = addresses_in_use(lab)
    # The underlay's route is added last: if it exists, the others do too. This path needs no name server.
    if subnet in existing and not any(address in network for address in needed for network in existing):
        return
    needed |= package_source_addresses()
    excluded = sorted(address for address in needed if address in SESSION_POOL)
    pool = subtract(SESSION_POOL, [*other_networks(lab), *map(IPv4Network, excluded)])
    if excluded:
        reasons = ", ".join(f"{address} ({needed[address]})" for address in excluded)
        report(f"this machine needs {reasons} inside {SESSION_POOL}: the blackhole routes exclude that")
    _change_routes(lab, "delete", existing - pool)
    _change_routes(lab, "add", pool - existing)
    _change_routes(lab, "add", {subnet})


def remove_blackholes(lab: Lab) -> None:
    """Remove every route with the lab's metric."""
    _change_routes(lab, "delete", own_blackholes(lab))


def own_blackholes(lab: Lab) -> set[IPv4Network]:
    """Return the destinations of the lab's blackhole routes."""
    return {route.destination for route in machine_routes() if _is_own_blackhole(lab, route)}


def other_networks(lab: Lab) -> list[IPv4Network]:
    """Return the networks that the machine uses, without those of this lab, the default and any lab's session pool."""
    return [
        route.destination
        for route in machine_routes()
        if route.destination.prefixlen
        and not _is_own_blackhole(lab, route)
        and route.device not in {lab.veth, lab.bridge}
        and not (route.kind == "blackhole" and route.destination.subnet_of(SESSION_POOL))
    ]


def subtract(whole: IPv4Network, holes: list[IPv4Network]) -> set[IPv4Network]:
    """Return the fewest networks that cover ``whole`` except the holes."""
    parts = [whole]
    for hole in holes:
        rest: list[IPv4Network] = []
        for part in parts:
            if hole.subnet_of(part):
                rest += part.address_exclude(hole)
            elif not part.subnet_of(hole):
                rest.append(part)
        parts = rest
    return set(parts)


def addresses_in_use(lab: Lab) -> dict[IPv4Address, str]:
    """Return the addresses outside the lab that this machine communicates with, each with the reason.

    Name servers have been seen inside the session pool, where a single route would cut them off. Above all, the SSH
    connection that runs `make lab` must not be cut.
    """
    routes = machine_routes()
    addresses = {route.gateway: "gateway" for route in routes if route.gateway}
    resolv = Path("/etc/resolv.conf")
    for text in re.findall(r"^nameserver\s+([\d.]+)\s*$", resolv.read_text() if resolv.exists() else "", re.MULTILINE):
        addresses.setdefault(IPv4Address(text), "name server")
    lab_networks = [route.destination for route in routes if route.device in {lab.veth, lab.bridge}]
    for text in re.findall(r"(\d+\.\d+\.\d+\.\d+)\]?:\d+\s*$", output("ss", "-Htn"), re.MULTILINE):
        peer = IPv4Address(text)
        if not any(peer in network for network in lab_networks):
            addresses.setdefault(peer, "open connection")
    return addresses


def package_source_addresses() -> dict[IPv4Address, str]:
    """Return the addresses of the proxies and the mirror from which this machine fetches packages."""
    names = {"http_proxy", "https_proxy", "all_proxy", "pip_index_url"}
    urls = [value for name, value in os.environ.items() if name.lower() in names]
    urls += filter(None, [mirror()])
    return {address: "proxy or package mirror" for url in urls for address in _resolve(url)}


def _resolve(url: str) -> list[IPv4Address]:
    """Return the IPv4 addresses of a URL's host; none if it does not resolve."""
    host = urlsplit(url if "//" in url else f"//{url}").hostname
    if not host:
        return []
    try:
        return [IPv4Address(entry[4][0]) for entry in socket.getaddrinfo(host, None, socket.AF_INET)]
    except (OSError, UnicodeError):
        return []


def _is_own_blackhole(lab: Lab, route: Route) -> bool:
    """Tell whether the lab made this route."""
    return route.kind == "blackhole" and route.metric == lab.metric


def _change_routes(lab: Lab, verb: str, networks: set[IPv4Network]) -> None:
    """Add or delete blackhole routes in one batch; adding an existing one is no error."""
    verb = "replace" if verb == "add" else verb
    if networks:
        lines = "".join(f"route {verb} blackhole {network} metric {lab.metric}\n" for network in sorted(networks))
        output("ip", "-4", "-batch", "-", stdin=lines.encode())
