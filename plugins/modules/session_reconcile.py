#!/usr/bin/python
# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
module: session_reconcile
short_description: Find what is due about the sessions that are there
description:
  - "Internal: called by the playbooks of this collection."
  - Compares what the agents hold with the queue and finds sessions that are over, containers that died, claims whose
    time is over, sessions that waited too long, and what returning agents still hold of sessions that have ended.
  - Notes in the queue what has to go before anything is touched, so that a run that is killed is finished by the next.
extends_documentation_fragment:
  - backendai.cluster.attributes.control
  - backendai.cluster.options.agents
  - backendai.cluster.options.queue
  - backendai.cluster.options.run
options:
  abandoned:
    description: Whether to take away what runs that were killed have left, instead of leaving it to be finished.
    type: bool
  all_routes:
    description: Whether gateways are to be told of all sessions, instead of what has changed in this run.
    type: bool
  previous:
    description: The variables of the control node with results of this run that have told gateways something.
    type: list
    elements: str
  history_days:
    description: How many days sessions that have ended are remembered.
    type: int
    default: 30
"""

EXAMPLES = r"""
- name: Find what is due about the sessions that are there
  backendai.cluster.session_reconcile:
"""

RETURN = "# Internal."
