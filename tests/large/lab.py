"""Builds the large lab."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from tests.lab.command import output, step
from tests.lab.debian import require
from tests.large.hosts import ensure_agents
from tests.large.identity import LargeLab, SimulatedAgent
from tests.large.inventory import write_inventory
from tests.large.sessions import ensure_sessions

ANSIBLE = Path(__file__).resolve().parents[2] / ".venv" / "bin" / "ansible"


def up(lab: LargeLab, hosts: int, sessions: int | None = None) -> list[SimulatedAgent]:
    """Create that many agents with their sessions again, and install the agents' program as provisioning does."""
    require("ip", "iptables", "nft", "nsenter")
    agents = [lab.agent(number) for number in range(1, hosts + 1)]
    with step(f"{hosts} agents"):
        ensure_agents(lab, agents)
        write_inventory(lab, agents)
    with step("sessions"):
        ensure_sessions(lab, agents, sessions, len(os.sched_getaffinity(0)))
    with step("program"):
        _install_program(lab, agents)
    return agents


def _install_program(lab: LargeLab, agents: Sequence[SimulatedAgent]) -> None:
    """Install the program on the first agent: it is that of all of them."""
    output(str(ANSIBLE), "-i", str(lab.inventory), agents[0].name, "-m", "backendai.cluster.agent_program")
