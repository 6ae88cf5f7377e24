#!/usr/bin/python
# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
module: session_verify
short_description: Test whether a session is healthy
version_added: 0.2.0
description:
  - Compares each agent's part of a session with its plan, tests names, TCP, full-size frames and SSH between all pairs
    of its containers, and whether all containers see the same data in its mounts. For that, main1 makes a file in each
    mount that it may write; it is removed again, also if the run is interrupted. Changes nothing else.
  - Fails, with all that was found, if the session is not healthy, if one of its agents cannot be asked, and if there is
    no such session.
  - Runs once, on the control node, and asks all agents itself, as many at a time as C(forks) says. Put it into a play
    with C(hosts=localhost), or set C(run_once=true). In a play with several hosts it is refused without that.
  - Each agent is reached as a task on it would be, as with M(backendai.cluster.session_info).
  - Progress is shown on standard error as it happens, a line for each step and agent.
extends_documentation_fragment:
  - backendai.cluster.attributes.agents
  - backendai.cluster.options.look
attributes:
  check_mode:
    details: No file is written, in mounts neither. They are compared by the names in their top folders.
options:
  format:
    description: Shows what was found for people, as a V(table) of all pairs and a line for each finding, instead of
      returning it.
    type: str
    choices: [table]
  path:
    description: A file on the control node for what was found, as JSON. Only its owner can read it. By default the
      variable C(session_report_path), else none is written.
    type: path
"""

EXAMPLES = r"""
- name: Repair a session if it is not healthy
  hosts: localhost
  gather_facts: false
  tasks:
    - name: Test the session
      backendai.cluster.session_verify:
        name: train-llm
      register: tested
      failed_when: tested is failed and tested.healthy is not defined

    - name: Show what differs from its plan
      ansible.builtin.debug:
        msg: "{{ item.agent }}: {{ item.subject }} is {{ item.actual or 'missing' }}"
      loop: "{{ tested.drift }}"

    - name: Repair it
      backendai.cluster.session:
        name: train-llm
        state: repaired
      when: not tested.healthy
"""

RETURN = r"""
healthy:
  description: Whether nothing was found; if it is V(false), RV(ignore:msg) says how much was.
  returned: without O(format)
  type: bool
session:
  description: The session; its status is V(null) if there is none.
  returned: without O(format)
  type: dict
  sample: {id: 5f0c6a52-3c0e-4f5e-9d0a-0f3c1d2e4b6a, name: train-llm, status: RUNNING}
drift:
  description: The differences that a repair would change. V(null) stands for a missing object.
  returned: without O(format)
  type: list
  elements: dict
  sample: [{agent: agent1, subject: link vx5f0c6a52, actual: mtu 1400, expected: mtu 1450}]
pairs:
  description: All pairs of containers, including each with itself. V(null) stands for a check that was not made.
  returned: without O(format)
  type: list
  elements: dict
  contains:
    from: {type: str, description: The hostname of the container that was tested from.}
    to: {type: str, description: The hostname of the other one.}
    name: {type: bool, description: Whether its name leads to its address.}
    tcp: {type: bool, description: Whether a TCP connection succeeds.}
    frame: {type: bool, description: Whether frames of the full size arrive.}
    ssh: {type: bool, description: Whether a login succeeds.}
    ssh_error: {type: str, description: Why it does not.}
mounts:
  description: Whether all containers see the same data in each mount, and how that was compared.
  returned: without O(format)
  type: list
  elements: dict
  contains:
    source: {type: str, description: The folder on agents.}
    target: {type: str, description: The folder in containers.}
    read_only: {type: bool, description: Whether containers may only read it.}
    compared:
      description: C(marker) for a file that main1 has made, C(names) for the names in the top folder, which is weaker;
        V(null) if it could not be read.
      type: str
    same: {type: bool, description: "Whether all containers see the same; V(null) if that is not known of all."}
    differing: {type: list, elements: str, description: The hostnames of containers that see other data than main1.}
    unknown: {type: list, elements: str, description: The hostnames of those without a result.}
    marker_left: {type: bool, description: Whether the file could not be removed.}
unavailable:
  description: The agents of the session that could not be asked, by name, as of M(backendai.cluster.session_info).
  returned: unless the request was refused
  type: dict
refused:
  description: Whether an option is not valid, so that no agent was asked.
  returned: if it is so
  type: bool
"""
