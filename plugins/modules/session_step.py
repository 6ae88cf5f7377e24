#!/usr/bin/python
# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
module: session_step
short_description: Run one step of session starts on an agent
description:
  - "Internal: called by the playbooks of this collection."
  - A start is a sequence of steps. An agent runs a step of a session only if all agents of the session have succeeded
    in the previous steps. One task runs a step of all sessions. A session on one agent runs all steps with the first.
  - The error of a session is returned in C(sessions) and does not stop others.
extends_documentation_fragment:
  - backendai.cluster.attributes
  - backendai.cluster.attributes.program
  - backendai.cluster.attributes.group
  - backendai.cluster.options.start
attributes:
  diff_mode:
    details: The environment of containers may hold secrets, so only the fact that it differs is shown.
options:
  step:
    description:
      - V(claim) checks under the agent's lock that the plan still fits, chooses cores and devices, and creates keys. A
        plan that no longer fits is refused.
      - V(apply) creates or repairs files, network, tunnel and containers according to the plan. It does not change a
        healthy session.
      - V(ready) goes on waiting for containers that take long to start, once the run's other sessions are complete.
      - V(commit) checks every pair of containers with TCP, full-size frames and SSH, and commits the session if all
        checks succeed. An uncommitted session is removed when its claim expires.
      - V(command) starts the command of batch sessions, once.
      - V(remove) rolls back the sessions of this run that have failed, or were refused, on any agent.
    choices: [claim, apply, ready, commit, command, remove]
    required: true
  starts:
    description: The sessions that this run starts, as M(backendai.cluster.session_plan) returned them.
    type: list
    elements: dict
    required: true
"""

EXAMPLES = r"""
- name: Run one step of session starts on an agent
  backendai.cluster.session_step:
"""

RETURN = r"""
sessions: {type: dict, returned: unless skipped, description: "The result of each session, by its id."}
"""
