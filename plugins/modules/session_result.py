#!/usr/bin/python
# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
module: session_result
short_description: Say what came of starts, in records, in the queue and to people
description:
  - "Internal: called by the playbooks of this collection."
  - With O(state=settled), tells from what agents replied whether the sessions are RUNNING, PENDING or in ERROR, brings
    the queue up to date and writes the record. It never fails for a session that did.
  - With O(state=reported), says in the end how the session of this run is doing, and how to reach it. It fails where
    the session did, and where a command that was waited for did.
extends_documentation_fragment:
  - backendai.cluster.attributes.control
  - backendai.cluster.options.queue
options:
  state:
    description: Whether to settle what came of starts, or to report in the end.
    choices: [settled, reported]
    required: true
  starts:
    description:
      - The sessions that this run has started, as M(backendai.cluster.session_plan) returned them.
      - With O(state=reported), the host key of main1, for people who come in by a gateway, is taken from them.
    type: list
    elements: dict
  retry:
    description: Whether a session that was refused is to be planned anew; nothing is settled then.
    type: bool
  pending:
    description: The record of a session for which there is no room.
    type: dict
  capacity_released:
    description: Whether room may have become free since the agents were surveyed.
    type: bool
  say:
    description: Whether to print lines for people.
    type: bool
    default: true
  wait:
    description: Whether the end of the session is to be waited for.
    type: bool
  started_at:
    description: When the run began, in seconds since the epoch.
    type: float
  previous:
    description: The variables of the control node with results of this run that have told gateways something.
    type: list
    elements: str
  result:
    description: What O(state=settled) returned.
    type: dict
  later:
    description: The C(sessions) that this run has started after that.
    type: list
    elements: dict
  gateways:
    description: The inventory names of gateways. What they replied about routes is read from the variable
      C(__session_gateway) of each.
    type: list
    elements: str
  access_path:
    description: The file to write C(access) to, as JSON; empty for none.
    type: path
  path:
    description: The file to write the record to, as JSON; empty for none.
    type: path
"""

EXAMPLES = r"""
- name: Say what came of starts, in records, in the queue and to people
  backendai.cluster.session_result:
"""

RETURN = "# Internal."
