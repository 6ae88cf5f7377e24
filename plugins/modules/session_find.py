#!/usr/bin/python
# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Find a session on the agents."""

from __future__ import annotations

DOCUMENTATION = r"""
module: session_find
short_description: Find a session on the agents by its name or id
version_added: 0.1.0
description:
  - Looks through what M(backendai.cluster.agent_info) said of the agents. Changes nothing.
  - Fails when an agent that holds a part of the session cannot be used.
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
  name:
    description: The name of the session.
    type: str
    default: ""
  id:
    description: The id of the session.
    type: str
    default: ""
  agents:
    description: The inventory names of all agents; their facts are read from the variable C(__session_agent) of each.
    type: list
    elements: str
    required: true
"""

EXAMPLES = r"""
- name: Find the session
  backendai.cluster.session_find:
    name: train-llm
    agents: "{{ groups['agents'] }}"
  register: found
"""

RETURN = r"""
plan:
  description: The plan of the session; V(null) when no agent holds it.
  returned: success
  type: dict
agents:
  description: The agents that hold a part of it.
  returned: success
  type: list
  elements: str
"""

# The work is done by the action plugin of the same name, on the control node.
