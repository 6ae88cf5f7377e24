#!/usr/bin/python
# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
module: session_termination
short_description: Find a session that has to go, and say that it has gone
description:
  - "Internal: called by the playbooks of this collection."
  - With O(state=begun), looks through the queue and the facts of agents. What has to go is noted in the queue before
    anything is touched, so that a run that is killed is finished by the next. A session that waits is cancelled. It
    fails when an agent that holds a part of the session cannot be used, unless O(force=true).
  - With O(state=ended), writes the last record and moves the session to the history of the queue.
extends_documentation_fragment:
  - backendai.cluster.attributes.control
  - backendai.cluster.options.queue
  - backendai.cluster.options.session
options:
  state:
    description: Whether the end begins, or is over.
    choices: [begun, ended]
    required: true
  agents:
    description: The inventory names of all agents, for O(state=begun).
    type: list
    elements: str
  force:
    description: Whether to go on without the agents that cannot be used. They are cleared when they return.
    type: bool
  record:
    description: The last record of the session, for O(state=ended).
    type: dict
  unreachable_agents:
    description: The agents that could not be cleared; the queue remembers them.
    type: list
    elements: str
  removed:
    description:
      - What came of the removal on the agents that could be asked, by their names. Those that failed, or became
        unreachable, are remembered like O(unreachable_agents).
    type: dict
  started_at:
    description: When the run began, in seconds since the epoch, for O(state=ended).
    type: float
  path:
    description: The file to write the record to; empty for none.
    type: path
"""

EXAMPLES = r"""
- name: Find a session that has to go, and say that it has gone
  backendai.cluster.session_termination:
"""

RETURN = "# Internal."
