#!/usr/bin/python
# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Plan a session from the facts of all agents."""

from __future__ import annotations

DOCUMENTATION = r"""
module: session_plan
short_description: Plan sessions from the facts of all agents
version_added: 0.1.0
description:
  - "Internal: called by the playbooks of this collection."
  - Decides everything about a session - agents, names, addresses, network - from the request and from what
    M(backendai.cluster.agent_info) said of the agents. Changes nothing but the queue, which gets a note that the
    session starts, or waits.
  - No room is no failure. RV(plan) is V(null) then and RV(pending) says what is missing.
author:
  - backendai.cluster contributors (!UNKNOWN)
extends_documentation_fragment:
  - backendai.cluster.attributes.control
  - backendai.cluster.manager
  - backendai.cluster.manager.queue
  - backendai.cluster.manager.rules
attributes:
  check_mode:
    support: full
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
    default: false
  spec:
    description: The request, as M(backendai.cluster.session_request) returned it; not for O(queue=true).
    type: dict
  pools:
    description: Where the networks of sessions come from, as M(backendai.cluster.session_request) returned it.
    type: dict
    required: true
  facts_max_age:
    description: For how many seconds what an agent said is used again, instead of asking it.
    type: int
    default: 0
  user:
    description: Whose share the session counts to; empty for the user who runs Ansible.
    type: str
    default: ""
  began:
    description: When the agents were about to be read, in seconds since the epoch.
    type: float
    default: 0.0
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
    default: []
  record_path:
    description: The file that gets the session's record when no plan can be made.
    type: path
    default: ""
"""

EXAMPLES = r"""
- name: Plan
  backendai.cluster.session_plan:
    spec: "{{ checked.spec }}"
    pools: "{{ checked.pools }}"
    agents: "{{ groups['agents'] }}"
  register: planned
"""

RETURN = r"""
starts:
  description:
    - What agents have to know of each session that this run starts, for M(backendai.cluster.session_step). It holds no
      secret.
  returned: success
  type: list
  elements: dict
specs:
  description: The requests of the sessions that this run starts, by their names; they are kept out of logs.
  returned: with O(queue=true)
  type: dict
plan:
  description: The plan; V(null) when there is no room.
  returned: for a session that was asked for
  type: dict
id:
  description: The id of the session.
  returned: success
  type: str
known:
  description: Whether the agents hold the session already.
  returned: when there is a plan
  type: bool
request:
  description: The request in the form in which it is stored and compared.
  returned: when there is a plan
  type: dict
agents:
  description: The agents that take part, in rank order.
  returned: success
  type: list
  elements: str
at_least:
  description:
    - A proven lower bound on the number of agents. The plan uses more only where the exact search would take too long.
    - V(null) for a session that the agents hold already.
  returned: when there is a plan
  type: int
pulls:
  description: The images that agents need and lack, by agent.
  returned: when there is a plan
  type: dict
  sample: {agent2: [registry.example.com/pytorch:2.3]}
images:
  description: The images that agents need and have, by agent and name, as M(backendai.cluster.session_image) has them.
  returned: when there is a plan
  type: dict
gone:
  description: The ids of sessions that ended while an agent was away.
  returned: when there is a plan
  type: list
  elements: str
public_keys:
  description:
    - The public keys of all containers by hostname, of a session that has proven itself before; empty for others.
    - A session that has them needs no claim.
  returned: success
  type: dict
nonce:
  description: What tells this run from others.
  returned: when there is a plan
  type: str
pending:
  description: Why there is no room, and what the containers without a place ask of each scarce slot.
  returned: success
  type: dict
  sample: {reason: no room for 4 of 8 containers on 3 agents, shortfall: {cpu: 4}}
no_room:
  description:
    - How many containers of each role are C(unplaced), what the best candidate lacks for one more of them (C(missing)),
      and which sessions' end C(makes_room).
  returned: when there is no room
  type: dict
freed:
  description: Whether other runs are at work, so that room may become free, or has since O(began).
  returned: when there is no room
  type: bool
"""

# The work is done by the action plugin of the same name, on the control node.
