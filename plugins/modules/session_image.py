#!/usr/bin/python
# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Pull the images of sessions on an agent."""

from __future__ import annotations

DOCUMENTATION = r"""
module: session_image
short_description: Pull the images of sessions where an agent does not have them
version_added: 0.1.0
description:
  - "Internal: called by the playbooks of this collection."
  - Starts to pull an image unless the agent's engine has it already, and shows how far the pull is. A process of its
    own on the agent pulls, and ends when the session is no longer claimed there.
  - Each look renews the claim of this run, so that it does not expire before the pull ends.
  - It comes back after a third of O(claim_ttl), whether all images are there or not, so that agents in turn renew their
    claims.
author:
  - backendai.cluster contributors (!UNKNOWN)
extends_documentation_fragment:
  - backendai.cluster.attributes
  - backendai.cluster.attributes.group
attributes:
  action:
    description: Chooses what is pulled, and with whose password; waits, and shows how far the pull is.
    support: full
  check_mode:
    support: full
    details: Nothing is pulled, and no claim is needed.
  diff_mode:
    support: full
options:
  starts:
    description: The sessions that this run starts, as M(backendai.cluster.session_plan) returned them.
    type: list
    elements: dict
    required: true
  claim_ttl:
    description: For how many seconds a claim goes on from now.
    type: int
    required: true
  registries:
    description:
      - The C(username) and C(password) for each registry that asks for them, by its host and port. The agent gets the
        one that it needs.
    type: dict
    default: {}
"""

EXAMPLES = r"""
- name: Pull images
  backendai.cluster.session_image:
    starts: "{{ planned.starts }}"
    claim_ttl: 600
    registries:
      registry.example.com:
        username: reader
        password: "{{ vaulted_password }}"
"""

RETURN = r"""
again:
  description: Whether a pull was under way, so that all agents have to have another turn.
  returned: when something was to be pulled
  type: bool
sessions:
  description: By the id of each session, the C(images) that are there now, by name, or why one C(failed).
  returned: when something was to be pulled
  type: dict
"""

# The work is done by the action plugin of the same name, through the program on the agent.
