"""What is compared: eight equal containers, on one agent and on three."""

from __future__ import annotations

import dataclasses

COUNT = 8
CPU, MEMORY = 1, "64m"
IMAGE = "lab/python:1"
LABEL = "backendai-bench"
"""What marks every container and network that the benchmark makes itself."""


@dataclasses.dataclass(frozen=True)
class Setting:
    """Where the containers go: how many on each agent, and the variables by which a session gets there."""

    title: str
    agents: dict[str, int]
    variables: dict[str, object]


SETTINGS = (
    Setting("one agent", {"agent1": 8}, {"designated_agents": ["agent1"], "cluster_mode": "single-node"}),
    Setting(
        "three agents",
        {"agent1": 3, "agent2": 3, "agent3": 2},
        {"agent_selection": "dispersed", "cluster_mode": "multi-node"},
    ),
)
