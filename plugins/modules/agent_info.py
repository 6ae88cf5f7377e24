#!/usr/bin/python
# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
module: agent_info
short_description: List agents, and what is free on them
version_added: 0.2.0
description:
  - Returns which agents take new sessions and why others do not, what is free on them, and the largest sessions that
    would start now. Changes nothing.
  - Runs once, on the control node, and asks all agents itself, as M(backendai.cluster.session_info) does, with the same
    rules for connections.
  - An agent that cannot be asked does not make the task fail; its RV(agents[].status) says so. An agent that C(--limit)
    hides is left out of RV(agents).
  - Warns of what runs on agents beside sessions, and of what is wrong with them.
extends_documentation_fragment:
  - backendai.cluster.attributes.agents
options:
  agents:
    description: The inventory names of the agents. By default those that the pattern in the variable C(agent_group)
      matches, or else those of the group C(agents).
    type: list
    elements: str
  queue_path:
    description: The folder on the control node with the queue of sessions, some of which other runs are about to start.
      By default the variable C(session_queue_path), or else the folder C(.queue) beside the inventory.
    type: path
  format:
    description: Prints the agents for people instead of returning them, as a V(table) or as V(json).
    type: str
    choices: [table, json]
  path:
    description: A file on the control node for RV(agents) and RV(groups) as JSON. Only its owner can read it.
    type: path
seealso:
  - module: backendai.cluster.agent_state
  - module: backendai.cluster.session_info
"""

EXAMPLES = r"""
- name: See whether there is room, and who is out of service
  hosts: localhost
  gather_facts: false
  tasks:
    - name: Read the agents
      backendai.cluster.agent_info:
      register: cluster

    - name: Show the agents that take no new sessions
      ansible.builtin.debug:
        msg: "{{ item.name }} is {{ item.status }}: {{ item.problem }}"
      loop: "{{ cluster.agents | rejectattr('status', 'eq', 'ready') }}"
      loop_control:
        label: "{{ item.name }}"

    - name: Show how many free cores there are
      ansible.builtin.debug:
        msg: "{{ cluster.groups | map(attribute='free') | map(attribute='cpu') | sum }}"
"""

RETURN = r"""
agents:
  description: The agents, by name.
  returned: without O(format)
  type: list
  elements: dict
  contains:
    name: {type: str, description: The inventory name of the agent.}
    resource_group: {type: str, description: The resource group that it belongs to.}
    status: {type: str, description: "V(ready), V(cordoned), V(drained), V(unusable) or V(unreachable)."}
    problem: {type: str, description: "Why it takes no new sessions; empty if it does."}
    total:
      description: "Its capacity for sessions, by slot - memory in bytes, the rest as counts. Empty if it is not known,
        as are the others."
      type: dict
      sample: {cpu: 16, mem: 68719476736, cuda.device: 2}
    free: {type: dict, description: "The part of it that no session has, by slot."}
    containers: {type: int, description: The number of containers of sessions on it; V(null) if it is not known.}
    labels: {type: list, elements: str, description: The words by which sessions choose it.}
    gpus:
      description: Its GPUs by model, as far as the driver names them.
      type: list
      elements: dict
      sample: [{slot: cuda.device, model: NVIDIA H100 80GB HBM3, memory: 85520809984, count: 2}]
    topology: {type: list, elements: str, description: "The domains that it is in, from the outside in."}
    closed_storage:
      description: The services of storage servers that containers do not reach, with the mount that each comes from.
      type: list
      elements: dict
groups:
  description: The resource groups, by name. Nothing counts as free on agents that take no new sessions.
  returned: without O(format)
  type: list
  elements: dict
  contains:
    resource_group: {type: str, description: The name of the group.}
    total: {type: dict, description: "The capacity of its agents, by slot."}
    free: {type: dict, description: "The part of it that a new session could have, by slot."}
    largest_sessions:
      description: How many containers would start now, with the resources of each of them - plain ones, and ones with
        one more of each kind of accelerator.
      type: list
      elements: dict
      sample: [{resources: {cpu: 1, mem: 1073741824}, containers: 12, on_one_agent: 12}]
timer:
  description: The C(host) of the timer, when it C(ran_at) last and is C(late_at), and its C(problem) if it is late.
  returned: success
  type: dict
unavailable:
  description: The agents that could not be asked, by name, as of M(backendai.cluster.session_info).
  returned: success
  type: dict
"""
