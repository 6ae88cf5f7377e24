#!/usr/bin/python
# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
module: session_termination
short_description: Begin and complete the termination of a session
description:
  - "Internal: called by the playbooks of this collection."
  - With O(state=begun), finds the session in the queue and in the facts of agents, and marks it as terminating in the
    queue before anything is changed, so that the next run can finish a killed one. A pending session is cancelled. It
    fails if an agent that runs a part of the session is unreachable, unless O(force=true).
  - With O(state=ended), writes the final record and moves the session to the history of the queue.
extends_documentation_fragment:
  - backendai.cluster.attributes.control
  - backendai.cluster.options.queue
  - backendai.cluster.options.session
options:
  state:
    description: Whether the termination begins, or is complete.
    choices: [begun, ended]
    required: true
  agents:
    description: The inventory names of all agents, for O(state=begun).
    type: list
    elements: str
  force:
    description: Whether to continue without unreachable agents. Their containers are removed when they return.
    type: bool
  record:
    description: The final record of the session, for O(state=ended).
    type: dict
  unreachable_agents:
    description: The agents on which the session could not be removed; they are kept in the queue.
    type: list
    elements: str
  removed:
    description:
      - The results of the removal on the reachable agents, by name. Agents that failed, or became unreachable, are kept
        in the queue like O(unreachable_agents).
    type: dict
  started_at:
    description: The time when the run began, in seconds since the epoch, for O(state=ended).
    type: float
  path:
    description: The file for the record; empty for none.
    type: path
"""

EXAMPLES = r"""
- name: Begin and complete the termination of a session
  backendai.cluster.session_termination:
"""

RETURN = r"""
record: {type: dict, returned: always, description: The final record of the session.}
agents: {type: list, elements: str, returned: with O(state=begun), description: The agents to remove the session from.}
unreachable_agents: {type: list, elements: str, returned: with O(state=begun),
  description: The agents that remove it later.}
waiting: {type: bool, returned: with O(state=ended), description: Whether there are pending sessions.}
routes: {type: dict, returned: with O(state=ended), description: The update for gateways.}
"""
