#!/usr/bin/python
# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Show what the containers of a session printed."""

from __future__ import annotations

DOCUMENTATION = r"""
module: session_logs_report
short_description: Show what the containers of a session printed
version_added: 0.1.0
description:
  - Shows what M(backendai.cluster.session_logs) said of the agents, container by container in rank order, and writes it
    for programs.
  - For people, control characters are shown as C(\x1b) and the like. The file and the result have lines as they were
    printed; what is not UTF-8 is replaced.
  - Fails when there is no such session or container, and when an agent whose containers are asked for cannot be asked -
    then after all that is known was shown.
author:
  - backendai.cluster contributors (!UNKNOWN)
extends_documentation_fragment:
  - backendai.cluster.attributes.control
  - backendai.cluster.manager.queue
attributes:
  check_mode:
    support: full
  diff_mode:
    support: none
    details: The report is all that it makes.
options:
  agents:
    description: The inventory names of all agents. What they said is read from the variable C(__session_logs) of each.
    type: list
    elements: str
    required: true
  name:
    description: The name of the session.
    type: str
    default: ""
  id:
    description: The id of the session.
    type: str
    default: ""
  kernel:
    description: The hostname of one container of the session, such as V(sub1); empty for all.
    type: str
    default: ""
  path:
    description: The file to write; empty for none.
    type: path
    default: ""
"""

EXAMPLES = r"""
- name: Show what main1 printed
  backendai.cluster.session_logs_report:
    name: train-llm
    kernel: main1
    agents: "{{ groups['agents'] }}"
    path: logs.json
"""

RETURN = r"""
logs:
  description:
    - The logs, as they are written to O(path).
    - RV(ignore:kernels) has the containers in rank order. RV(ignore:status) is what the engine says, C(missing) where
      the agent has no such container, and C(unknown) where it cannot be asked. RV(ignore:error) says which logs could
      not be read, and why.
    - RV(ignore:agents) says why agents of these containers could not be asked, by their names.
  returned: success
  type: dict
  sample:
    session: {id: 5f0c6a52-3c0e-4f5e-9d0a-0f3c1d2e4b6a, name: train-llm}
    kernels:
      - hostname: main1
        agent: agent2
        status: exited
        exit_code: 1
        log: ["2026-03-01T02:59:57.120395714Z CUDA out of memory"]
        apps: {jupyter: ["[I] Serving notebooks from local directory: /home/work"]}
        error: null
    agents: {}
    error: null
"""

# The work is done by the action plugin of the same name, on the control node.
