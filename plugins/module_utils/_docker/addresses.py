# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Read the addresses of containers on the engine's networks."""

from __future__ import annotations

from .containers import listed_name
from .sdk import docker


def container_addresses(client: docker.APIClient) -> list[str]:
    """Return the IPv4 and IPv6 addresses of all running containers, managed by this collection or not."""
    endpoints = [
        endpoint for container in client.containers() for endpoint in container["NetworkSettings"]["Networks"].values()
    ]
    addresses = [endpoint.get(key) for endpoint in endpoints for key in ("IPAddress", "GlobalIPv6Address")]
    return sorted({address for address in addresses if address})


def published_ports(client: docker.APIClient) -> dict[tuple[str, int], str]:
    """Return the container of each protocol and port that running containers publish, managed or not."""
    return {
        (port["Type"], port["PublicPort"]): f"container {listed_name(container)}"
        for container in client.containers()
        for port in container.get("Ports") or ()
        if "PublicPort" in port
    }
