# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Documentation that several modules share."""

from __future__ import annotations


class ModuleDocFragment:
    """Options of an agent."""

    # How to reach what is on the agent.
    DOCUMENTATION = r"""
options:
  docker_host:
    description: The address of the agent's Docker engine.
    type: str
    default: unix:///var/run/docker.sock
  state_path:
    description:
      - The folder that holds what the agent remembers of sessions. The role P(backendai.cluster.agent#role) makes it.
    type: path
    default: /var/lib/backendai
requirements:
  - python >= 3.9
  - Docker SDK for Python (C(python3-docker))
  - iproute2
"""

    # What the inventory says of an agent.
    CAPACITY = r"""
options:
  resource_group:
    description: The resource group that the agent belongs to.
    type: str
    default: default
  schedulable:
    description: Whether the agent takes new sessions.
    type: bool
    default: true
  slots:
    description:
      - Devices that the agent offers, beside cores, memory, and the GPUs that are found by themselves. A device is in
        one container only.
      - A slot that is declared here replaces one that would be found; without devices, it hides those.
    type: list
    elements: dict
    default: []
    suboptions:
      name:
        description: The name of the slot, such as V(fpga.device).
        type: str
        required: true
      devices:
        description:
          - One entry for each device. It is the path of a device node, or a list of such paths, or a mapping of
            C(paths) and C(numa), the number of the device's NUMA node.
        type: list
        elements: raw
        required: true
  reserved:
    description: What is kept for the agent itself, by slot.
    type: dict
    default: {cpu: 0, mem: 512m}
  cpu_overcommit:
    description: How many containers may share a core; capacity in C(cpu) is the online cores times this.
    type: int
    default: 1
  max_containers:
    description: The most containers that the agent may hold; V(0) stands for no limit.
    type: int
    default: 0
  underlay_address:
    description:
      - The address at which the agent's peers reach it.
      - When empty, the address of the interface with the default route, else the one that this connection came in at.
    type: str
    default: ""
  underlay_encryption:
    description:
      - With V(wireguard), the agent meets its peers over its WireGuard device alone, which the role
        P(backendai.cluster.agent#role) makes. While that is not as it should be, the agent has no underlay.
    type: str
    choices: ["", wireguard]
    default: ""
  allow_host_network:
    description: Whether containers may share the agent's own network. Nothing keeps those apart from the agent.
    type: bool
    default: false
"""
