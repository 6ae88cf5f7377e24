# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Manage the default network, which every container joins for outbound traffic, next to its session's network.

It is not ``docker0``, so the collection's firewall rules do not affect other containers there.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any

from .._host.store import Store
from .._model.change import Change
from .._model.errors import ClusterError
from .._model.files import write_atomically
from .._model.state_format import StateFormat
from . import labels
from .networks import BRIDGE_OPTION, ICC, INHIBIT_IPV4, INTERFACES, MTU, RELIED_UPON, ipam, list_networks, unique_name
from .sdk import docker


class NetworkConflictError(ClusterError, ValueError):
    """The network of that name cannot be replaced; the message is one sentence for the operator."""


@dataclasses.dataclass(frozen=True)
class DefaultNetwork:
    """The desired state of the network; with an empty ``subnet`` the engine chooses one. ``mtu`` is in bytes."""

    name: str
    bridge: str
    subnet: str = ""
    mtu: int = 1500


_FORMAT = StateFormat("the default network", DefaultNetwork)


def read_default_network(store: Store) -> DefaultNetwork | None:
    """Return how the network was created last; ``None`` if that is not known: provisioning writes it again."""
    try:
        return _FORMAT.load(store.default_network_file.read_bytes())
    except (OSError, ValueError):
        return None


def save_default_network(client: docker.APIClient, store: Store, network: DefaultNetwork) -> None:
    """Store how the network is to be created again, and which MTU it has."""
    existing = _find_network(client, network.name)
    made = dataclasses.replace(network, mtu=int(_observed_properties(existing)["mtu"])) if existing else network
    if read_default_network(store) != made:
        write_atomically(store.default_network_file, _FORMAT.dump(made))


def plan_default_network(client: docker.APIClient, desired: DefaultNetwork) -> list[Change]:
    """Return the differences from the desired network, property by property.

    Another MTU is none while containers are attached: they and the bridge have the right one where they are.

    Raises NetworkConflictError if a network of that name does not belong to this collection.
    """
    existing = _find_own_network(client, desired.name)
    before, after = _observed_properties(existing) if existing else {}, _desired_properties(desired)
    if existing and before["mtu"] != after["mtu"] and _attached(client, existing):
        after["mtu"] = before["mtu"]
    return [
        Change(f"network {desired.name} {name}", before.get(name), after[name])
        for name in after
        if before.get(name) != after[name]
    ]


def apply_default_network(
    client: docker.APIClient, desired: DefaultNetwork, lock: AbstractContextManager[None], *, check_mode: bool
) -> list[Change]:
    """Create or replace the network if it differs, under a lock against other provisionings; return the changes."""
    changes = plan_default_network(client, desired)
    if not changes or check_mode:
        return changes
    with lock:
        # It may have been created while the lock was waited for.
        changes = plan_default_network(client, desired)
        if changes:
            create_default_network(client, desired)
        return changes


def create_default_network(client: docker.APIClient, desired: DefaultNetwork) -> None:
    """Create the network, replacing one of this collection that differs.

    Raises NetworkConflictError if containers are attached to the one that differs.
    """
    existing = _find_network(client, desired.name)
    if not renew_default_network(client, desired):
        attached = _attached(client, existing) if existing else []
        raise NetworkConflictError(
            f"the Docker network {desired.name} differs from the configured one, and {len(attached)} containers"
            " are attached to it: terminate the sessions on this agent first."
        )


def renew_default_network(client: docker.APIClient, desired: DefaultNetwork) -> bool:
    """Create the network, in place of one of this collection; return ``False`` if containers are attached to that.

    Raises NetworkConflictError if a network of that name does not belong to this collection.
    """
    if existing := _find_own_network(client, desired.name):
        if _attached(client, existing):
            return False
        client.remove_network(existing["Id"])
    client.create_network(
        desired.name,
        driver="bridge",
        check_duplicate=unique_name(client),
        ipam=ipam(desired.subnet) if desired.subnet else None,
        options={
            **RELIED_UPON,
            BRIDGE_OPTION: desired.bridge,
            ICC: "false",
            INHIBIT_IPV4: "false",
            INTERFACES: "eth",
            MTU: str(desired.mtu),
        },
        labels={labels.OWNER: labels.OWNER_VALUE},
    )
    return True


def gateway_address(client: docker.APIClient, name: str) -> str | None:
    """Return the address of the network's bridge, with its prefix length; ``None`` if the engine does not know it."""
    network = _find_network(client, name) or {"IPAM": {}}
    pools = [pool for pool in network["IPAM"].get("Config") or [] if "Gateway" in pool]
    return next((f"{pool['Gateway'].partition('/')[0]}/{pool['Subnet'].partition('/')[2]}" for pool in pools), None)


def _attached(client: docker.APIClient, network: Mapping[str, Any]) -> list[dict[str, Any]]:
    return list(client.containers(all=True, filters={"network": [network["Id"]]}))


def remove_default_network(client: docker.APIClient, name: str, *, check_mode: bool) -> list[Change]:
    """Remove the network of that name, and return the change; one that is not of this collection stays."""
    existing = _find_network(client, name)
    if existing is None or existing["Labels"].get(labels.OWNER) != labels.OWNER_VALUE:
        return []
    if not check_mode:
        client.remove_network(existing["Id"])
    return [Change(f"network {name}", existing["Id"][:12], None)]


def _find_own_network(client: docker.APIClient, name: str) -> dict[str, Any] | None:
    """Return the network of that name. Raises NetworkConflictError if it does not belong to this collection."""
    existing = _find_network(client, name)
    if existing and existing["Labels"].get(labels.OWNER) != labels.OWNER_VALUE:
        raise NetworkConflictError(
            f"the Docker network {name} exists and does not belong to backendai.cluster: remove it, or set"
            " agent_default_network to another name."
        )
    return existing


def _find_network(client: docker.APIClient, name: str) -> dict[str, Any] | None:
    # The engine's filter also matches names that contain this one.
    listed = list_networks(client, filters={"name": [name]})
    return next((network for network in listed if network["Name"] == name), None)


def _desired_properties(desired: DefaultNetwork) -> dict[str, str]:
    properties = {"driver": "bridge", "bridge": desired.bridge, "icc": "false", "ipv6": "false"}
    properties["mtu"] = str(desired.mtu)
    return {**properties, "subnet": desired.subnet} if desired.subnet else properties


def _observed_properties(network: Mapping[str, Any]) -> dict[str, str]:
    options = network["Options"] or {}
    return {
        "driver": network["Driver"],
        "bridge": options.get(BRIDGE_OPTION, ""),
        "icc": options.get(ICC, "true"),
        "ipv6": str(network["EnableIPv6"]).lower(),
        # The engine's own, whatever the host has.
        "mtu": options.get(MTU) or "1500",
        "subnet": ",".join(pool["Subnet"] for pool in network["IPAM"]["Config"] or []),
    }
