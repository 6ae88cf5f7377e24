#!/usr/bin/python
# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
module: session_result
short_description: Write and report the results of session starts
description:
  - "Internal: called by the playbooks of this collection."
  - With O(state=settled), determines from the results of the agents whether the sessions are RUNNING, PENDING or in
    ERROR, updates the queue and writes the record. It does not fail if a session has failed.
  - With O(state=reported), shows the status of the session of this run, and how to access it. It fails if the session
    has failed, or a command that was waited for.
extends_documentation_fragment:
  - backendai.cluster.attributes.control
  - backendai.cluster.options.queue
options:
  state:
    description: Whether to write the results of starts, or to report the result of the run.
    choices: [settled, reported]
    required: true
  starts:
    description:
      - The sessions that this run has started, as M(backendai.cluster.session_plan) returned them.
      - With O(state=reported), they provide the host key of main1, for SSH through a gateway.
    type: list
    elements: dict
  retry:
    description: Whether a refused session is planned again; no result is written then.
    type: bool
  pending:
    description: The record of a session that remains PENDING.
    type: dict
  capacity_released:
    description: Whether capacity may have been released since the survey of the agents.
    type: bool
  show:
    description: Whether to print the results.
    type: bool
    default: true
  wait:
    description: Whether to wait for the end of the session.
    type: bool
  started_at:
    description: The time when the run began, in seconds since the epoch.
    type: float
  previous:
    description: The variables of the control node with earlier results of this run that gateways were updated with.
    type: list
    elements: str
  result:
    description: The result with O(state=settled).
    type: dict
  later:
    description: The C(sessions) that this run has started since.
    type: list
    elements: dict
  gateways:
    description: The inventory names of gateways. Their results of M(backendai.cluster.gateway_routes) are read from the
      variables C(__session_gateway), C(__session_pending_gateway) and C(__session_slow_gateway) of each.
    type: list
    elements: str
  access_path:
    description: The file for C(access), as JSON; empty for none.
    type: path
  path:
    description: The file for the record, as JSON; empty for none.
    type: path
"""

EXAMPLES = r"""
- name: Write and report the results of session starts
  backendai.cluster.session_result:
"""

RETURN = r"""
sessions: {type: list, elements: dict, returned: with O(state=settled),
  description: The C(record) and the C(error) of each session.}
retry: {type: bool, returned: with O(state=settled), description: Whether the session has to be planned again.}
wait: {type: bool, returned: with O(state=settled), description: Whether to wait for the end of the session.}
waiting: {type: bool, returned: with O(state=settled), description: Whether pending sessions may find capacity now.}
routes: {type: dict, returned: with O(state=settled), description: The update for gateways.}
starting: {type: list, elements: dict, returned: with O(state=settled),
  description: "Those of O(starts) whose containers take long to start; they are not in C(sessions) and C(routes)."}
record: {type: dict, returned: with O(state=reported), description: The record of the session.}
access: {type: list, elements: dict, returned: with O(state=reported),
  description: "The links to the session, one for each gateway."}
"""
