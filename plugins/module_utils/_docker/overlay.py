# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A Docker Swarm, and the overlay of a session in it: one of its managers makes it, and takes it away."""

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
from .sdk import docker, ipam


def read_swarm(client: docker.APIClient) -> dict[str, Any]:
    """Return what the engine says of its swarm; it always says its state."""
    return dict(client.info()["Swarm"])


def swarm_port(swarm: Mapping[str, Any]) -> dict[int, str]:
    """Return the UDP port that a swarm takes on this host; nothing where the engine is in none.

    A worker does not know it: the planner asks the swarm's managers.
    """
    if swarm["LocalNodeState"] == "inactive" or (swarm["LocalNodeState"] == "active" and not swarm["ControlAvailable"]):
        return {}
    return {_data_path_port(swarm): "Docker Swarm"}


def swarm_membership(client: docker.APIClient, swarm: Mapping[str, Any]) -> Swarm | None:
    """Return this host's place in its swarm; ``None`` where the engine is in none, or its node is not active."""
    if swarm["LocalNodeState"] != "active":
        return None
    if not swarm["ControlAvailable"]:
        return Swarm(swarm["NodeID"])
    return Swarm(swarm["NodeID"], _ready_nodes(client), _data_path_port(swarm))


def is_manager(client: docker.APIClient) -> bool:
    """Return whether this host can change its swarm's networks."""
    return bool(client.info()["Swarm"].get("ControlAvailable"))


def _data_path_port(swarm: Mapping[str, Any]) -> int:
    return (swarm.get("Cluster") or {}).get("DataPathPort") or DEFAULT_DATA_PATH_PORT


def _ready_nodes(client: docker.APIClient) -> tuple[str, ...]:
    """Return the ids of the nodes that are ready; none where the managers cannot agree, and nothing can be made."""
    try:
        nodes = client.nodes()
    except docker.errors.APIError:
        return ()
    return tuple(sorted(node["ID"] for node in nodes if node["Status"]["State"] == "ready"))


# How long the other nodes may take to let go of an overlay.
REMOVE_SECONDS = 30


class OverlayInUseError(ClusterError):
    """Containers on other nodes still use the overlay; the message is one sentence."""


@dataclasses.dataclass(frozen=True)
class Overlay:
    """A network as it should be; ``mtu`` is that of the containers, in bytes.

    Swarm takes the addresses that it needs on each node for itself from ``automatic``, a part of the subnet.
    """

    name: str
    subnet: str
    automatic: str
    mtu: int
    session_id: str

    def digest(self) -> str:
        """Return what identifies everything that cannot be changed once the network is made."""
        return labels.content_digest(dataclasses.astuple(self))


def desired_overlay(plan: SessionPlan) -> Overlay | None:
    """Return the overlay that the plan wants of its swarm; ``None`` where it wants none."""
    network = plan.network
    if network is None or network.swarm_manager is None or network.subnet is None:
        return None
    return Overlay(network.name, network.subnet, upper_half(network.subnet), network.mtu, plan.id)


def find_overlays(client: docker.APIClient, session_id: str) -> list[dict[str, Any]]:
    """Return the overlays of a session that this engine knows: all of them on a manager, elsewhere those in use."""
    return [
        network
        for network in client.networks(filters=labels.label_filter(session_id))
        if network["Driver"] == "overlay"
    ]


def plan_overlay(client: docker.APIClient, desired: Overlay) -> Change | None:
    """Return the difference between the session's overlay and what is wanted; ``None`` where there is none."""
    existing = find_overlays(client, desired.session_id)
    if any(overlay["Labels"].get(labels.DIGEST) == desired.digest() for overlay in existing):
        return None
    before = ", ".join(overlay["Name"] for overlay in existing) or None
    return Change(f"overlay {desired.name}", before, f"{desired.subnet}, mtu {desired.mtu}")


def create_overlay(client: docker.APIClient, overlay: Overlay) -> None:
    """Make the overlay in the swarm.

    ``internal`` keeps the default route of containers on the agent's default network, as it does for bridges. The
    engine takes the MTU as that of the underlay, and gives containers 50 bytes less.
    """
    client.create_network(
        overlay.name,
        driver="overlay",
        internal=True,
        attachable=True,
        check_duplicate=True,
        ipam=ipam(overlay.subnet, overlay.automatic),
        options={"com.docker.network.driver.mtu": str(overlay.mtu + VXLAN_OVERHEAD_V4)},
        labels=labels.network_labels(overlay.session_id, dataclasses.astuple(overlay)),
    )


def remove_overlays(client: docker.APIClient, session_id: str, timeout: float = REMOVE_SECONDS) -> list[Change]:
    """Remove the overlays of a session, where this host manages their swarm, and return what was removed.

    Other agents take their containers away at the same time, so one that is in use is tried again for that long; then
    :class:`OverlayInUse` is raised.
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
    """Remove a network; return whether it is gone, and not in use."""
    try:
        client.remove_network(network)
    except docker.errors.NotFound:
        return True
    except docker.errors.APIError as error:
        if "in use" not in reason(error):
            raise
        return False
    return True
