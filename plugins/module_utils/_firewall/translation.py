# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Plans the address translation in a container's network namespace.

Programs in a session use its address also towards the outside, where only the address of ``eth0`` is valid.
"""

from __future__ import annotations

from .._model.change import Change
from .._network.iproute import LinkOperation
from .table import TABLE, Table

_FAMILY = "ip"


def plan_translation(
    hostname: str, pid: int, interface: str, address: str, network: str, *, fresh: bool
) -> list[LinkOperation]:
    """Return what must change for packets of a container that leave by ``interface`` to have the address of that.

    ``address`` is the container's session address, ``network`` that of the interface. A UDP server that is bound to no
    address replies to other networks from the session address; so that its reply has the address and port that were
    asked, what arrives from there is translated as well. In a ``fresh`` namespace there is nothing to compare with.
    """
    listing = "" if fresh else Table(TABLE, "provision_agents", (_FAMILY,), pid).read()
    if all(rule in listing for rule in _rules(interface, address, network)):
        return []
    change = Change(f"translation of {hostname}", "differs" if listing else None, f"to {address}")
    return [LinkOperation(change, pid=pid, nft=_render(interface, address, network))]


def _rules(interface: str, address: str, network: str) -> tuple[str, str]:
    """Return both rules, in the notation of listings: a comparison by ``nft`` would need a namespace for each run."""
    outgoing = f'oifname "{interface}" ip saddr {address} masquerade'
    return (
        outgoing,
        f'iifname "{interface}" ip saddr != {network} fib daddr type local meta l4proto udp dnat to {address}',
    )


def _render(interface: str, address: str, network: str) -> str:
    table = f"table {_FAMILY} {TABLE}"
    outgoing, incoming = _rules(interface, address, network)
    return f"""{table}
delete {table}
{table} {{
    chain outgoing {{
        type nat hook postrouting priority srcnat; policy accept;
        {outgoing}
    }}
    chain incoming {{
        type nat hook prerouting priority dstnat; policy accept;
        {incoming}
    }}
}}
"""
