"""Session requests that many tests share; variables are without their prefix."""

from __future__ import annotations

from typing import Any

Request = dict[str, Any]

SMALL: Request = {"resources": {"cpu": 1, "mem": "128m"}}

# Containers are placed on the three agents in turn.
FOUR: Request = {"cluster_mode": "multi-node", "cluster_size": 4, "agent_selection": "dispersed"}
THREE: Request = {**FOUR, "cluster_size": 3, **SMALL}
TWO: Request = {**FOUR, "cluster_size": 2, **SMALL}
