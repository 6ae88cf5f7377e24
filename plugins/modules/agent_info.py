#!/usr/bin/python
# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
module: agent_info
short_description: Read the capacity, allocations and sessions of an agent
version_added: 0.1.0
description:
  - Reads an agent in one call, for planning and listing sessions. Changes nothing.
  - The module does not fail for an agent that cannot run containers (no Docker SDK, Docker down, not provisioned). It
    returns the reason in RV(error), so that sessions are planned without that agent.
  - The slots C(cuda.device) and C(rocm.device) are detected with C(nvidia-smi) and from the kernel's topology of AMD
    GPUs, unless O(slots) declares them. Instead of an NVIDIA GPU in MIG mode, its instances are offered, in slots such
    as C(cuda.mig-1g.10gb). If C(nvidia-smi) is installed but fails, the agent offers no C(cuda.device), and C(warnings)
    contains the reason.
  - An NVIDIA GPU is offered if Docker can assign it to containers, by a CDI specification with its UUID (kind
    C(nvidia.com/gpu), with Docker's feature C(cdi) on), or else by C(nvidia-container-runtime-hook). Other GPUs are
    omitted with a warning in C(warnings). So is said if containers may lose those that the hook gives them.
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
    details: The module never changes anything.
requirements:
  - iproute2
options:
  resource_group:
    description: The resource group that the agent belongs to.
    type: str
    default: default
  schedulable:
    description: Whether the agent accepts new sessions.
    type: bool
    default: true
  labels:
    description: Words by which sessions choose agents, with C(session_agent_labels).
    type: list
    elements: str
    default: []
  topology:
    description: The domains that the agent is in, from the outside in, by which C(session_topology) chooses agents.
    type: list
    elements: str
    default: []
  topology_levels:
    description: The names of the levels of these domains, if they have any.
    type: list
    elements: str
    default: []
  slots:
    description:
      - Devices that the agent offers, in addition to cores, memory and automatically detected GPUs. Each device is
        assigned to at most one container.
      - A slot that is declared here replaces a detected slot of the same name; with an empty list of devices, it hides
        the detected ones.
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
    description: The resources that are reserved for the host itself, by slot.
    type: dict
    default: {cpu: 0, mem: 512m}
  reserved_devices:
    description:
      - Devices that are not offered, by the UUID of an NVIDIA GPU or MIG instance, or the path of a device node. Those
        that a session has are kept back when it ends.
    type: list
    elements: str
    default: []
  cpu_overcommit:
    description: How many containers may share a core; the capacity in C(cpu) is the number of online cores times this.
    type: int
    default: 1
  max_containers:
    description: The maximum number of containers; V(0) for no limit.
    type: int
    default: 0
  underlay_encryption:
    description:
      - With V(wireguard), the agent uses only its WireGuard device as underlay, which the role
        P(backendai.cluster.agent#role) creates. Without a working device, the agent has no underlay.
    type: str
    choices: ["", wireguard]
    default: ""
  allow_host_network:
    description: Whether containers may share the network of the agent. They are not isolated from the agent then.
    type: bool
    default: false
  allow_infiniband:
    description: Whether containers may have the InfiniBand of the agent. No firewall is in its way.
    type: bool
    default: false
  mount_roots:
    description: The folders in which sessions may mount folders, by their real paths.
    type: list
    elements: str
    default: [/]
  disk_reserve:
    description: The space that should stay free where the engine keeps its images, in bytes or as V(10g).
    type: str
    default: 1g
  images:
    description: The images to look up on the agent.
    type: list
    elements: str
    default: []
  paths:
    description:
      - The folders to look up on the agent, which takes ten seconds at most. Before the path of one there may be
        C(strict), C(read-only) or both, as in V(strict,read-only:/srv/data), as in C(session_mounts).
    type: list
    elements: str
    default: []
  keys_of:
    description: The ids of the sessions whose public keys are returned.
    type: list
    elements: str
    default: []
seealso:
  - module: backendai.cluster.session
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
  description: The agent's facts; V(null) if RV(error) is set.
  returned: success
  type: dict
  contains:
    resource_group: {type: str, description: The resource group that it belongs to.}
    schedulable: {type: bool, description: Whether it accepts new sessions.}
    architecture: {type: str, description: "Its architecture, as in images.", sample: amd64}
    engine: {type: str, description: The version of its Docker engine., sample: 20.10.24}
    kit: {type: str, description: The version of its runtime kit.}
    program: {type: str, description: The digest of its agent program; V(null) without one.}
    online_cpus: {type: list, elements: int, description: The numbers of its cores.}
    capacity: {type: dict, description: "The capacity for sessions, by slot: memory in bytes, other slots as counts."}
    allocated: {type: dict, description: "The allocated part of it, by slot."}
    devices:
      description:
        - The devices of device slots. RV(ignore:numa) is V(null) if the NUMA node is unknown. RV(ignore:model) and
          RV(ignore:memory), in bytes, are those of NVIDIA GPUs, as far as they are known. RV(ignore:gpu) is the UUID of
          the GPU that a MIG instance is of.
      type: list
      elements: dict
      sample:
        - slot: cuda.device
          id: GPU-5f0c6a52-3c0e-4f5e-9d0a-0f3c1d2e4b6a
          numa: 0
          free: true
          model: NVIDIA H100 80GB HBM3
          memory: 85520809984
          gpu: ""
    warnings: {type: list, elements: str, description: Warnings for the operator.}
    containers: {type: int, description: The number of containers of sessions.}
    max_containers: {type: int, description: The maximum number of containers; V(0) for no limit.}
    underlay:
      description: Its underlay; V(null) without a usable address.
      type: dict
      sample: {address: 192.0.2.1, interface: eth0, mtu: 1500, mac: "52:54:00:12:34:56", public_key: "", endpoint: ""}
    addresses: {type: list, elements: str, description: The addresses of the agent itself.}
    udp_ports: {type: dict, description: "The users of UDP ports that are not the collection's, by number."}
    tcp_ports: {type: list, elements: int, description: "The TCP ports in use, claimed or reserved."}
    reserved_ports:
      type: dict
      description: The ports of ended sessions, by id, that stay reserved until all gateways have removed their routes.
    allow_host_network: {type: bool, description: Whether containers may share its network.}
    has_infiniband: {type: bool, description: "Whether it has device nodes C(/dev/infiniband/uverbs*)."}
    infiniband: {type: bool, description: "Whether containers may have them: it has some, and O(allow_infiniband)."}
    networks: {type: list, elements: str, description: The address ranges in use.}
    vnis: {type: list, elements: int, description: The VXLAN network identifiers in use.}
    images: {type: dict, description: "The O(images) by name: id, digest and reference, or V(null) if missing."}
    unusable_images:
      description: Those of the O(images) that the engine cannot read, with the reason.
      type: dict
      sample: {"lab/odd:1": "session_image: the engine describes 'lab/odd:1' in a form that is not known"}
    image_disk:
      description:
        - Where its engine keeps images, with the sizes of those of the O(images) that are there, in bytes.
        - V(null) if it is not known.
      type: dict
      sample: {folder: /var/lib/docker, free: 90000000000, reserve: 1073741824, sizes: {"lab/python:1": 50000000}}
    unusable_paths:
      description: Those of the O(paths) that the agent does not mount, with the problem of each.
      type: dict
      sample: {/mnt/data: {problem: is not a folder, explanation: the source must exist there}}
    path_groups: {type: dict, description: "The numbers of the groups that own the other O(paths), by path."}
    sessions:
      description:
        - "The sessions of the agent: RV(ignore:id), RV(ignore:name), RV(ignore:created_at), RV(ignore:nonce) of the run
          that claimed it last, RV(ignore:plan_digest) of the plan that it has stored, whether it is RV(ignore:batch),
          RV(ignore:committed) or RV(ignore:expired), RV(ignore:states) of its containers, and RV(ignore:public_keys) if
          it is one of O(keys_of)."
      type: list
      elements: dict
    damaged_sessions: {type: list, elements: str, description: The ids of sessions that it holds and cannot read.}
    cordon:
      description: Why it accepts none, as set by M(backendai.cluster.agent_state); V(null) otherwise.
      type: dict
      sample: {reason: new memory, by: carol, since: 1800000000.0, sessions_end_at: null}
    labels: {type: list, elements: str, description: The words by which sessions choose it.}
    obstacles: {type: list, elements: str, description: "What is wrong with it, so that it accepts no new sessions."}
    topology: {type: list, elements: str, description: "The domains that it is in, from the outside in."}
    topology_levels: {type: list, elements: str, description: The names of their levels.}
    closed_storage:
      description: The services of storage servers that containers do not reach, with the mount that each comes from.
      type: list
      elements: dict
      sample: [{kind: NFS, address: 192.0.2.7, mount: /mnt/data, tcp: ["111", "2049"], udp: ["111", "2049"]}]
error:
  description: The reason why the agent cannot run containers; V(null) if it can.
  returned: success
  type: str
"""
