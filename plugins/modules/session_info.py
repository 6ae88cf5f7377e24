#!/usr/bin/python
# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
module: session_info
short_description: List sessions
version_added: 0.2.0
description:
  - Returns the sessions that run, start or wait, as the queue on the control node and the agents know them. Changes
    nothing.
  - Runs once, on the control node, and asks all agents itself, as many at a time as C(forks) says. Put it into a play
    with C(hosts=localhost). In a play with several hosts it is refused without C(run_once=true), and with
    C(strategy=free), where that has no effect.
  - Each agent is reached as a task on it would be - with its own connection variables, C(become), C(--user),
    C(--become), C(--ask-pass), C(--ask-become-pass) and C(ansible.cfg). C(connection), C(become), C(environment) and
    C(vars) of the task or play do not count, because those are the control node's. So options C(agent_*) and
    C(gateway_*) have no effect there, except C(agent_group) and C(gateway_group).
  - The variables that begin with C(session_) are checked, so do not register results as such.
  - An agent that cannot be asked does not make the task fail. RV(unavailable) has the reason, and sessions that run
    there are returned as V(DEGRADED) with it.
  - An agent that C(--limit) hides is not asked. Sessions that run only there are not returned.
extends_documentation_fragment:
  - backendai.cluster.attributes.agents
options:
  name:
    description: Only sessions of this name.
    type: str
  id:
    description: Only the session with this id.
    type: str
  user:
    description: Only sessions of this user.
    type: str
  status:
    description: Only sessions with one of these statuses.
    type: list
    elements: str
    choices: [PENDING, CREATING, RUNNING, DEGRADED, ERROR, TERMINATED, CANCELLED]
  history:
    description: Whether to return sessions that have ended, too. By default the variable C(session_history), or else
      V(false).
    type: bool
  use:
    description: Whether to measure for a second what the sessions use, for RV(sessions[].use). By default the variable
      C(session_list_use), or else V(false).
    type: bool
  agents:
    description: The inventory names of the agents. By default those that the pattern in the variable C(agent_group)
      matches, or else those of the group C(agents).
    type: list
    elements: str
  queue_path:
    description:
      - The folder on the control node with the queue of sessions. All playbooks and tasks of a cluster need the same.
      - By default the variable C(session_queue_path), or else the folder C(.queue) beside the inventory.
    type: path
  queue_policy:
    description: The order of the queue, for RV(sessions[].queue_position). By default the variable
      C(session_queue_policy), or else V(fifo).
    type: str
    choices: [fifo, lifo, drf]
  queue_patience:
    description: How many others may start before a session that waits. By default the variable
      C(session_queue_patience), or else 16.
    type: int
  format:
    description:
      - Prints the sessions for people instead of returning them, as a V(table), as a V(wide) one with more columns, or
        as V(json). With V(none) they are only written to files, and there are no warnings.
    type: str
    choices: [table, wide, json, none]
  path:
    description: A file on the control node for the sessions as JSON. Only its owner can read it.
    type: path
  page_path:
    description: A file on the control node for a page of the sessions and agents as HTML, for everybody. Sessions
      without a record on the control node are left out.
    type: path
"""

EXAMPLES = r"""
- name: List the sessions, and use what is returned
  hosts: localhost
  gather_facts: false
  tasks:
    - name: Read the sessions that run
      backendai.cluster.session_info:
        status: [RUNNING, DEGRADED]
      register: running

    - name: Show where they run
      ansible.builtin.debug:
        msg: "{{ item.name }} of {{ item.user }}: {{ item.kernels | map(attribute='agent') | unique | join(', ') }}"
      loop: "{{ running.sessions }}"
      loop_control:
        label: "{{ item.name }}"

    - name: Wait until a session has all of its containers
      backendai.cluster.session_info:
        name: train-llm
      register: training
      until: training.sessions | map(attribute='status') | list == ['RUNNING']
      retries: 30
      delay: 10

- name: Keep a page of the sessions for a web server
  hosts: localhost
  gather_facts: false
  tasks:
    - name: Write the page
      backendai.cluster.session_info:
        page_path: /srv/www/sessions.html
"""

RETURN = r"""
sessions:
  description:
    - The sessions - first those that agents run, then those that start, wait or have ended, and last those that agents
      hold without a record on this control node. O(name), O(id), O(user) and O(status) select among them.
    - Times are in seconds since the epoch, sizes in bytes.
  returned: without O(format)
  type: list
  elements: dict
  contains:
    id: {type: str, description: The id of the session.}
    name: {type: str, description: Its name.}
    status:
      description: V(PENDING), V(CREATING), V(RUNNING), V(DEGRADED), V(ERROR), V(TERMINATED) or V(CANCELLED).
      type: str
    error: {type: str, description: What is wrong with it; V(null) if nothing is.}
    user: {type: str, description: Whose it is; V(null) if it is nobody's.}
    uid: {type: int, description: The number of that user.}
    image: {type: str, description: The image of main1.}
    cluster_mode: {type: str, description: C(single-node) or C(multi-node).}
    requested_cluster_mode: {type: str, description: The mode that was asked for.}
    cluster_size: {type: int, description: The number of its containers.}
    resource_group: {type: str, description: The resource group of its agents.}
    resources:
      description: The resources of main1, and of all containers.
      type: dict
      sample: {container: {cpu: 4, mem: 8589934592}, total: {cpu: 16, mem: 34359738368}}
    network:
      description: The network between its containers; V(null) before it has one.
      type: dict
      sample: {driver: overlay, name: bai-5f0c6a523c0e, subnet: 10.128.3.0/24, mtu: 1450, vni: 4097}
    kernels:
      description: Its containers, in rank order; none before it is placed.
      type: list
      elements: dict
      contains:
        id: {type: str, description: The id of the container in the session.}
        role: {type: str, description: Its role.}
        index: {type: int, description: Its number within the role.}
        rank: {type: int, description: Its number within the session.}
        hostname: {type: str, description: Its host name.}
        agent: {type: str, description: The inventory name of the agent that it is on.}
        address: {type: str, description: Its address in the network of the session.}
        container: {type: str, description: Its name in the engine.}
        status: {type: str, description: Its status in the engine; C(unknown) if the agent does not show it.}
        image_digest: {type: str, description: The digest of its image.}
    apps:
      description: Its apps.
      type: list
      elements: dict
      sample: [{name: jupyter, port: 8888, protocol: http}]
    mounts:
      description: Where its containers see folders of their agents.
      type: list
      elements: dict
      sample: [{target: /data, read_only: true}]
    pending:
      description: Why it waits; V(null) if it does not.
      type: dict
      sample: {reason: agent1 and agent2 have 2 free cores each, shortfall: {cpu: 2}}
    queue_position: {type: int, description: Its position among those that wait.}
    created_at: {type: float, description: When it was asked for.}
    started_at: {type: float, description: When it was started.}
    ends_at: {type: float, description: When its time is over; V(null) without a limit.}
    ended_at: {type: float, description: When it ended.}
    reason: {type: str, description: Why it ended.}
    exit_code: {type: int, description: The exit code of its command.}
    grace_exceeded: {type: bool, description: Whether a container was killed because it did not end in time.}
    host_keys: {type: dict, description: "The public SSH host keys of its containers, by host name."}
    recorded: {type: bool, description: Whether this control node has a record of it. Without one it is nobody's.}
    closed_storage:
      description: The storage services that its agents have mounted and its containers do not reach, if any.
      type: list
      elements: dict
    gpu_models:
      description: Of which models its GPUs are, if the drivers of its agents name them and none has several for it.
      type: list
      elements: str
    use:
      description: What its containers use now, if O(use=true) and all of its agents have measured it.
      type: dict
      contains:
        cpu: {type: float, description: How many cores were busy over a second., sample: 3.9}
        gpus:
          description: How busy each NVIDIA GPU is, in percent, as its driver says. MIG instances are not told.
          type: list
          elements: int
timer:
  description: The C(host) of the timer, when it C(ran_at) last and is C(late_at), and its C(problem) if it is late.
  returned: success
  type: dict
refused:
  description: Whether an option or a variable is not valid, so that no agent was asked.
  returned: if it is so
  type: bool
unavailable:
  description: The agents whose sessions could not be read, by name.
  returned: success
  type: dict
  contains:
    problem:
      description: V(unreachable) if the agent does not answer, V(unusable) if it answers with an error, V(hidden) if
        C(--limit) excludes it.
      type: str
    reason: {type: str, description: The reason.}
  sample:
    agent3: {problem: unreachable, reason: "Failed to connect to the host via ssh: No route to host"}
    agent4: {problem: hidden, reason: hidden by --limit}
"""
