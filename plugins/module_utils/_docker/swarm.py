# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Docker Swarm, where somebody runs one: the existing engines', not ours."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import docker

DATA_PATH_PORT = 4789
"""The UDP port of a swarm's overlays, unless it was told otherwise; only its managers know."""


def swarm_port(client: docker.APIClient) -> dict[int, str]:
    """Return the UDP port that a swarm takes on this host; nothing where the engine is in none."""
    swarm = client.info()["Swarm"]
    if swarm["LocalNodeState"] == "inactive":
        return {}
    return {(swarm.get("Cluster") or {}).get("DataPathPort") or DATA_PATH_PORT: "Docker Swarm"}
