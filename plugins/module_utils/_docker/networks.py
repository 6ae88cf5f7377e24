# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Manage the Docker network of a session on one agent: a private bridge on which the agent has no address."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping, Sequence
from typing import Any

from .._model.change import Change
from .._model.errors import ClusterError
from .._model.network import INTERFACE_PREFIX, bridge_name
from .._model.plan import SessionPlan
from . import labels
from .api_version import UNIQUE_NAMES, speaks
from .sdk import docker

NAME_PREFIX = "backendai-"
"""The beginning of the names of the networks of sessions."""

BRIDGE_OPTION = "com.docker.network.bridge.name"
ICC = "com.docker.network.bridge.enable_icc"
INHIBIT_IPV4 = "com.docker.network.bridge.inhibit_ipv4"
INTERFACES = "com.docker.network.container_iface_prefix"
MTU = "com.docker.network.driver.mtu"

# What any network of ours relies on, and gets from default-network-opts of the engine where it does not say it. Engines
# that do not know one of them ignore it.
RELIED_UPON = {
    "com.docker.network.bridge.enable_ip_masquerade": "true",
    "com.docker.network.bridge.gateway_mode_ipv4": "nat",
    "com.docker.network.enable_ipv4": "true",
    "com.docker.network.enable_ipv6": "false",
}

# How often the networks are listed, and for how many seconds after a failure not.
LIST_ATTEMPTS, LIST_PAUSE = 10, 0.2


class NameTakenError(ClusterError):
    """Something that is not of a session has a name that the session needs; waiting would not help. One sentence."""

    @classmethod
    def of(cls, kind: str, names: Sequence[str], agent: str, command: str) -> NameTakenError:
        """Return the error for names of containers or of a network on an agent, and the ``command`` to remove them."""
        taken = ", ".join(names)
        return cls(
            f"{kind} {taken} already exists on {agent} and does not belong to this session, which needs that name:"
            f" remove it there ({command} {' '.join(names)}), or choose another session_name"
        )


@dataclasses.dataclass(frozen=True)
class BridgeNetwork:
    """The desired state of a network; ``mtu`` is in bytes."""

    name: str
    subnet: str
    mtu: int
    bridge: str
    session_id: str

    def digest(self) -> str:
        """Return a digest of all properties, which cannot be changed after the network is created."""
        return labels.content_digest(dataclasses.astuple(self))


def desired_network(plan: SessionPlan) -> BridgeNetwork | None:
    """Return the network that the plan requires on each of its agents; ``None`` if the session needs none."""
    network = plan.network
    if network is None or network.subnet is None or network.bridge is None:
        return None
    return BridgeNetwork(network.name, network.subnet, network.mtu, network.bridge, plan.id)


def list_networks(client: docker.APIClient, attempts: int = LIST_ATTEMPTS, **filters: Any) -> list[dict[str, Any]]:
    """Return the networks of the engine.

    While it removes an overlay of a swarm that the host is in, the engine lists it and then does not find it, so that
    the listing fails (seen with 20.10).
    """
    try:
        return list(client.networks(**filters))
    except docker.errors.NotFound:
        if attempts == 1:
            raise
    time.sleep(LIST_PAUSE)
    return list_networks(client, attempts - 1, **filters)


def unique_name(client: docker.APIClient) -> bool | None:
    """Return what a request says for a name that no other network has: ``None`` where no engine has it otherwise."""
    return None if speaks(client, UNIQUE_NAMES) else True


def ipam(subnet: str) -> Any:
    """Return the address management of a network with this subnet, a mapping as the engine's API has it."""
    return {"Driver": "default", "Config": [{"Subnet": subnet}]}


def find_networks(client: docker.APIClient, session_id: str) -> list[dict[str, Any]]:
    """Return the networks of a session on this agent, as listed by the engine.

    Labels alone prove nothing: they have our names, and the bridge whose name is made of the session's id.
    """
    bridge = bridge_name(session_id)
    return [
        network
        for network in list_networks(client, filters=labels.label_filter(session_id))
        if network["Name"].startswith(NAME_PREFIX) and bridge_of(network) == bridge
    ]


def bridge_of(network: Mapping[str, Any]) -> str:
    """Return the name of the bridge that the engine was asked for; empty if it was not."""
    return str((network.get("Options") or {}).get(BRIDGE_OPTION, ""))


def bridges(client: docker.APIClient) -> set[str]:
    """Return the names of the bridges of all networks of the engine that have one."""
    return {bridge_of(network) for network in list_networks(client)}


def require_network_name(client: docker.APIClient, name: str, session_id: str, agent: str) -> None:
    """Raise :class:`NameTakenError` if a network has the name of the one that a session is about to make."""
    labelled = {labels.OWNER: labels.OWNER_VALUE, labels.SESSION_ID: session_id}.items()
    for network in list_networks(client):
        if network["Name"] == name and not labelled <= (network["Labels"] or {}).items():
            raise NameTakenError.of("network", [name], agent, "docker network rm")


def plan_network(client: docker.APIClient, desired: BridgeNetwork) -> Change | None:
    """Return the change from the existing to the desired network of a session; ``None`` if they are equal."""
    existing = find_networks(client, desired.session_id)
    if any(network["Labels"].get(labels.DIGEST) == desired.digest() for network in existing):
        return None
    before = ", ".join(network["Name"] for network in existing) or None
    return Change(f"network {desired.name}", before, f"{desired.subnet}, mtu {desired.mtu}, bridge {desired.bridge}")


def create_network(client: docker.APIClient, desired: BridgeNetwork) -> None:
    """Create the network.

    ``internal`` keeps the default route of containers on the agent's default network (measured on engines 20.10 and
    26.1), ``inhibit_ipv4`` prevents an address of the agent on the bridge, and the prefix defines the name of the
    interface inside containers.
    """
    client.create_network(
        desired.name,
        driver="bridge",
        internal=True,
        check_duplicate=unique_name(client),
        ipam=ipam(desired.subnet),
        options={
            **RELIED_UPON,
            BRIDGE_OPTION: desired.bridge,
            # For containers of one agent; those of others come over the same bridge, too.
            ICC: "true",
            INHIBIT_IPV4: "true",
            INTERFACES: INTERFACE_PREFIX,
            MTU: str(desired.mtu),
        },
        labels=labels.network_labels(desired.session_id, dataclasses.astuple(desired)),
    )


def remove_networks(client: docker.APIClient, session_id: str) -> list[Change]:
    """Remove the networks of a session and return the changes."""
    existing = find_networks(client, session_id)
    for network in existing:
        client.remove_network(network["Id"])
    return [Change(f"network {network['Name']}", network["Id"][:12], None) for network in existing]


def subnets(client: docker.APIClient) -> list[str]:
    """Return the address ranges of all networks of the engine, managed or not, up or not."""
    pools = (pool for network in list_networks(client) for pool in network["IPAM"].get("Config") or [])
    return sorted({pool["Subnet"] for pool in pools if "Subnet" in pool})
