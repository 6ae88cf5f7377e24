#!/usr/bin/python
# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
module: agent_program
short_description: Have the units of a host run the program of this collection
description:
  - "Internal: called by the roles of this collection."
  - The code with which tasks work on a host is one program there, known by the digest of its content. Tasks put it
    there where it is missing; this lets the host's own units run it too, when the engine has started and every few
    seconds, without Ansible. An older release never takes the place of a newer one.
  - It needs nothing but Python and the Docker SDK.
extends_documentation_fragment:
  - backendai.cluster.attributes
attributes:
  action:
    description: Packs the program on the control node.
    support: full
  diff_mode:
    support: none
    details: The program is a binary file; that it differs is all that is shown.
options: {}
"""

EXAMPLES = r"""
- name: Have the units of a host run the program of this collection
  backendai.cluster.agent_program:
"""

RETURN = "# Internal."
