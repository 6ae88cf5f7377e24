"""Copies of the lab's inventory with changed variables."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from tests.integration.laboratory import INVENTORY

#: A closed port and a short timeout.
UNREACHABLE = {"ansible_port": 9, "ansible_ssh_timeout": 3}


def inventory_options(folder: Path, **changes: dict[str, Any]) -> list[str]:
    """Return the options for the lab's inventory with changed variables of some hosts."""
    data = yaml.safe_load(INVENTORY.read_text())
    for group in data["all"]["children"].values():
        for host, variables in changes.items():
            if host in group["hosts"]:
                group["hosts"][host].update(variables)
    path = folder / "inventory.yml"
    path.write_text(yaml.safe_dump(data))
    return ["-i", str(path)]
