#!/usr/bin/python
# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Say what came of starts."""

from __future__ import annotations

DOCUMENTATION = r"""
module: session_result
short_description: Say what came of starts, in records, in the queue and to people
version_added: 0.1.0
description:
  - "Internal: called by the playbooks of this collection."
  - With O(state=settled), tells from what agents replied whether the sessions are RUNNING, PENDING or in ERROR, brings
    the queue up to date and writes the record. It never fails for a session that did.
  - With O(state=reported), says in the end how the session of this run is doing, and how to reach it. It fails where
    the session did, and where a command that was waited for did.
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
  state:
    description: Whether to settle what came of starts, or to report in the end.
    type: str
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
    default: false
  pending:
    description: The record of a session for which there is no room.
    type: dict
  freed:
    description: Whether room may have become free since the agents were surveyed.
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
  began:
    description: When the run began, in seconds since the epoch.
    type: float
  told:
    description: The variables of the control node with results of this run that have told gateways something.
    type: list
    elements: str
    default: []
  result:
    description: What O(state=settled) returned.
    type: dict
  later:
    description: The RV(sessions) that this run has started after that.
    type: list
    elements: dict
    default: []
  gateways:
    description: The inventory names of gateways. What they replied about routes is read from the variable
      C(__session_gateway) of each.
    type: list
    elements: str
    default: []
  access_path:
    description: The file to write RV(access) to, as JSON; empty for none.
    type: path
    default: ""
  path:
    description: The file to write the record to, as JSON; empty for none.
    type: path
    default: ""
"""

EXAMPLES = r"""
- name: Write the record
  backendai.cluster.session_result:
    state: settled
    starts: "{{ planned.starts }}"
    began: "{{ checked.began }}"
    path: record.json
  register: settled

- name: Report on the session
  backendai.cluster.session_result:
    state: reported
    result: "{{ settled }}"
"""

RETURN = r"""
sessions:
  description: The RV(ignore:record) of each session, and in RV(ignore:error) what went wrong.
  returned: with O(state=settled)
  type: list
  elements: dict
again:
  description: Whether other runs were faster, so that it has to be planned anew.
  returned: with O(state=settled)
  type: bool
refused:
  description: Why agents refused their parts.
  returned: when RV(again) is true
  type: list
  elements: str
wait:
  description: Whether there is an end to wait for.
  returned: with O(state=settled)
  type: bool
waiting:
  description: Whether the queue has to be looked after - room may have become free that its sessions wait for.
  returned: with O(state=settled)
  type: bool
routes:
  description: What M(backendai.cluster.gateway_routes) is to be told, and whether that is news.
  returned: with O(state=settled)
  type: dict
record:
  description: The last record.
  returned: with O(state=reported)
  type: dict
access:
  description:
    - The ways in to a session that runs, one for each gateway. Its C(ssh) has C(host) and C(port), and each of its
      C(apps) a C(name) and a C(url), which is V(null) for an app that speaks no HTTP.
  returned: with O(state=reported)
  type: list
  elements: dict
"""

# The work is done by the action plugin of the same name, on the control node.
