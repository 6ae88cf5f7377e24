#!/usr/bin/python
# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Write a session's record."""

from __future__ import annotations

DOCUMENTATION = r"""
module: session_record
short_description: Write a session's record on the control node and say how it ended
version_added: 0.1.0
description:
  - Prints a few lines for people and writes the record as JSON for programs.
  - With O(status=ERROR) it fails, with what the agents said.
author:
  - backendai.cluster contributors (!UNKNOWN)
extends_documentation_fragment:
  - backendai.cluster.attributes.control
attributes:
  check_mode:
    support: full
  diff_mode:
    support: none
    details: The record is a report.
options:
  status:
    description: The status of the session.
    type: str
    required: true
    choices: [PENDING, RUNNING, TERMINATED, ERROR]
  name:
    description: The name of the session; needed where there is no plan.
    type: str
  id:
    description: The id of the session, where there is no plan.
    type: str
  plan:
    description: The plan of the session, where there is one.
    type: dict
  known:
    description: Whether the session had proven itself before this run.
    type: bool
    default: false
  spec:
    description: The request, where there is no plan.
    type: dict
  pending:
    description: Why there is no room.
    type: dict
  path:
    description: The file to write; empty for none.
    type: path
    default: ""
"""

EXAMPLES = r"""
- name: Write the record
  backendai.cluster.session_record:
    plan: "{{ planned.plan }}"
    status: RUNNING
    path: record.json
"""

RETURN = r"""
record:
  description: The record.
  returned: success
  type: dict
"""

# The work is done by the action plugin of the same name, on the control node.
