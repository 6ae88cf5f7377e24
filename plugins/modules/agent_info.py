#!/usr/bin/python
# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
module: agent_info
short_description: Read what an agent has, what is taken, and which sessions it holds
version_added: 0.1.0
description:
  - Reads an agent in one call, for planning sessions and for listing them. Changes nothing.
  - An agent that cannot hold containers (no Docker SDK, engine down, not provisioned) is no failure of this module.
    It says why in RV(unfit), so that a plan can do without that agent.
  - The slots C(cuda.device) and C(rocm.device) are found by themselves, with C(nvidia-smi) and in the kernel's topology
    of AMD's GPUs, unless O(slots) declares them. Where C(nvidia-smi) is there and fails, the agent offers no
    C(cuda.device), and C(warnings) says so.
  - A GPU of NVIDIA is offered where the engine can give it to containers, by a CDI specification that names its UUID
    (kind C(nvidia.com/gpu), with the engine's feature C(cdi) on), or else by C(nvidia-container-runtime-hook). Others
    are left out, and C(warnings) says so.
extends_documentation_fragment:
  - backendai.cluster.options.engine
  - backendai.cluster.options.state
  - backendai.cluster.options.underlay
  - backendai.cluster.attributes
  - backendai.cluster.attributes.program
  - backendai.cluster.attributes.group
attributes:
  diff_mode:
    support: none
    details: It never changes anything.
requirements:
  - iproute2
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
  images:
    description: Images to look for on the agent.
    type: list
    elements: str
    default: []
  paths:
    description: Folders to look for on the agent.
    type: list
    elements: str
    default: []
seealso:
  - module: backendai.cluster.session_plan
"""

EXAMPLES = r"""
- name: Read the agent
  backendai.cluster.agent_info:
    cpu_overcommit: 2
    images: ["registry.example.com/pytorch:2.3"]
  register: agent
"""

RETURN = r"""
agent:
  description: The agent's facts; V(null) when it is not fit.
  returned: success
  type: dict
  contains:
    resource_group: {type: str, description: The resource group that it belongs to.}
    schedulable: {type: bool, description: Whether it takes new sessions.}
    architecture: {type: str, description: Its architecture as images name it., sample: amd64}
    engine: {type: str, description: The version of its Docker engine., sample: 20.10.24}
    kit: {type: str, description: The version of its runtime kit.}
    program: {type: str, description: The digest of the program that restores its sessions; V(null) without one.}
    online_cpus: {type: list, elements: int, description: The numbers of its cores.}
    capacity: {type: dict, description: "What sessions can have, by slot: bytes of memory, counts of the rest."}
    allocated: {type: dict, description: "What sessions have of it, by slot."}
    devices:
      description: What slots of devices count. RV(ignore:numa) is V(null) where the NUMA node is not known.
      type: list
      elements: dict
      sample: [{slot: cuda.device, id: GPU-5f0c6a52-3c0e-4f5e-9d0a-0f3c1d2e4b6a, numa: 0, free: true}]
    warnings: {type: list, elements: str, description: What its operator should know.}
    containers: {type: int, description: How many containers of sessions it holds.}
    max_containers: {type: int, description: How many it may hold; V(0) for no limit.}
    underlay:
      description: Where it meets its peers; V(null) where no address is known.
      type: dict
      sample: {address: 192.0.2.1, interface: eth0, mtu: 1500, mac: "52:54:00:12:34:56", public_key: "", endpoint: ""}
    addresses: {type: list, elements: str, description: The addresses at which the agent itself can be reached.}
    udp_ports: {type: dict, description: "Who uses UDP ports that are not the collection's, by number."}
    swarm: {type: dict, description: Its place in a Docker Swarm; V(null) where it is in none.}
    tcp_ports: {type: list, elements: int, description: The TCP ports that are used or claimed.}
    allow_host_network: {type: bool, description: Whether containers may share its network.}
    infiniband: {type: bool, description: Whether it has device nodes of InfiniBand.}
    networks: {type: list, elements: str, description: The address ranges in use.}
    vnis: {type: list, elements: int, description: The VXLAN network identifiers in use.}
    images: {type: dict, description: "The O(images) by name: id, digest and reference, or V(null) for a missing one."}
    missing_paths: {type: list, elements: str, description: Those of the O(paths) that are not folders.}
    sessions:
      description:
        - "The sessions that it holds: RV(ignore:plan), RV(ignore:request), RV(ignore:committed), RV(ignore:expired),
          RV(ignore:public_keys) and RV(ignore:containers), the last two by hostname."
      type: list
      elements: dict
unfit:
  description: Why the agent cannot hold containers, one sentence; V(null) when it can.
  returned: success
  type: str
"""
