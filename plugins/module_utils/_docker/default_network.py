# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The network that every container of an agent joins beside its session's: the way out, and nothing else.

It is the collection's own, so that its firewall rules never meet foreign containers on ``docker0``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .._model.change import Change
from .._model.errors import ClusterError
from . import labels
from .sdk import docker, ipam

_BRIDGE = "com.docker.network.bridge.name"
_ICC = "com.docker.network.bridge.enable_icc"


class NetworkConflictError(ClusterError, ValueError):
    """A network of that name must not be replaced; the message is one sentence for the operator."""


@dataclass(frozen=True)
class DefaultNetwork:
    """The network as it should be; an empty ``subnet`` leaves the choice to the engine."""

    name: str
    bridge: str
    subnet: str = ""


def plan_default_network(client: docker.APIClient, wanted: DefaultNetwork) -> list[Change]:
    """Return what differs from ``wanted``, property by property.

    Raises NetworkConflictError when a network of that name is not ours.
    """
    found = _find(client, wanted.name)
    if found and found["Labels"].get(labels.OWNER) != labels.OWNER_VALUE:
        raise NetworkConflictError(
            f"the Docker network {wanted.name} exists and does not belong to backendai.cluster: remove it, or set"
            " agent_default_network to another name."
        )
    before, after = _observed(found) if found else {}, _desired(wanted)
    return [
        Change(f"network {wanted.name} {name}", before.get(name), after[name])
        for name in after
        if before.get(name) != after[name]
    ]


def make_default_network(client: docker.APIClient, wanted: DefaultNetwork) -> None:
    """Make the network, in place of one of ours that differs.

    Raises NetworkConflictError when containers are attached to the one that differs.
    """
    if found := _find(client, wanted.name):
        attached = client.containers(all=True, filters={"network": found["Id"]})
        if attached:
            raise NetworkConflictError(
                f"the Docker network {wanted.name} differs from what is wanted, and {len(attached)} containers are"
                " attached to it: terminate the sessions on this agent first."
            )
        client.remove_network(found["Id"])
    client.create_network(
        wanted.name,
        driver="bridge",
        check_duplicate=True,
        ipam=ipam(wanted.subnet) if wanted.subnet else None,
        options={_BRIDGE: wanted.bridge, _ICC: "false"},
        labels={labels.OWNER: labels.OWNER_VALUE},
    )


def _find(client: docker.APIClient, name: str) -> dict[str, Any] | None:
    # The engine's filter also finds names that only contain this one.
    return next((found for found in client.networks(names=[name]) if found["Name"] == name), None)


def _desired(wanted: DefaultNetwork) -> dict[str, str]:
    properties = {"driver": "bridge", "bridge": wanted.bridge, "icc": "false", "ipv6": "false"}
    return {**properties, "subnet": wanted.subnet} if wanted.subnet else properties


def _observed(found: Mapping[str, Any]) -> dict[str, str]:
    options = found["Options"] or {}
    return {
        "driver": found["Driver"],
        "bridge": options.get(_BRIDGE, ""),
        "icc": options.get(_ICC, "true"),
        "ipv6": str(found["EnableIPv6"]).lower(),
        "subnet": ",".join(pool["Subnet"] for pool in found["IPAM"]["Config"] or []),
    }
