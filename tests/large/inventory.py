"""The inventory of the simulated agents, alone or beside those of the lab."""

from __future__ import annotations

from collections.abc import Sequence

from tests.large.identity import CONTAINERS, LargeLab, SimulatedAgent

_HEAD = """\
---
# Written by `python -m tests.large up`.
all:
  vars:
    session_queue_path: {queue}
  children:
    agents:
      hosts:
"""
_HOST = """\
        {name}:
          ansible_connection: local
          ansible_python_interpreter: {interpreter}
          agent_docker_host: unix://{socket}
          agent_state_path: {state}
          agent_underlay_address: {address}
          agent_cpu_overcommit: {containers}
          agent_slots: []
"""


def write_inventory(lab: LargeLab, agents: Sequence[SimulatedAgent]) -> None:
    """Write the inventory; with that of the lab before it, all agents are in one group, and the lab's queue counts."""
    lab.inventory.write_text(_HEAD.format(queue=lab.queue) + "".join(map(_entry, agents)))


def _entry(agent: SimulatedAgent) -> str:
    return _HOST.format(
        name=agent.name,
        interpreter=agent.interpreter,
        socket=agent.socket,
        state=agent.state,
        address=agent.address,
        containers=CONTAINERS,
    )
