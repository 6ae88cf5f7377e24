#!/usr/bin/python
# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Say what came of a start."""

from __future__ import annotations

DOCUMENTATION = r"""
module: session_record
short_description: Say what came of a start, in the record and in the queue
version_added: 0.1.0
description:
  - Tells from what the agents said of their parts - the variable C(__session_outcomes) of each - whether the session is
    RUNNING, PENDING or in ERROR. Prints a few lines for people and writes the record as JSON for programs.
  - Brings the queue up to date. Never fails for a session that did; RV(error) says what went wrong.
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
  plan:
    description: The plan of the session, where there is one.
    type: dict
  known:
    description: Whether the session had proven itself before this run.
    type: bool
    default: false
  id:
    description: The id of the session, where there is no plan.
    type: str
  spec:
    description: The request, where there is no plan.
    type: dict
  pending:
    description: Why the session waits, where there is no plan.
    type: dict
  freed:
    description: Whether room may have become free since the agents were read.
    type: bool
    default: false
  say:
    description: Whether to print lines for people.
    type: bool
    default: true
  wait:
    description: Whether the end of the session is to be waited for.
    type: bool
    default: false
  path:
    description: The file to write; empty for none.
    type: path
    default: ""
"""

EXAMPLES = r"""
- name: Write the record
  backendai.cluster.session_record:
    plan: "{{ planned.plan }}"
    path: record.json
"""

RETURN = r"""
record:
  description: The record.
  returned: success
  type: dict
error:
  description: What went wrong, and what is to be done about it; V(null) where nothing did.
  returned: success
  type: str
wait:
  description: Whether there is an end to wait for.
  returned: success
  type: bool
waiting:
  description: Whether the queue has to be looked after - room may have become free that its sessions wait for.
  returned: success
  type: bool
"""

# The work is done by the action plugin of the same name, on the control node.
