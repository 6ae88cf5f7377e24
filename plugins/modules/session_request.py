#!/usr/bin/python
# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Check what is asked of a session."""

from __future__ import annotations

DOCUMENTATION = r"""
module: session_request
short_description: Check what is asked of a session before any host is touched
version_added: 0.1.0
description:
  - "Internal: called by the playbooks of this collection."
  - Reads all variables that begin with C(session_) and checks names, types and limits, nested keys included.
  - Fails with one sentence for each problem. The role P(backendai.cluster.session#role) describes the variables, and
    has the defaults of those that are not given.
author:
  - backendai.cluster contributors (!UNKNOWN)
extends_documentation_fragment:
  - backendai.cluster.attributes.control
attributes:
  check_mode:
    support: full
  diff_mode:
    support: none
    details: It never changes anything.
options:
  agents:
    description: The inventory names of all agents.
    type: list
    elements: str
    default: []
  gateways:
    description:
      - The gateways of the inventory. What agents publish of a session's main1 is for their addresses alone.
      - A gateway's address is its variable C(gateway_underlay_address), else C(ansible_host) or its name; names are
        looked up.
    type: list
    elements: str
    default: []
  purpose:
    description: The playbook that asks; all but V(create) need less.
    type: str
    choices: [create, terminate, list, schedule, verify, logs]
    default: create
"""

EXAMPLES = r"""
- name: Check what is asked
  backendai.cluster.session_request:
  register: checked
"""

RETURN = r"""
spec:
  description: The request, with its values coerced to their types.
  returned: when O(purpose=create)
  type: dict
images:
  description: The images that this request and those that wait need.
  returned: success
  type: list
  elements: str
paths:
  description: The folders of agents that this request and those that wait need.
  returned: success
  type: list
  elements: str
specs:
  description: This request and those that wait, by the names of their sessions.
  returned: success
  type: dict
agents:
  description: The inventory names of all agents.
  returned: success
  type: list
  elements: str
run:
  description: The options of the run, with their values coerced to their types, or their defaults; no secrets.
  returned: success
  type: dict
pools:
  description: Where the networks of sessions come from.
  returned: success
  type: dict
ask:
  description: Those of O(agents) whose facts are not known, or too old.
  returned: success
  type: list
  elements: str
began:
  description: When it was asked, in seconds since the epoch.
  returned: success
  type: float
"""

# The work is done by the action plugin of the same name, on the control node.
