#!/usr/bin/python
# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
module: session_report
short_description: Report on the agents from their results and the queue
version_added: 0.1.0
description:
  - "Internal: called by the playbooks of this collection."
  - Shows the agents and writes them as JSON - which take new sessions, what is free on them, and the largest sessions
    that would start now. The results of M(backendai.cluster.session_agent) are read from the variable
    C(__session_agent) of each agent.
  - Changes nothing.
extends_documentation_fragment:
  - backendai.cluster.attributes.control
  - backendai.cluster.options.agents
  - backendai.cluster.options.queue
options:
  kind:
    description: What to report on.
    type: str
    choices: [agents]
    required: true
  path:
    description: The file to write; empty for none.
    type: path
    default: ""
"""

EXAMPLES = r"""
- name: List the agents
  backendai.cluster.session_report:
    kind: agents
    agents: "{{ groups['agents'] }}"
    path: agents.json
"""

RETURN = r"""
report:
  description:
    - RV(ignore:agents) has a row for each agent, RV(ignore:groups) one for each resource group, with the largest
      sessions that would start now.
  returned: success
  type: dict
"""
