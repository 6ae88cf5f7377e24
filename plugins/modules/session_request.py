#!/usr/bin/python
# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
module: session_request
short_description: Validate the options of a session before any host is contacted
description:
  - "Internal: called by the playbooks of this collection."
  - Validates all variables that begin with C(session_) - names, types and limits, including nested keys.
  - Fails with one message for each problem. The role P(backendai.cluster.session#role) describes the variables and
    their defaults.
extends_documentation_fragment:
  - backendai.cluster.attributes.control
options:
  agents:
    description: The inventory names of all agents.
    type: list
    elements: str
  gateways:
    description:
      - The gateways of the inventory. Only their addresses can reach the published ports of main1.
      - The address of a gateway is its variable C(gateway_source_address), else C(ansible_host) or its name; names are
        resolved.
    type: list
    elements: str
  purpose:
    description:
      - The calling playbook; only V(create) requires the options of a new session. V(prune) returns the images of all
        sessions in the queue.
    choices: [create, prune]
    default: create
"""

EXAMPLES = r"""
- name: Validate the options of a session before any host is contacted
  backendai.cluster.session_request:
"""

RETURN = r"""
run: {type: dict, returned: always, description: The options of the run.}
pools: {type: dict, returned: always, description: The network pools.}
spec: {type: dict, returned: with O(purpose=create), description: The request for a session.}
agents: {type: list, elements: str, returned: always, description: The inventory names of all agents.}
keys_of: {type: list, elements: str, returned: always,
  description: "The ids of sessions that this run may go on with, for which it needs the public keys of containers."}
images: {type: list, elements: str, returned: always, description: The images that sessions may need.}
paths: {type: list, elements: str, returned: always, description: The folders of agents that sessions may need.}
started_at: {type: float, returned: always, description: "The time when the run began, in seconds since the epoch."}
"""
