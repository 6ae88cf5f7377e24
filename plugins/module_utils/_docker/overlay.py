# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Read the state of a Docker Swarm, and manage the overlay of a session in it, on one of the swarm's managers."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping
from typing import Any

from .._model.addressing import VXLAN_OVERHEAD_V4, upper_half
from .._model.change import Change
from .._model.errors import ClusterError, reason
from .._model.facts import DEFAULT_DATA_PATH_PORT, Swarm
from .._model.plan import SessionPlan
from . import labels
from .networks import NAME_PREFIX, list_networks, unique_name
from .sdk import docker, ipam


def read_swarm(client: docker.APIClient) -> dict[str, Any]:
    """Return the swarm section of the engine's info, which always contains the state."""
    return dict(client.info()["Swarm"])


def swarm_port(swarm: Mapping[str, Any]) -> dict[int, str]:
    """Return the UDP port that a swarm uses on this host; empty if the engine is not in a swarm.

    Workers do not know it: the planner uses that of the swarm's managers.
    """
    if swarm["LocalNodeState"] == "inactive" or (swarm["LocalNodeState"] == "active" and not swarm["ControlAvailable"]):
        return {}
    return {_data_path_port(swarm): "Docker Swarm"}


def swarm_membership(client: docker.APIClient, swarm: Mapping[str, Any]) -> Swarm | None:
    """Return this host's swarm membership; ``None`` if it is in no swarm or its node is not active."""
    if swarm["LocalNodeState"] != "active":
        return None
    if not swarm["ControlAvailable"]:
        return Swarm(swarm["NodeID"])
    return Swarm(swarm["NodeID"], _ready_nodes(client), _data_path_port(swarm))


def is_manager(client: docker.APIClient) -> bool:
    """Return whether this host is a manager, which can change the swarm's networks."""
    return bool(client.info()["Swarm"].get("ControlAvailable"))


def _data_path_port(swarm: Mapping[str, Any]) -> int:
    return (swarm.get("Cluster") or {}).get("DataPathPort") or DEFAULT_DATA_PATH_PORT


def _ready_nodes(client: docker.APIClient) -> tuple[str, ...]:
    """Return the ids of the ready nodes; empty if the managers have no quorum, so that networks cannot be created."""
    try:
        nodes = client.nodes()
    except docker.errors.APIError:
        return ()
    return tuple(sorted(node["ID"] for node in nodes if node["Status"]["State"] == "ready"))


# How long the other nodes may take to release an overlay.
REMOVE_SECONDS = 30


class OverlayInUseError(ClusterError):
    """Containers on other nodes still use the overlay; the message is one sentence."""


@dataclasses.dataclass(frozen=True)
class Overlay:
    """The desired state of an overlay; ``mtu`` is that of the containers, in bytes.

    Swarm allocates its own address on each node from ``automatic``, a part of the subnet.
    """

    name: str
    subnet: str
    automatic: str
    mtu: int
    session_id: str

    def digest(self) -> str:
        """Return a digest of all properties, which cannot be changed after the network is created."""
        return labels.content_digest(dataclasses.astuple(self))


def desired_overlay(plan: SessionPlan) -> Overlay | None:
    """Return the overlay that the plan requires of its swarm; ``None`` if it requires none."""
    network = plan.network
    if network is None or network.swarm_manager is None or network.subnet is None:
        return None
    return Overlay(network.name, network.subnet, upper_half(network.subnet), network.mtu, plan.id)


def find_overlays(client: docker.APIClient, session_id: str) -> list[dict[str, Any]]:
    """Return the overlays of a session that this engine lists: on managers all of them, on workers those in use."""
    return [
        network
        for network in list_networks(client, filters=labels.label_filter(session_id))
        if network["Driver"] == "overlay" and network["Name"].startswith(NAME_PREFIX)
    ]


def plan_overlay(client: docker.APIClient, desired: Overlay) -> Change | None:
    """Return the change from the existing to the desired overlay of a session; ``None`` if they are equal."""
    existing = find_overlays(client, desired.session_id)
    if any(overlay["Labels"].get(labels.DIGEST) == desired.digest() for overlay in existing):
        return None
    before = ", ".join(overlay["Name"] for overlay in existing) or None
    return Change(f"overlay {desired.name}", before, f"{desired.subnet}, mtu {desired.mtu}")


def create_overlay(client: docker.APIClient, overlay: Overlay) -> None:
    """Create the overlay in the swarm.

    ``internal`` keeps the default route of containers on the agent's default network, as with bridges. The engine
    expects the MTU of the underlay, and sets that of containers 50 bytes lower.
    """
    client.create_network(
        overlay.name,
        driver="overlay",
        internal=True,
        attachable=True,
        check_duplicate=unique_name(client),
        ipam=ipam(overlay.subnet, overlay.automatic),
        options={"com.docker.network.driver.mtu": str(overlay.mtu + VXLAN_OVERHEAD_V4)},
        labels=labels.network_labels(overlay.session_id, dataclasses.astuple(overlay)),
    )


def remove_overlays(client: docker.APIClient, session_id: str, timeout: float = REMOVE_SECONDS) -> list[Change]:
    """Remove the overlays of a session if this host is a swarm manager, and return the changes.

    Other agents remove their containers at the same time, so an overlay in use is retried for ``timeout`` seconds;
    then :class:`OverlayInUseError` is raised.
    """
    existing = find_overlays(client, session_id)
    if not existing or not is_manager(client):
        return []
    deadline = time.monotonic() + timeout
    for overlay in existing:
        while not _try_remove(client, overlay["Id"]):
            if time.monotonic() > deadline:
                raise OverlayInUseError(
                    f"the overlay {overlay['Name']} is still used by containers on other nodes of the swarm"
                )
            time.sleep(0.2)
    return [Change(f"overlay {overlay['Name']}", overlay["Id"][:12], None) for overlay in existing]


def _try_remove(client: docker.APIClient, network: str) -> bool:
    """Remove a network; return whether it no longer exists, ``False`` if it is in use."""
    try:
        client.remove_network(network)
    except docker.errors.APIError as error:
        # A manager lists an overlay for a moment after its removal, and then fails (20.10) to find it.
        if isinstance(error, docker.errors.NotFound) or "not found" in reason(error):
            return True
        if "in use" not in reason(error):
            raise
        return False
    return True
