#!/usr/bin/python
# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
module: policy_folders
short_description: Check the folders of managers' policies on all hosts
version_added: 0.1.0
description:
  - "Internal: called by the playbooks of this collection."
  - Agents look at each folder of the policies of all managers as a session would, and name the component of its path
    that is not root's. Agents and managers name shared file systems with such folders that are not mounted
    nosuid,nodev. Each finding is a warning. Changes nothing.
  - Runs once, on the control node, and asks the hosts itself.
extends_documentation_fragment:
  - backendai.cluster.attributes.agents
attributes:
  check_mode:
    details: It looks in check mode, too.
"""

EXAMPLES = r"""
- name: Check the folders of managers' policies on all hosts
  backendai.cluster.policy_folders:
"""

RETURN = r"""# """
