#!/usr/bin/python
# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
module: firewall_report
short_description: Report what firewalls in report mode would have dropped
version_added: 0.1.0
description:
  - "Internal: called by the playbooks of this collection."
  - Shows the results of M(backendai.cluster.firewall_traffic) on all hosts as a table, and the entries of
    C(firewall_allow) that would allow the connections to programs that listen. Also shows what was dropped on the way
    from containers to storage services that are closed to them. Changes nothing.
extends_documentation_fragment:
  - backendai.cluster.attributes.control
options:
  hosts:
    description:
      - The inventory names of the hosts. Their results are read from the variable C(__firewall_traffic) of each.
    type: list
    elements: str
    required: true
  path:
    description: The file for the report as JSON; empty for none.
    type: path
"""

EXAMPLES = r"""
- name: Report what the firewalls would have dropped
  backendai.cluster.firewall_report:
    hosts: [agent1, agent2]
"""

RETURN = r"""
report: {type: dict, returned: success, description: "The report, as in the file."}
"""
