"""Temporary firewall settings for a test."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.integration.laboratory import INVENTORY, ansible

PLAYBOOK = Path(__file__).with_name("playbooks") / "firewall.yml"


def apply_firewall(variables: Mapping[str, Any], *options: str) -> subprocess.CompletedProcess[str]:
    """Apply firewall rules to the agents, given ``firewall_*`` variables without their prefix."""
    extra_vars = json.dumps({f"firewall_{name}": value for name, value in variables.items()})
    return ansible("ansible-playbook", "-i", INVENTORY, PLAYBOOK, "-e", extra_vars, *options)


@contextmanager
def temporary_firewall(**variables: Any) -> Iterator[None]:
    """Apply other firewall rules to the agents; afterwards those of the lab are restored."""
    changed = apply_firewall(variables)
    try:
        assert changed.returncode == 0, changed.stdout
        yield
    finally:
        restored = apply_firewall({})
        assert restored.returncode == 0, restored.stdout
