# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What is around an agent: its addresses and networks, its engine's sockets, and what else filters."""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
from collections.abc import Iterator
from ipaddress import ip_interface
from pathlib import Path
from typing import Any

from .._host.processes import PROC
from .._model.network import Underlay
from .._network.host import find_underlay, own_addresses
from .._network.iproute import show
from .._network.sockets import sockets
from .audit import NetworkExposure, filters_ipv6
from .table import TABLE

ENGINE = "dockerd"
# The chain of our table that keeps outsiders out, over IPv6 too.
CHAIN = "firewall"


def read_exposure(underlay_address: str) -> NetworkExposure:
    """Return what is around this agent; without an address, its underlay is where its default route leads.

    Raises :class:`NetworkError`.
    """
    underlay = find_underlay(underlay_address)
    own = own_addresses(underlay)
    links = show("ip", "-j", "addr", "show")
    outward = [link for link in links if any(entry["local"] in own for entry in link["addr_info"])]
    return NetworkExposure(
        addresses=tuple(own),
        networks=_networks(links, underlay),
        engine=tuple(docker_listeners()),
        local_ipv6=tuple(
            link["ifname"] for link in outward if any(one["family"] == "inet6" for one in link["addr_info"])
        ),
        filtered6=filters_ipv6(_ruleset(), TABLE, CHAIN),
    )


def docker_listeners(processes: Path = PROC) -> list[tuple[str, int]]:
    """Return the addresses and TCP ports at which the Docker engine of this host takes connections."""
    engines = [entry for entry in processes.glob("[0-9]*") if _name(entry) == ENGINE]
    inodes = {inode for engine in engines for inode in _socket_inodes(engine / "fd")}
    listening = (one for one in sockets("tcp", processes) if one.listening and one.inode in inodes)
    return sorted({(one.address, one.port) for one in listening})


def _networks(links: list[dict[str, Any]], underlay: Underlay | None) -> tuple[str, ...]:
    """Return the networks that the underlay's interface is in, but for link-local ones, which everybody is in."""
    here = [link for link in links if underlay and link["ifname"] == underlay.interface]
    entries = [entry for link in here for entry in link["addr_info"] if entry["scope"] == "global"]
    return tuple(dict.fromkeys(str(ip_interface(f"{one['local']}/{one['prefixlen']}").network) for one in entries))


def _name(process: Path) -> str:
    with contextlib.suppress(OSError):
        return (process / "comm").read_text().strip()
    return ""


def _socket_inodes(folder: Path) -> Iterator[str]:
    """Return the inodes of all sockets of a process; of one that has ended meanwhile, none."""
    with contextlib.suppress(OSError):
        for handle in folder.iterdir():
            target = os.readlink(handle)
            if target.startswith("socket:["):
                yield target[len("socket:[") : -1]


def _ruleset() -> dict[str, Any]:
    """Return all rules of this host; none where ``nft`` is missing or cannot say."""
    with contextlib.suppress(FileNotFoundError):
        done = subprocess.run(["nft", "-j", "list", "ruleset"], capture_output=True, text=True, check=False)
        if done.returncode == 0:
            return dict(json.loads(done.stdout))
    return {}


UFW = Path("/etc/ufw/ufw.conf")

_WARNING = (
    "{name} is at work on this host: its rules hold beside those of the role firewall, and what it drops stays dropped;"
    " let gateways, peers and managers in there as well."
)


def other_firewalls() -> list[str]:
    """Return a sentence for each of ufw and firewalld that is at work here."""
    return [_WARNING.format(name=name) for name, active in (("ufw", _ufw()), ("firewalld", _firewalld())) if active]


def _ufw() -> bool:
    return UFW.is_file() and re.search(r"^ENABLED=yes$", UFW.read_text(), re.MULTILINE) is not None


def _firewalld() -> bool:
    try:
        done = subprocess.run(["systemctl", "is-active", "--quiet", "firewalld.service"], check=False)
    except FileNotFoundError:
        return False
    return done.returncode == 0
