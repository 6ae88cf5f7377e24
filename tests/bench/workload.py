"""The workloads: eight equal containers, on one agent and on three."""

from __future__ import annotations

import dataclasses
from typing import Any

COUNT = 8
CPU, MEMORY = 1, "64m"
IMAGE = "lab/python:1"
# The label of every container and network that the benchmark creates itself.
LABEL = "backendai-bench"


@dataclasses.dataclass(frozen=True)
class Workload:
    """The number of containers on each agent, and the session variables for that placement."""

    name: str
    agents: dict[str, int]
    placement: dict[str, object]

    @property
    def variables(self) -> dict[str, Any]:
        """The variables of the session."""
        return {
            "session_image": IMAGE,
            "session_cluster_size": COUNT,
            "session_resources": {"cpu": CPU, "mem": MEMORY},
            **self.placement,
        }


ONE_AGENT = Workload(
    "one_agent",
    {"agent1": 8},
    {"session_designated_agents": ["agent1"], "session_cluster_mode": "single-node"},
)
THREE_AGENTS = Workload(
    "three_agents",
    {"agent1": 3, "agent2": 3, "agent3": 2},
    {"session_agent_selection": "dispersed", "session_cluster_mode": "multi-node"},
)
WORKLOADS = (ONE_AGENT, THREE_AGENTS)
