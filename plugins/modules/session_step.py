#!/usr/bin/python
# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
module: session_step
short_description: Take one step of the start of sessions on an agent
description:
  - "Internal: called by the playbooks of this collection."
  - A start is a row of steps, and an agent takes a step of a session only when all agents of that session have
    succeeded in the ones before. All sessions of a run take a step in one task. A session of one agent takes all steps
    with the first.
  - What goes wrong with one session is a value in C(sessions), and stops no other.
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
      - V(claim) checks under the agent's lock that the plan still fits, chooses cores and devices, and makes keys. A
        plan that no longer fits is refused.
      - V(overlay) makes the networks of sessions whose driver is V(swarm), on the agent that manages the swarm.
      - V(apply) makes files, network, tunnel and containers what the plan says. It changes nothing on a healthy
        session.
      - V(prove) lets every container reach every other, over TCP, with full-size frames, and by SSH, and commits the
        session when all of that works. Until then it goes away when its claim expires.
      - V(command) starts the command of batch sessions, once.
      - V(remove) takes back what this run has made of sessions that failed, or were refused, on any agent.
    choices: [claim, overlay, apply, prove, command, remove]
    required: true
  starts:
    description: The sessions that this run starts, as M(backendai.cluster.session_plan) returned them.
    type: list
    elements: dict
    required: true
"""

EXAMPLES = r"""
- name: Take one step of the start of sessions on an agent
  backendai.cluster.session_step:
"""

RETURN = "# Internal."
