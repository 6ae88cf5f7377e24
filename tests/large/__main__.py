"""Remove the simulated agents that a killed test left in this checkout."""

from __future__ import annotations

from pathlib import Path

from tests.large.agents import LargeLab, remove_agents

if __name__ == "__main__":
    remove_agents(LargeLab(Path(__file__).resolve().parents[2]))
