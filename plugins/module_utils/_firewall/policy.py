# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Who may open a connection to a host."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

from ansible_collections.backendai.cluster.plugins.module_utils._model.addressing import is_ipv6


@dataclasses.dataclass(frozen=True)
class Allowance:
    """What else may come in. ``sources`` are networks, none for anybody; ``ports`` are such as ``22`` or ``9100-9199``.

    Protocol ``any`` is everything that the sources send, and has no ports.
    """

    protocol: str
    ports: tuple[str, ...]
    sources: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class Firewall:
    """Who may open a connection to a host, as networks of both families without overlaps.

    ``managers`` reach its ``ssh_ports``, ``gateways`` what is published of sessions, ``peers`` the ports of Swarm and
    WireGuard. ``interfaces`` are those that it holds for, none for all of them.
    """

    managers: tuple[str, ...]
    gateways: tuple[str, ...] = ()
    peers: tuple[str, ...] = ()
    ssh_ports: tuple[int, ...] = (22,)
    allow: tuple[Allowance, ...] = ()
    interfaces: tuple[str, ...] = ()


def of_family(addresses: Iterable[str], family: int) -> list[str]:
    """Return the addresses and networks of IPv4 (4) or IPv6 (6)."""
    return [one for one in addresses if is_ipv6(one) == (family == 6)]
