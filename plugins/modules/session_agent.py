#!/usr/bin/python
# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
module: session_agent
short_description: Read or change the sessions of an agent
description:
  - "Internal: called by the playbooks of this collection."
  - The connection and the resources of the agent are set by its variables that begin with C(agent_), which the role
    P(backendai.cluster.agent#role) describes.
extends_documentation_fragment:
  - backendai.cluster.attributes
  - backendai.cluster.attributes.program
  - backendai.cluster.attributes.group
options:
  phase:
    description:
      - V(survey) returns the agent's facts, by which sessions are planned.
      - V(reap) ends the sessions of O(end), whose processes are asked first, restarts failed containers of the sessions
        of O(restart), and removes expired claims. Failures of single sessions are warnings.
      - V(remove) removes this agent's part of O(sessions).
      - V(wait) waits for C(main1) of a session to end.
      - V(verify) and V(logs) read this agent's part of a session and change nothing.
      - V(follow) shows what the containers of a session print from then on, until they end.
      - V(marker) creates a marker file in the mounts of a session, looks for it from its containers, or removes it.
    choices: [survey, reap, remove, wait, verify, logs, follow, marker]
    required: true
  images:
    description: The images that sessions may need, for O(phase=survey).
    type: list
    elements: str
  paths:
    description: The folders of the agent that sessions may need, for O(phase=survey).
    type: list
    elements: str
  keys_of:
    description: The ids of the sessions whose public keys are returned, for O(phase=survey).
    type: list
    elements: str
  others:
    description: Whether to warn of what runs on the agent beside sessions, for O(phase=survey).
    type: bool
  end:
    description: The ids of the sessions to end, for O(phase=reap).
    type: list
    elements: str
  restart:
    description: The ids of the sessions to restart the containers of, for O(phase=reap).
    type: list
    elements: str
  sessions:
    description:
      - The sessions to remove, for O(phase=remove), each with its C(id) and a C(nonce). With a nonce, the session is
        removed only if the run with that nonce has created it.
    type: list
    elements: dict
  unrouted:
    description:
      - The ids of ended sessions whose routes all gateways have removed, for O(phase=reap) and O(phase=remove).
      - The agent gives their ports to other sessions.
    type: list
    elements: str
  force:
    description: Whether to kill the processes of the sessions to remove at once, for O(phase=remove).
    type: bool
  history_days:
    description: How many days to keep what the containers printed, for O(phase=reap) and O(phase=remove).
    type: int
  session_id:
    description: The id of the session.
  kernel:
    description: The hostname of the container to read the logs of, for O(phase=logs); empty for all.
  lines:
    description: The number of lines of each log to return, for O(phase=logs).
    type: int
  timeout:
    description: The maximum time to wait in seconds, for O(phase=wait).
    type: int
  marker:
    description: The unique name of the marker file, for O(phase=marker).
  operation:
    description: What to do with the file, for O(phase=marker).
    choices: [create, find, remove]
"""

EXAMPLES = r"""
- name: Read or change the sessions of an agent
  backendai.cluster.session_agent:
"""

RETURN = r"""
agent: {type: dict, returned: with O(phase=survey), description: The facts of the agent; V(null) if RV(error) is set.}
failures: {type: dict, returned: with O(phase=reap), description: The errors by session id.}
ends: {type: dict, returned: with O(phase=reap), description: "How each session has ended, as in RV(sessions)."}
sessions: {type: dict, returned: with O(phase=remove),
  description: "By session id C(grace_exceeded) if processes had to be killed, and C(lost_output) if there is any."}
ended: {type: bool, returned: with O(phase=wait), description: Whether the command has ended.}
exit_code: {type: int, returned: with O(phase=wait), description: The exit code of main1; V(null) if it is not known.}
parts: {type: list, elements: dict, returned: with O(phase=verify) or O(phase=logs),
  description: This agent's part of each session that matches.}
created: {type: list, elements: str, returned: with O(phase=marker) and O(operation=create),
  description: The targets of mounts with a marker file.}
observed: {type: dict, returned: with O(phase=marker) and O(operation=find),
  description: What each container sees of each mount.}
leftover: {type: list, elements: str, returned: with O(phase=marker) and O(operation=remove),
  description: The targets of mounts with a marker file that could not be removed.}
error: {type: str, returned: "with O(phase=survey), O(phase=verify) or O(phase=logs)",
  description: The reason why there is no result; V(null) if there is one.}
"""
