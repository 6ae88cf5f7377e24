#!/usr/bin/python
# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
module: session_reconcile
short_description: Find the sessions to terminate, restart or remove from the queue
description:
  - "Internal: called by the playbooks of this collection."
  - Compares the sessions on the agents with the queue, and finds finished sessions, failed containers, expired claims,
    sessions that were pending for too long, and parts of ended sessions on agents that were unreachable.
  - Marks the sessions to end in the queue before anything is changed, so that the next run can finish a killed one.
extends_documentation_fragment:
  - backendai.cluster.attributes.control
  - backendai.cluster.options.agents
  - backendai.cluster.options.queue
  - backendai.cluster.options.run
options:
  abandoned:
    description: Whether to remove the sessions of killed runs, instead of keeping them to be finished.
    type: bool
  all_routes:
    description: Whether to send the routes of all sessions to gateways, instead of those that this run has changed.
    type: bool
  previous:
    description: The variables of the control node with earlier results of this run that gateways were updated with.
    type: list
    elements: str
  agent_lost_after:
    description: The time in seconds after which an agent that does not answer is lost.
    type: int
    default: 600
  history_days:
    description: The number of days that ended sessions are kept in the history.
    type: int
    default: 30
  max_skips:
    description:
      - How many later sessions may start before a pending one. As many of those that have are kept in the history for
        as long as it waits, since they tell how often it was skipped.
    type: int
    default: 16
"""

EXAMPLES = r"""
- name: Find the sessions to terminate, restart or remove from the queue
  backendai.cluster.session_reconcile:
"""

RETURN = r"""
end: {type: dict, returned: always, description: "The ids of the sessions to end, by agent."}
restart: {type: dict, returned: always, description: "The ids of the sessions to restart containers of, by agent."}
agents: {type: list, elements: str, returned: always, description: The agents that have to take action.}
routes: {type: dict, returned: always, description: The update for gateways.}
"""
