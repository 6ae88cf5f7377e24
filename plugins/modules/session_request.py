#!/usr/bin/python
# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
module: session_request
short_description: Check what is asked of a session before any host is touched
description:
  - "Internal: called by the playbooks of this collection."
  - Reads all variables that begin with C(session_) and checks names, types and limits, nested keys included.
  - Fails with one sentence for each problem. The role P(backendai.cluster.session#role) describes the variables, and
    has the defaults of those that are not given.
extends_documentation_fragment:
  - backendai.cluster.attributes.control
options:
  agents:
    description: The inventory names of all agents.
    type: list
    elements: str
  gateways:
    description:
      - The gateways of the inventory. What agents publish of a session's main1 is for their addresses alone.
      - A gateway's address is its variable C(gateway_source_address), else C(ansible_host) or its name; names are
        looked up.
    type: list
    elements: str
  purpose:
    description: The playbook that asks; all but V(create) need less.
    choices: [create, terminate, list, schedule, verify, logs]
    default: create
"""

EXAMPLES = r"""
- name: Check what is asked of a session before any host is touched
  backendai.cluster.session_request:
"""

RETURN = "# Internal."
