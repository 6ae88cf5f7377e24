#!/usr/bin/python
# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
module: queue
short_description: Make a pass over the queue of sessions
version_added: 0.2.0
description:
  - Removes sessions that have ended, acts upon failed and expired ones, starts those that wait as far as there is room,
    and sends gateways the routes of all sessions. The playbook C(schedule_sessions) does so from time to time.
  - Runs once, on the control node, and speaks to all agents and gateways itself, as M(backendai.cluster.session)
    does, with the same rules for variables, connections and progress.
  - Fails if a session could not be started; the others are started.
extends_documentation_fragment:
  - backendai.cluster.attributes.agents
  - backendai.cluster.options.pass
attributes:
  check_mode:
    details: Agents say what they would do. No file is written, and the queue stays as it is.
  diff_mode:
    support: full
    details: Returns what each host would change, or has changed.
"""

EXAMPLES = r"""
- name: Start what waits, now that there is another agent
  hosts: localhost
  gather_facts: false
  tasks:
    - name: Make a pass over the queue
      backendai.cluster.queue:
      register: passed

    - name: Show what has started
      ansible.builtin.debug:
        msg: "{{ passed.sessions | selectattr('status', 'eq', 'RUNNING') | map(attribute='name') | join(', ') }}"
"""

RETURN = r"""
sessions:
  description: The records of the sessions that this pass has tried to start, as of
    M(backendai.cluster.session_info).
  returned: unless the request was refused at once
  type: list
  elements: dict
unavailable:
  description: The agents that could not be asked, by name, as of M(backendai.cluster.session_info).
  returned: unless the request was refused at once
  type: dict
refused:
  description: Whether an option is not valid, so that nothing was changed.
  returned: if it is so
  type: bool
"""
