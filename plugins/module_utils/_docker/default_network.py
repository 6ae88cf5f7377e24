# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Manage the default network, which every container joins for outbound traffic, next to its session's network.

It is not ``docker0``, so the collection's firewall rules do not affect other containers there.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

from .._model.change import Change
from .._model.errors import ClusterError
from . import labels
from .networks import BRIDGE_OPTION
from .sdk import docker, ipam

_ICC = "com.docker.network.bridge.enable_icc"


class NetworkConflictError(ClusterError, ValueError):
    """The network of that name cannot be replaced; the message is one sentence for the operator."""


class DefaultNetwork(NamedTuple):
    """The desired state of the network; with an empty ``subnet`` the engine chooses one."""

    name: str
    bridge: str
    subnet: str = ""


def plan_default_network(client: docker.APIClient, desired: DefaultNetwork) -> list[Change]:
    """Return the differences from the desired network, property by property.

    Raises NetworkConflictError if a network of that name does not belong to this collection.
    """
    existing = _find_network(client, desired.name)
    if existing and existing["Labels"].get(labels.OWNER) != labels.OWNER_VALUE:
        raise NetworkConflictError(
            f"the Docker network {desired.name} exists and does not belong to backendai.cluster: remove it, or set"
            " agent_default_network to another name."
        )
    before, after = _observed_properties(existing) if existing else {}, _desired_properties(desired)
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
    if existing := _find_network(client, desired.name):
        attached = client.containers(all=True, filters={"network": [existing["Id"]]})
        if attached:
            raise NetworkConflictError(
                f"the Docker network {desired.name} differs from the configured one, and {len(attached)} containers"
                " are attached to it: terminate the sessions on this agent first."
            )
        client.remove_network(existing["Id"])
    client.create_network(
        desired.name,
        driver="bridge",
        check_duplicate=True,
        ipam=ipam(desired.subnet) if desired.subnet else None,
        options={BRIDGE_OPTION: desired.bridge, _ICC: "false"},
        labels={labels.OWNER: labels.OWNER_VALUE},
    )


def remove_default_network(client: docker.APIClient, name: str, *, check_mode: bool) -> list[Change]:
    """Remove the network of that name, and return the change; one that is not of this collection stays."""
    existing = _find_network(client, name)
    if existing is None or existing["Labels"].get(labels.OWNER) != labels.OWNER_VALUE:
        return []
    if not check_mode:
        client.remove_network(existing["Id"])
    return [Change(f"network {name}", existing["Id"][:12], None)]


def _find_network(client: docker.APIClient, name: str) -> dict[str, Any] | None:
    # The engine's filter also matches names that contain this one.
    return next((network for network in client.networks(filters={"name": [name]}) if network["Name"] == name), None)


def _desired_properties(desired: DefaultNetwork) -> dict[str, str]:
    properties = {"driver": "bridge", "bridge": desired.bridge, "icc": "false", "ipv6": "false"}
    return {**properties, "subnet": desired.subnet} if desired.subnet else properties


def _observed_properties(network: Mapping[str, Any]) -> dict[str, str]:
    options = network["Options"] or {}
    return {
        "driver": network["Driver"],
        "bridge": options.get(BRIDGE_OPTION, ""),
        "icc": options.get(_ICC, "true"),
        "ipv6": str(network["EnableIPv6"]).lower(),
        "subnet": ",".join(pool["Subnet"] for pool in network["IPAM"]["Config"] or []),
    }
