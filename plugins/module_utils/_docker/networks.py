# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The Docker network of a session on one agent: a private bridge without an address of the agent on it."""

from __future__ import annotations

import dataclasses
from typing import Any

from .._model.change import Change
from .._model.network import INTERFACE_PREFIX
from .._model.plan import SessionPlan
from . import labels
from .sdk import docker, ipam


@dataclasses.dataclass(frozen=True)
class BridgeNetwork:
    """A network as it should be; ``mtu`` is in bytes."""

    name: str
    subnet: str
    mtu: int
    bridge: str
    session_id: str

    def digest(self) -> str:
        """Return what identifies everything that cannot be changed once the network is made."""
        return labels.content_digest(dataclasses.astuple(self))


def desired_network(plan: SessionPlan) -> BridgeNetwork | None:
    """Return the network that the plan wants on each of its agents; ``None`` where the session needs none."""
    network = plan.network
    if network is None or network.subnet is None or network.bridge is None:
        return None
    return BridgeNetwork(network.name, network.subnet, network.mtu, network.bridge, plan.id)


def find_networks(client: docker.APIClient, session_id: str) -> list[dict[str, Any]]:
    """Return the networks of a session on this agent, as the engine lists them; an overlay is its swarm's."""
    return [one for one in client.networks(filters=labels.label_filter(session_id)) if one["Driver"] != "overlay"]


def plan_network(client: docker.APIClient, wanted: BridgeNetwork) -> Change | None:
    """Return the difference between the session's network and what is wanted; ``None`` where there is none."""
    found = find_networks(client, wanted.session_id)
    if any(one["Labels"].get(labels.DIGEST) == wanted.digest() for one in found):
        return None
    before = ", ".join(one["Name"] for one in found) or None
    return Change(f"network {wanted.name}", before, f"{wanted.subnet}, mtu {wanted.mtu}, bridge {wanted.bridge}")


def create_network(client: docker.APIClient, wanted: BridgeNetwork) -> None:
    """Make the network.

    ``internal`` keeps the default route of containers on the agent's default network (measured on engines 20.10 and
    26.1), ``inhibit_ipv4`` keeps the agent off the bridge, and the prefix names the interface inside containers.
    """
    client.create_network(
        wanted.name,
        driver="bridge",
        internal=True,
        check_duplicate=True,
        ipam=ipam(wanted.subnet),
        options={
            "com.docker.network.bridge.name": wanted.bridge,
            "com.docker.network.bridge.inhibit_ipv4": "true",
            "com.docker.network.container_iface_prefix": INTERFACE_PREFIX,
            "com.docker.network.driver.mtu": str(wanted.mtu),
        },
        labels=labels.network_labels(wanted.session_id, dataclasses.astuple(wanted)),
    )


def remove_networks(client: docker.APIClient, session_id: str) -> list[Change]:
    """Remove the networks of a session and return what was removed."""
    found = find_networks(client, session_id)
    for one in found:
        client.remove_network(one["Id"])
    return [Change(f"network {one['Name']}", one["Id"][:12], None) for one in found]


def subnets(client: docker.APIClient) -> list[str]:
    """Return the address ranges of all networks of the engine, ours or not, up or not."""
    pools = (pool for network in client.networks() for pool in network["IPAM"].get("Config") or [])
    return sorted({pool["Subnet"] for pool in pools if "Subnet" in pool})
