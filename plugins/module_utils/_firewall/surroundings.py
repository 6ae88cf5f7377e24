# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Collects facts for the audit: addresses, networks, zones, sockets of the Docker engine, other firewalls."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
from collections.abc import Iterator, Sequence
from ipaddress import ip_interface
from pathlib import Path
from typing import Any

from .._host.processes import PROC
from .._model.network import Underlay
from .._model.validation import ValidationErrors
from .._network.host import find_underlay, own_addresses, ssh_connection
from .._network.iproute import show
from .._network.sockets import sockets
from .audit import NetworkExposure, Zones, filters_ipv6
from .host_rules import ENFORCING_CHAIN
from .policy import COMPUTE, MANAGEMENT, parse_networks
from .table import TABLE

ENGINE = "dockerd"


def read_exposure(underlay_address: str) -> NetworkExposure:
    """Return the facts of this agent; without an address, the underlay is the interface of the default route.

    Raises :class:`NetworkError`.
    """
    underlay = find_underlay(underlay_address)
    addresses = own_addresses(underlay)
    links = show("ip", "-j", "addr", "show")
    outward = [link for link in links if any(entry["local"] in addresses for entry in link["addr_info"])]
    return NetworkExposure(
        addresses=tuple(addresses),
        networks=_underlay_networks(links, underlay),
        engine=tuple(find_docker_listeners()),
        local_ipv6=tuple(
            link["ifname"] for link in outward if any(entry["family"] == "inet6" for entry in link["addr_info"])
        ),
        filtered6=filters_ipv6(_read_ruleset(), TABLE, ENFORCING_CHAIN),
    )


def read_zones(management: Sequence[str], compute: Sequence[str], underlay_address: str) -> Zones:
    """Return the zones of this agent, given the networks that are declared for each.

    Raises :class:`ValidationError`, and :class:`NetworkError`.
    """
    problems = ValidationErrors()
    parsed = parse_networks(problems, MANAGEMENT, management), parse_networks(problems, COMPUTE, compute)
    problems.raise_if_any()
    underlay = find_underlay(underlay_address)
    own, links = {*own_addresses(underlay)}, show("ip", "-j", "addr", "show")
    listed = {link["ifname"]: tuple(entry["local"] for entry in link["addr_info"]) for link in links}
    return Zones(
        *parsed,
        ssh_address="".join(ssh_connection().split()[2:3]).partition("%")[0],
        underlay_address=underlay.address if underlay else "",
        interfaces={
            name: tuple(address for address in addresses if address in own)
            for name, addresses in listed.items()
            if not own.isdisjoint(addresses)
        },
    )


def find_docker_listeners(processes: Path = PROC) -> list[tuple[str, int]]:
    """Return the addresses and TCP ports at which the Docker engine of this host accepts connections."""
    engines = [entry for entry in processes.glob("[0-9]*") if _process_name(entry) == ENGINE]
    inodes = {inode for engine in engines for inode in _socket_inodes(engine / "fd")}
    listening = (socket for socket in sockets("tcp", processes) if socket.listening and socket.inode in inodes)
    return sorted({(socket.address, socket.port) for socket in listening})


def _underlay_networks(links: list[dict[str, Any]], underlay: Underlay | None) -> tuple[str, ...]:
    """Return the networks of the underlay's interface, without link-local ones, which every host is in."""
    underlay_links = [link for link in links if underlay and link["ifname"] == underlay.interface]
    entries = [entry for link in underlay_links for entry in link["addr_info"] if entry["scope"] == "global"]
    return tuple(
        dict.fromkeys(str(ip_interface(f"{entry['local']}/{entry['prefixlen']}").network) for entry in entries)
    )


def _process_name(process: Path) -> str:
    with contextlib.suppress(OSError):
        return (process / "comm").read_text().strip()
    return ""


def _socket_inodes(folder: Path) -> Iterator[str]:
    """Return the inodes of all sockets of a process; none if it has exited."""
    with contextlib.suppress(OSError):
        for handle in folder.iterdir():
            target = os.readlink(handle)
            if target.startswith("socket:["):
                yield target[len("socket:[") : -1]


def _read_ruleset() -> dict[str, Any]:
    """Return all rules of this host; none if ``nft`` is missing or fails."""
    with contextlib.suppress(FileNotFoundError):
        result = subprocess.run(["nft", "-j", "list", "ruleset"], capture_output=True, text=True, check=False)
        if result.returncode == 0:
            return dict(json.loads(result.stdout))
    return {}
