#!/usr/bin/python
# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
module: session_image
short_description: Pull missing images of sessions on an agent
description:
  - "Internal: called by the playbooks of this collection."
  - Starts to pull an image if the agent does not have it, and shows the progress. A background process on the agent
    pulls; it ends when the session is no longer claimed there.
  - Each poll renews the claim of this run, so that it does not expire before the pull ends.
  - The task returns after a third of O(claim_ttl), even if the pull is not finished, so that all agents can renew their
    claims in turn.
extends_documentation_fragment:
  - backendai.cluster.attributes
  - backendai.cluster.attributes.program
  - backendai.cluster.attributes.group
  - backendai.cluster.options.start
attributes:
  check_mode:
    details: Nothing is pulled, and no claim is needed.
"""

EXAMPLES = r"""
- name: Pull missing images of sessions on an agent
  backendai.cluster.session_image:
"""

RETURN = r"""
sessions: {type: dict, returned: unless skipped,
  description: "The C(images) of each session on this agent, or why its pull C(failed), by session id."}
repeat: {type: bool, returned: unless skipped, description: Whether another round has to follow.}
"""
