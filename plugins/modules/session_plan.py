#!/usr/bin/python
# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
module: session_plan
short_description: Plan sessions from the facts of all agents
description:
  - "Internal: called by the playbooks of this collection."
  - Decides everything about a session - agents, names, addresses, network - from the request and from what
    M(backendai.cluster.agent_info) said of the agents. Changes nothing but the queue, which gets a note that the
    session starts, or waits.
  - No room is no failure. C(plan) is V(null) then and C(pending) says what is missing.
extends_documentation_fragment:
  - backendai.cluster.attributes.control
  - backendai.cluster.options.agents
  - backendai.cluster.options.queue
  - backendai.cluster.options.run
attributes:
  diff_mode:
    support: full
    details: In check mode, the diff is the plan of a new session.
options:
  queue:
    description:
      - Whether to plan the sessions that wait instead of one that was asked for. They are tried in the order of the
        queue, each on what the ones before it leave, and the queue is told which of them this run starts and why the
        others wait on. A session that others have passed O(patience) times goes first, and none of its resource group
        and priority starts before it.
    type: bool
  spec:
    description: The request, as M(backendai.cluster.session_request) returned it; not for O(queue=true).
    type: dict
  pools:
    description: Where the networks of sessions come from, as M(backendai.cluster.session_request) returned it.
    type: dict
    required: true
  policy:
    description: Which of the sessions of one priority goes first.
    choices: [fifo, lifo, drf]
    default: fifo
  patience:
    description: How many later sessions may pass one that waits.
    type: int
    default: 16
  user:
    description: Whose share the session counts to; empty for the user who runs Ansible.
  attempt:
    description: Which attempt this is. Other runs may take the room between the plan and the claim.
    type: int
    default: 1
  attempts:
    description: How many attempts there are until the session waits.
    type: int
    default: 5
  refused:
    description: Why agents refused their parts of the last plan.
    type: list
    elements: str
  record_path:
    description: The file that gets the session's record when no plan can be made.
    type: path
"""

EXAMPLES = r"""
- name: Plan sessions from the facts of all agents
  backendai.cluster.session_plan:
"""

RETURN = "# Internal."
