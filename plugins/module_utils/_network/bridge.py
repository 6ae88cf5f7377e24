# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Plans the bridge of a session on one agent; the agent itself has no address on it."""

from __future__ import annotations

from typing import NamedTuple

from .._model.change import Change
from .._model.plan import SessionPlan
from .iproute import LinkOperation, LinkState


class Bridge(NamedTuple):
    """A desired bridge; ``mtu`` is the minimum, in bytes."""

    name: str
    mtu: int


def desired_bridge(plan: SessionPlan) -> Bridge | None:
    """Return the bridge that the plan requires on each of its agents; ``None`` if the session needs none."""
    network = plan.network
    return Bridge(network.bridge, network.mtu) if network and network.bridge else None


def plan_bridge(desired: Bridge, state: LinkState) -> list[LinkOperation]:
    """Return what must change for a bridge to be as desired.

    It must have no address, not even a link-local IPv6 one: the session could reach its agent at it.
    """
    name, subject = desired.name, f"bridge {desired.name}"
    link = state.links.get(name)
    if link is None:
        change = Change(subject, None, f"mtu {desired.mtu}")
        lines = (f"link add {name} mtu {desired.mtu} type bridge", f"link set dev {name} addrgenmode none up")
        return [LinkOperation(change, lines)]
    steps = []
    if link.get("inet6_addr_gen_mode") != "none":
        change = Change(subject, f"IPv6 addresses {link.get('inet6_addr_gen_mode')}", "IPv6 addresses none")
        steps.append(LinkOperation(change, (f"link set dev {name} addrgenmode none",)))
    steps += plan_without_addresses(name, state)
    if link["mtu"] < desired.mtu:
        change = Change(subject, f"mtu {link['mtu']}", f"mtu {desired.mtu}")
        steps.append(LinkOperation(change, (f"link set dev {name} mtu {desired.mtu}",)))
    if "UP" not in link["flags"]:
        steps.append(LinkOperation(Change(subject, "down", "up"), (f"link set dev {name} up",)))
    return steps


def plan_without_addresses(name: str, state: LinkState) -> list[LinkOperation]:
    """Return the removal of every address of a link."""
    addresses = [f"{entry['local']}/{entry['prefixlen']}" for entry in state.addresses.get(name, [])]
    return [
        LinkOperation(Change(f"address {address} on {name}", "present", None), (f"addr del {address} dev {name}",))
        for address in addresses
    ]
