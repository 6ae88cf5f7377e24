#!/usr/bin/python
# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
module: session_agent
short_description: Read an agent
description:
  - "Internal: called by the playbooks of this collection."
  - The connection and the resources of the agent are set by its variables that begin with C(agent_), which the role
    P(backendai.cluster.agent#role) describes.
extends_documentation_fragment:
  - backendai.cluster.attributes
  - backendai.cluster.attributes.program
  - backendai.cluster.attributes.group
options:
  phase:
    description: V(survey) returns the agent's facts, by which sessions are planned.
    choices: [survey]
    required: true
  images:
    description: The images that sessions may need.
    type: list
    elements: str
  paths:
    description: The folders of the agent that sessions may need.
    type: list
    elements: str
  keys_of:
    description: The ids of the sessions whose public keys are returned.
    type: list
    elements: str
  others:
    description: Whether to warn of what runs on the agent beside sessions.
    type: bool
"""

EXAMPLES = r"""
- name: Read an agent
  backendai.cluster.session_agent:
    phase: survey
"""

RETURN = r"""
agent: {type: dict, returned: always, description: The facts of the agent; V(null) if RV(error) is set.}
error: {type: str, returned: always, description: The reason why there is no result; V(null) if there is one.}
"""
