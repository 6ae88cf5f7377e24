"""The machine's IPv4 routes, as typed values."""

from __future__ import annotations

import json
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network

from tests.lab.command import output


@dataclass(frozen=True)
class Route:
    """One route of the main table."""

    kind: str
    destination: IPv4Network
    gateway: IPv4Address | None
    device: str | None
    metric: int


def machine_routes() -> list[Route]:
    """Return the routes of the control node's main table; the default route's destination is 0.0.0.0/0."""
    return [
        Route(
            kind=entry.get("type", "unicast"),
            destination=IPv4Network("0.0.0.0/0" if entry["dst"] == "default" else entry["dst"]),
            gateway=IPv4Address(entry["gateway"]) if "gateway" in entry else None,
            device=entry.get("dev"),
            metric=entry.get("metric", 0),
        )
        for entry in json.loads(output("ip", "-j", "-4", "route", "show", "table", "main"))
    ]
