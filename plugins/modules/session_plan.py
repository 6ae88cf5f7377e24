#!/usr/bin/python
# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Plan a session."""

from __future__ import annotations

DOCUMENTATION = r"""
module: session_plan
short_description: Plan a session from the facts of all agents
version_added: 0.1.0
description:
  - Decides everything about a session - agents, names, addresses, network - from the request and from what
    M(backendai.cluster.agent_info) said of the agents. Changes nothing.
  - No room is no failure. RV(plan) is V(null) then and RV(pending) says what is missing.
author:
  - backendai.cluster contributors (!UNKNOWN)
extends_documentation_fragment:
  - backendai.cluster.attributes.control
attributes:
  check_mode:
    support: full
  diff_mode:
    support: full
    details: In check mode, the diff is the plan of a new session.
options:
  spec:
    description: The request, as M(backendai.cluster.session_spec) returned it.
    type: dict
    required: true
  pools:
    description: Where the networks of sessions come from, as M(backendai.cluster.session_spec) returned it.
    type: dict
    required: true
  agents:
    description: The inventory names of all agents; their facts are read from the variable C(__session_agent) of each.
    type: list
    elements: str
    required: true
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
plan:
  description: The plan; V(null) when there is no room.
  returned: success
  type: dict
id:
  description: The id of the session.
  returned: success
  type: str
request:
  description: The request in the form in which it is stored and compared.
  returned: when there is a plan
  type: dict
agents:
  description: The agents that take part, in rank order.
  returned: success
  type: list
  elements: str
pull_on:
  description: Those of them that do not have the image.
  returned: success
  type: list
  elements: str
public_keys:
  description:
    - The public keys of all containers by hostname, of a session that has proven itself before; empty for others.
    - A session that has them needs no claim.
  returned: when there is a plan
  type: dict
nonce:
  description: What tells this run from others.
  returned: success
  type: str
pending:
  description: Why there is no room, and what the containers without a place ask of each scarce slot.
  returned: success
  type: dict
  sample: {reason: no room for 4 of 8 containers on 3 agents, shortfall: {cpu: 4}}
"""

# The work is done by the action plugin of the same name, on the control node.
