#!/usr/bin/python
# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Say that a session has ended."""

from __future__ import annotations

DOCUMENTATION = r"""
module: session_ended
short_description: Say that a session has ended
version_added: 0.1.0
description:
  - Writes the last record as JSON for programs, prints it for people, and moves the session to the history of the
    queue.
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
    details: The record is a report.
options:
  record:
    description: The last record of the session, as M(backendai.cluster.session_find) returned it.
    type: dict
    required: true
  away:
    description: The agents that could not be cleared; the queue remembers them.
    type: list
    elements: str
    default: []
  removed:
    description:
      - What came of M(backendai.cluster.session_agent) on the agents that could be asked, by their names. Those that
        failed, or became unreachable, are remembered like O(away).
    type: dict
    default: {}
  path:
    description: The file to write; empty for none.
    type: path
    default: ""
"""

EXAMPLES = r"""
- name: Write the record of the end
  backendai.cluster.session_ended:
    record: "{{ found.record }}"
    away: "{{ found.away }}"
    removed:
      agent1: "{{ hostvars['agent1']['slice'] | default({'failed': true}) }}"
"""

RETURN = r"""
record:
  description: The record.
  returned: success
  type: dict
waiting:
  description: Whether sessions of the queue wait for room.
  returned: success
  type: bool
"""

# The work is done by the action plugin of the same name, on the control node.
