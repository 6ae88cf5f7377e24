#!/usr/bin/python
# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
module: session_agent
short_description: Ask an agent about the sessions that it holds, or let it act upon them
description:
  - "Internal: called by the playbooks of this collection."
  - How the agent is reached, and what it offers, are its variables, whose names begin with C(agent_). The role
    P(backendai.cluster.agent#role) describes them.
extends_documentation_fragment:
  - backendai.cluster.attributes
  - backendai.cluster.attributes.program
  - backendai.cluster.attributes.group
options:
  phase:
    description:
      - V(survey) returns the agent's facts, as M(backendai.cluster.agent_info) does.
      - V(reap) ends the sessions of O(end), restarts containers that died of those of O(restart), and removes claims
        that have expired. What fails for one session is warned of.
      - V(remove) removes this agent's part of O(sessions).
      - V(wait) waits for C(main1) of a session to end.
      - V(verify) and V(logs) look at this agent's part of a session, and change nothing.
      - V(mark) leaves a file in the mounts of a session, looks for it through its containers, or removes it.
    choices: [survey, reap, remove, wait, verify, logs, mark]
    required: true
  images:
    description: The images that sessions may need, for O(phase=survey).
    type: list
    elements: str
  paths:
    description: The folders of the agent that sessions may need, for O(phase=survey).
    type: list
    elements: str
  end:
    description: The ids of sessions that go away, for O(phase=reap).
    type: list
    elements: str
  restart:
    description: The ids of sessions whose containers are started again, for O(phase=reap).
    type: list
    elements: str
  sessions:
    description:
      - The sessions that go away, for O(phase=remove), each with its C(id) and a C(nonce). With a nonce, it goes only
        where the run of that nonce has made it.
    type: list
    elements: dict
  name:
    description: The name of the session, for O(phase=verify) and O(phase=logs).
  session_id:
    description: The id of the session.
  kernel:
    description: The hostname of the one container whose logs are read, for O(phase=logs); empty for all.
  lines:
    description: How many lines of each log to return, for O(phase=logs).
    type: int
  patience:
    description: How many seconds to wait at most, for O(phase=wait).
    type: int
  mark:
    description: What tells this file from others, for O(phase=mark).
  act:
    description: What to do with the file, for O(phase=mark).
    choices: [create, find, remove]
"""

EXAMPLES = r"""
- name: Ask an agent about the sessions that it holds, or let it act upon them
  backendai.cluster.session_agent:
"""

RETURN = "# Internal."
