#!/usr/bin/python
# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
module: session_plan
short_description: Plan sessions from the facts of all agents
description:
  - "Internal: called by the playbooks of this collection."
  - Decides the agents, names, addresses and network of a session from the request and from the facts that
    M(backendai.cluster.agent_info) returned. Changes only the queue, where the session becomes CREATING or PENDING.
  - The module does not fail if there is no capacity. C(plan) is V(null) then, and C(pending) contains the reason.
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
      - Whether to plan the pending sessions instead of a new one. They are tried in the order of the queue, each with
        the capacity that remains. The queue records which of them this run starts, and why the others remain PENDING.
        A session that others have skipped O(max_skips) times goes first, and no other session of its resource group and
        priority starts before it.
    type: bool
  held:
    description: The ids of pending sessions that do not start now, and that no other waits for.
    type: list
    elements: str
  limits:
    description:
      - What each user may have, C(max_sessions), C(max_waiting) and C(max_containers), and how many sessions may wait
        in all, C(max_waiting_in_all). Without one of these, or with 0, there is no such limit.
      - A new request beyond them is refused. With O(queue=true), no session starts whose user has C(max_sessions).
    type: dict
  groups:
    description:
      - Which groups of their users sessions get, as they are at this time on the control node. C(allowed) are names, or
        V(own) for all from C(GID_MIN) on; those of C(closed), and of the account that runs this, are never given.
      - Without it, new sessions get none, and others keep theirs.
    type: dict
  spec:
    description: The request, as M(backendai.cluster.session_request) returned it; not for O(queue=true).
    type: dict
  repair:
    description: The id of the session that must exist, and is repaired; empty for any of that name, or a new one.
    type: str
  pools:
    description: The network pools, as M(backendai.cluster.session_request) returned them.
    type: dict
    required: true
  policy:
    description: Which of the sessions of one priority starts first.
    choices: [fifo, lifo, drf]
    default: fifo
  max_skips:
    description: How many later sessions may start before a pending one.
    type: int
    default: 16
  user:
    description: The user that the session belongs to; empty for the user that runs Ansible.
  user_uid:
    description:
      - The uid of that user on the control node. If it is -1, that of the user that runs Ansible, or none with O(user).
      - With it, a name that the session of another owner has is refused.
    type: int
    default: -1
  attempt:
    description: The number of this attempt. Other runs may claim the resources between the plan and the claim.
    type: int
    default: 1
  attempts:
    description: The number of attempts until the session becomes PENDING.
    type: int
    default: 5
  refused:
    description: The reasons why agents refused their parts of the last plan.
    type: list
    elements: str
  record_path:
    description: The file for the session's record if planning fails.
    type: path
"""

EXAMPLES = r"""
- name: Plan sessions from the facts of all agents
  backendai.cluster.session_plan:
"""

RETURN = r"""
starts: {type: list, elements: dict, returned: always,
  description: "The sessions that this run starts, each with its plan."}
agents: {type: list, elements: str, returned: always, description: The agents of these sessions.}
id: {type: str, returned: without O(queue=true), description: The id of the session.}
record: {type: dict, returned: without O(queue=true),
  description: "The record of a session that remains PENDING, else V(null)."}
pending: {type: dict, returned: without O(queue=true),
  description: "The reason and the shortfall of a session that remains PENDING, else V(null)."}
capacity_released: {type: bool, returned: if the session remains PENDING,
  description: Whether capacity was released since the survey.}
"""
