# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The overlay of a session in a Docker Swarm: one of the swarm's managers makes it, and takes it away."""

from __future__ import annotations

import dataclasses
import time
from typing import Any

from .._model.addressing import VXLAN_OVERHEAD_V4, upper_half
from .._model.change import Change
from .._model.errors import ClusterError, reason
from .._model.plan import SessionPlan
from . import labels
from .sdk import docker, ipam
from .swarm import manages

# How long the other nodes may take to let go of an overlay.
REMOVE_SECONDS = 30


class OverlayInUse(ClusterError):
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
        return labels.digest(dataclasses.astuple(self))


def desired_overlay(plan: SessionPlan) -> Overlay | None:
    """Return the overlay that the plan wants of its swarm; ``None`` where it wants none."""
    network = plan.network
    if network is None or network.manager is None or network.subnet is None:
        return None
    return Overlay(network.name, network.subnet, upper_half(network.subnet), network.mtu, plan.id)


def find_overlays(client: docker.APIClient, session_id: str) -> list[dict[str, Any]]:
    """Return the overlays of a session that this engine knows: all of them on a manager, elsewhere those in use."""
    return [one for one in client.networks(filters=labels.owned(session_id)) if one["Driver"] == "overlay"]


def plan_overlay(client: docker.APIClient, wanted: Overlay) -> Change | None:
    """Return the difference between the session's overlay and what is wanted; ``None`` where there is none."""
    found = find_overlays(client, wanted.session_id)
    if any(one["Labels"].get(labels.DIGEST) == wanted.digest() for one in found):
        return None
    before = ", ".join(one["Name"] for one in found) or None
    return Change(f"overlay {wanted.name}", before, f"{wanted.subnet}, mtu {wanted.mtu}")


def create_overlay(client: docker.APIClient, wanted: Overlay) -> None:
    """Make the overlay in the swarm.

    ``internal`` keeps the default route of containers on the agent's default network, as it does for bridges. The
    engine takes the MTU as that of the underlay, and gives containers 50 bytes less.
    """
    client.create_network(
        wanted.name,
        driver="overlay",
        internal=True,
        attachable=True,
        check_duplicate=True,
        ipam=ipam(wanted.subnet, wanted.automatic),
        options={"com.docker.network.driver.mtu": str(wanted.mtu + VXLAN_OVERHEAD_V4)},
        labels=labels.of_network(wanted.session_id, dataclasses.astuple(wanted)),
    )


def remove_overlays(client: docker.APIClient, session_id: str, seconds: float = REMOVE_SECONDS) -> list[Change]:
    """Remove the overlays of a session, where this host manages their swarm, and return what was removed.

    Other agents take their containers away at the same time, so one that is in use is tried again for that long; then
    :class:`OverlayInUse` is raised.
    """
    found = find_overlays(client, session_id)
    if not found or not manages(client):
        return []
    until = time.monotonic() + seconds
    for one in found:
        while not _removed(client, one["Id"]):
            if time.monotonic() > until:
                raise OverlayInUse(f"the overlay {one['Name']} is still used by containers on other nodes of the swarm")
            time.sleep(0.2)
    return [Change(f"overlay {one['Name']}", one["Id"][:12], None) for one in found]


def _removed(client: docker.APIClient, network: str) -> bool:
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
