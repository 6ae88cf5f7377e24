#!/usr/bin/python
# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
module: agent_state
short_description: Take agents out of service, or back into it
version_added: 0.2.0
description:
  - An agent that is out of service takes no new sessions. Those that run on it go on, or end with O(state=drained).
  - This is kept on the agent, so that all managers know of it, and stays over reboots.
  - Runs once, on the control node, and asks the agents itself, as M(backendai.cluster.session_info) does, with the same
    rules for connections. A task with C(agents={{ inventory_hostname }}) may run on several hosts, each for itself.
  - Prints a line for each agent, with what is now true of it.
  - Fails if an agent could not be asked; the others have done what they were asked. An agent that C(--limit) hides is
    left out, with a warning.
extends_documentation_fragment:
  - backendai.cluster.attributes.agents
attributes:
  check_mode:
    details: Agents say what they would do.
  diff_mode:
    support: full
    details: Returns what each agent would change, or has changed.
options:
  state:
    description:
      - With V(cordoned), agents take no new sessions, and those that run on them go on. This calls a drain off.
      - With V(drained), the sessions on them end, too, at once or after O(deadline). The next pass over the queue after
        that ends them, on all of their agents - M(backendai.cluster.queue), or any playbook that starts or ends
        sessions.
      - With V(resumed), they take new sessions again. The next pass over the queue starts those that wait.
    type: str
    choices: [cordoned, drained, resumed]
    required: true
  agents:
    description: The inventory names of the agents, as a list or comma-separated. By default the variable
      C(agent_names).
    type: list
    elements: str
  all_confirmed:
    description: Whether all agents of the inventory may be taken out of service at once, so that no session could
      start. By default the variable C(agent_all_confirmed), or else V(false).
    type: bool
  reason:
    description:
      - Why, in one line. It is shown in lists, and to users whose sessions wait or end because of it.
      - By default the variable C(agent_cordon_reason) of each agent. Not with O(state=resumed).
    type: str
  deadline:
    description:
      - After how many seconds the sessions end, V(0) for at once. Only with O(state=drained).
      - The end that an earlier drain has set is only brought forward. To postpone it, take the agent back into service
        first.
      - By default the variable C(agent_drain_deadline) of each agent, or else V(0).
    type: int
seealso:
  - module: backendai.cluster.agent_info
  - module: backendai.cluster.queue
"""

EXAMPLES = r"""
- name: Work on agents without anybody's session on them
  hosts: localhost
  gather_facts: false
  tasks:
    - name: Let their sessions end within an hour
      backendai.cluster.agent_state:
        state: drained
        agents: [agent2, agent5]
        reason: new memory
        deadline: 3600
      register: drained

    - name: Show who is still there
      ansible.builtin.debug:
        msg: "{{ item.name }}: {{ item.sessions | join(', ') }}"
      loop: "{{ drained.agents }}"
      loop_control:
        label: "{{ item.name }}"

- name: Update agents, two at a time
  hosts: agents
  serial: 2
  tasks:
    - name: Take the agent out of service
      backendai.cluster.agent_state:
        state: cordoned
        agents: "{{ inventory_hostname }}"
        reason: update

    - name: Update its packages
      ansible.builtin.apt:
        upgrade: safe

    - name: Take it back into service
      backendai.cluster.agent_state:
        state: resumed
        agents: "{{ inventory_hostname }}"
"""

RETURN = r"""
agents:
  description: The agents that were asked, in the order of O(agents).
  returned: unless an option is not valid
  type: list
  elements: dict
  contains:
    name: {type: str, description: The inventory name of the agent.}
    changed: {type: bool, description: "Whether anything was changed there, or would be in check mode."}
    cordoned_before: {type: bool, description: Whether it was out of service before.}
    description: {type: str, description: "Why it takes no new sessions, in words; empty if it does."}
    sessions: {type: list, elements: str, description: The names of the sessions on it.}
  sample:
    - name: agent2
      changed: true
      cordoned_before: false
      description: cordoned by carol (new memory), its sessions end by 2026-11-24 12:00 UTC
      sessions: [train-llm]
unavailable:
  description: The agents that were not asked, or had no answer, by name, as of M(backendai.cluster.session_info).
  returned: unless an option is not valid
  type: dict
  sample: {agent5: {problem: unreachable, reason: "Failed to connect to the host via ssh: No route to host"}}
"""
