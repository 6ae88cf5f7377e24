#!/usr/bin/python
# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""List the sessions of all agents, and those that wait."""

from __future__ import annotations

DOCUMENTATION = r"""
module: session_list
short_description: Show the sessions that the agents hold and those that wait
version_added: 0.1.0
description:
  - Prints a table for people and writes a list of records for programs, from what M(backendai.cluster.agent_info) said
    and from the queue.
author:
  - backendai.cluster contributors (!UNKNOWN)
extends_documentation_fragment:
  - backendai.cluster.attributes.control
  - backendai.cluster.manager
  - backendai.cluster.manager.queue
attributes:
  check_mode:
    support: full
  diff_mode:
    support: none
    details: The list is a report.
options:
  history:
    description: Whether to show sessions that have ended, too.
    type: bool
    default: false
  path:
    description: The file to write; empty for none.
    type: path
    default: ""
"""

EXAMPLES = r"""
- name: List the sessions
  backendai.cluster.session_list:
    agents: "{{ groups['agents'] }}"
"""

RETURN = r"""
sessions:
  description: The records of all sessions.
  returned: success
  type: list
  elements: dict
"""

# The work is done by the action plugin of the same name, on the control node.
