# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The options and values that the collection had once, each with what to use instead; they stay here up to 0.2.0.

Ansible ignores variables that nobody reads, so without this table a removed option would be ignored silently.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

#: By the name of the variable.
REMOVED_OPTIONS: Mapping[str, str] = {
    "agent_registry_mirrors": "write registry-mirrors into /etc/docker/daemon.json on the agents, and reload docker",
    "session_facts_max_age": "leave it out, every run reads all agents",
}

#: By the name of the variable and the value.
REMOVED_VALUES: Mapping[tuple[str, str], str] = {
    ("session_network_driver", "swarm"): "use vxlan, which needs no Docker Swarm",
}


def describe_removed_options(names: Iterable[str]) -> list[str]:
    """Return a sentence for each option of these names that was removed, with what to use instead."""
    return [f"{name} was removed: {REMOVED_OPTIONS[name]}." for name in sorted({*names} & REMOVED_OPTIONS.keys())]


def describe_removed_value(option: str, value: Any) -> str:
    """Return that a value of an option was removed, and what to use instead, as a phrase; empty if it was not."""
    instead = REMOVED_VALUES.get((option, value)) if isinstance(value, str) else None
    return f"was removed: {instead}" if instead else ""
