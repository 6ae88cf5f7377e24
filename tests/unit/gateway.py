"""Gateway for unit tests: its state folder, a fake table and a fake HAProxy."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ansible_collections.backendai.cluster.plugins.module_utils._gateway.model import Gateway
from ansible_collections.backendai.cluster.plugins.module_utils._model.change import Change
from tests.unit.haproxy import AdminSocket

GATEWAY = Gateway("door.example.org", "apps.example.org", 443, 31001, 31010)
ONE, TWO = "5f0c6a52-3c0e-4f5e-9d0a-0f3c1d2e4b6a", "6f0c6a52-3c0e-4f5e-9d0a-0f3c1d2e4b6a"
ROUTE: dict[str, Any] = {
    "id": ONE,
    "name": "train-llm",
    "apps": [{"name": "web", "protocol": "http", "address": "192.0.2.11", "port": 30001}],
    "ssh": {"address": "192.0.2.11", "port": 30002},
}
OTHER: dict[str, Any] = {"id": TWO, "name": "other-user", "apps": [], "ssh": {"address": "192.0.2.12", "port": 30002}}


def provisioned(folder: Path) -> Path:
    """Create the files of the role in a folder, and return it."""
    (folder / "routes").mkdir(parents=True)
    (folder / "gateway.json").write_text(json.dumps({"version": 3, **dataclasses.asdict(GATEWAY)}))
    return folder


def haproxy_of(folder: Path) -> AdminSocket:
    """Start a fake HAProxy with the empty maps of a gateway's folder."""
    return AdminSocket(
        folder / "socket", {str(folder / "maps" / name): [] for name in ("apps.map", "hosts.map", "ssh.map")}
    )


class Table:
    """Fake firewall table of a host, as text."""

    def __init__(self, patch: Callable[[str, Any], None]) -> None:
        self.text = ""
        patch("GATEWAYS_TABLE", self)

    def plan(self, ruleset: str) -> list[Change]:
        return [] if ruleset == self.text else [Change("firewall table", None, "due")]

    def apply(self, ruleset: str) -> None:
        self.text = ruleset
