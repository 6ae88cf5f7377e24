#!/usr/bin/python
# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
module: session_image
short_description: Pull the images of sessions where an agent does not have them
description:
  - "Internal: called by the playbooks of this collection."
  - Starts to pull an image unless the agent's engine has it already, and shows how far the pull is. A process of its
    own on the agent pulls, and ends when the session is no longer claimed there.
  - Each look renews the claim of this run, so that it does not expire before the pull ends.
  - It comes back after a third of O(claim_ttl), whether all images are there or not, so that agents in turn renew their
    claims.
extends_documentation_fragment:
  - backendai.cluster.attributes
  - backendai.cluster.attributes.program
  - backendai.cluster.attributes.group
  - backendai.cluster.options.start
attributes:
  check_mode:
    details: Nothing is pulled, and no claim is needed.
options:
  registries:
    description:
      - The C(username) and C(password) for each registry that asks for them, by its host and port. The agent gets the
        one that it needs.
    type: dict
"""

EXAMPLES = r"""
- name: Pull the images of sessions where an agent does not have them
  backendai.cluster.session_image:
"""

RETURN = "# Internal."
