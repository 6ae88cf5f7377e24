# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Docker Swarm, where somebody runs one: the existing engines', not ours."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .._model.facts import Swarm
from .sdk import docker

# The UDP port of a swarm's overlays, unless it was told otherwise; only its managers know.
DATA_PATH_PORT = 4789


def read_swarm(client: docker.APIClient) -> dict[str, Any]:
    """Return what the engine says of its swarm; it always says its state."""
    return dict(client.info()["Swarm"])


def swarm_port(swarm: Mapping[str, Any]) -> dict[int, str]:
    """Return the UDP port that a swarm takes on this host; nothing where the engine is in none."""
    return {} if swarm["LocalNodeState"] == "inactive" else {_data_path_port(swarm): "Docker Swarm"}


def place_in(client: docker.APIClient, swarm: Mapping[str, Any]) -> Swarm | None:
    """Return this host's place in its swarm; ``None`` where the engine is in none, or its node is not active."""
    if swarm["LocalNodeState"] != "active":
        return None
    if not swarm["ControlAvailable"]:
        return Swarm(swarm["NodeID"])
    return Swarm(swarm["NodeID"], _ready(client), _data_path_port(swarm))


def manages(client: docker.APIClient) -> bool:
    """Return whether this host can change its swarm's networks."""
    return bool(client.info()["Swarm"].get("ControlAvailable"))


def _data_path_port(swarm: Mapping[str, Any]) -> int:
    return (swarm.get("Cluster") or {}).get("DataPathPort") or DATA_PATH_PORT


def _ready(client: docker.APIClient) -> tuple[str, ...]:
    """Return the ids of the nodes that are ready; none where the managers cannot agree, and nothing can be made."""
    try:
        nodes = client.nodes()
    except docker.errors.APIError:
        return ()
    return tuple(sorted(node["ID"] for node in nodes if node["Status"]["State"] == "ready"))
