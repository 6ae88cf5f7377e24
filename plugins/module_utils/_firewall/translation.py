# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Plans the address translation in a container's network namespace.

Programs in a session use its address also towards the outside, where only the address of ``eth0`` is valid.
"""

from __future__ import annotations

import dataclasses
import functools

from .._model.change import Change
from .._network.iproute import LinkOperation
from .table import TABLE, Table

_FAMILY = "ip"

# A documentation address and network (RFC 5737), in the listing that is compared with those of containers.
_ADDRESS, _NETWORK = "192.0.2.1", "198.51.100.0/24"


def plan_translation(
    hostname: str, pid: int, interface: str, address: str, network: str, *, fresh: bool
) -> list[LinkOperation]:
    """Return what must change for packets of a container that leave by ``interface`` to have the address of that.

    ``address`` is the container's session address, ``network`` that of the interface. A UDP server that is bound to no
    address replies to other networks from the session address; so that its reply has the address and port that were
    asked, what arrives from there is translated as well. In a ``fresh`` namespace there is nothing to compare with.
    """
    if fresh:
        change = Change(f"translation of {hostname}", None, f"to {address}")
        return [LinkOperation(change, pid=pid, nft=_render(interface, address, network))]
    table = Table(TABLE, "provision_agents", (_FAMILY,), pid)
    changes = table.compare(_list_template(interface).replace(_ADDRESS, address).replace(_NETWORK, network))
    if not changes:
        return []
    change = dataclasses.replace(changes[0], subject=f"translation of {hostname}")
    return [LinkOperation(change, pid=pid, nft=_render(interface, address, network))]


@functools.cache
def _list_template(interface: str) -> str:
    table = Table(TABLE, "provision_agents", (_FAMILY,))
    return table.list_loaded(_render(interface, _ADDRESS, _NETWORK))


def _render(interface: str, address: str, network: str) -> str:
    table = f"table {_FAMILY} {TABLE}"
    return f"""{table}
delete {table}
{table} {{
    chain outgoing {{
        type nat hook postrouting priority srcnat; policy accept;
        oifname "{interface}" ip saddr {address} masquerade
    }}
    chain incoming {{
        type nat hook prerouting priority dstnat; policy accept;
        iifname "{interface}" ip saddr != {network} fib daddr type local meta l4proto udp dnat to {address}
    }}
}}
"""
