#!/usr/bin/python
# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
module: agent_program
short_description: Install the agent program for the systemd units of a host
description:
  - "Internal: called by the roles of this collection."
  - Tasks run the code of the collection on a host as one program, identified by its digest, and upload it if it is
    missing. This module makes it available to the systemd units of the host, too, which run it without Ansible. An
    older release never replaces a newer one.
  - It needs only Python and, on agents, the Docker SDK.
extends_documentation_fragment:
  - backendai.cluster.attributes
attributes:
  action:
    description: Builds the program on the control node.
    support: full
  diff_mode:
    support: none
    details: The program is a binary file, so only the fact that it differs is shown.
options: {}
"""

EXAMPLES = r"""
- name: Install the agent program for the systemd units of a host
  backendai.cluster.agent_program:
"""

RETURN = "# Only the common return values."
