#!/usr/bin/python
# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Install the program that restores an agent's sessions."""

from __future__ import annotations

DOCUMENTATION = r"""
module: agent_program
short_description: Install the program that restores an agent's sessions
version_added: 0.1.0
description:
  - Packs the code with which modules make sessions true into one file, and copies it to the agent. There, systemd
    runs it when the engine has started and every few seconds, without Ansible.
  - It needs nothing but Python and the Docker SDK, as the modules do.
author:
  - backendai.cluster contributors (!UNKNOWN)
extends_documentation_fragment:
  - backendai.cluster.attributes
attributes:
  action:
    description: Packs the program on the control node.
    support: full
  check_mode:
    support: full
  diff_mode:
    support: partial
    details: The program is a binary file; that it differs is all that is shown.
options:
  path:
    description: Where the program goes. Its folder must exist.
    type: path
    required: true
"""

EXAMPLES = r"""
- name: Install the program that restores sessions
  backendai.cluster.agent_program:
    path: /usr/local/lib/backendai/restore.pyz
"""

RETURN = r"""
dest:
  description: Where the program is.
  returned: success
  type: str
"""

# The work is done by the action plugin of the same name, on the control node.
