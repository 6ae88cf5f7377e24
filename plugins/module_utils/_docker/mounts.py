# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What containers mount of their agent, and how the engine does it."""

from __future__ import annotations

from .api_version import RECURSIVE, speaks
from .sdk import docker


def mounted_paths(client: docker.APIClient) -> frozenset[str]:
    """Return the agent's paths that any container mounts, managed or not, running or not."""
    containers = client.containers(all=True)
    return frozenset(mount["Source"] for container in containers for mount in container["Mounts"] if "Source" in mount)


def is_recursive(client: docker.APIClient) -> bool:
    """Return whether the engine makes file systems below a read-only mount read-only: from this version of its API on.

    A client that speaks an older one gets what engines did before.
    """
    return speaks(client, RECURSIVE)
