#!/usr/bin/python
# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
module: isolation_verification
short_description: Check, plan and report what outsiders probe
description:
  - "Internal: called by the playbooks of this collection."
  - With O(state=validated), checks what C(verify_isolation) is asked before any host is touched, and fails with a
    sentence for each problem.
  - With O(state=planned), divides what agents and gateways replied to M(backendai.cluster.isolation_host) into parts,
    each of which keeps an outsider busy for about a minute at most. Of a host that could not be asked, the addresses of
    the inventory are tried, with a warning.
  - With O(state=reported), makes one report of what M(backendai.cluster.isolation_host) returned on all outsiders,
    shows it, and writes it for programs. It fails when anything of an agent, its bridges or its containers answers,
    when more of a gateway is open than is expected, and when anything could not be tried. In check mode nothing has
    been tried; what would be is shown.
extends_documentation_fragment:
  - backendai.cluster.attributes.control
options:
  state:
    description: How far the verification is.
    choices: [validated, planned, reported]
    required: true
  agents:
    description:
      - The inventory names of all agents. With O(state=planned), what they replied is read from the variable
        C(__isolation_targets) of each.
    type: list
    elements: str
  gateways:
    description: The inventory names of all gateways; what they replied is read in the same way.
    type: list
    elements: str
  ports:
    description: The TCP ports to try, as numbers and ranges.
    default: 1-65535
  rate:
    description: How many connections are being opened at one moment.
    type: int
    default: 16000
  pattern:
    description: What names the outsiders, for messages. Required with O(state=validated).
  outsiders:
    description:
      - The inventory names of the hosts that O(pattern) names. With O(state=reported), what they found is read from the
        variable C(__isolation_probe) of each.
    type: list
    elements: str
  managers:
    description: The inventory names of all managers. Required with O(state=validated).
    type: list
    elements: str
  targets:
    description: The hosts that were tried, as O(state=planned) returned them.
    type: list
    elements: dict
  batches:
    description: The parts in which they were tried, as O(state=planned) returned them.
    type: list
    elements: dict
  path:
    description: The file that the report is written to; empty for none. Its folder is checked with O(state=validated).
    type: path
"""

EXAMPLES = r"""
- name: Check, plan and report what outsiders probe
  backendai.cluster.isolation_verification:
"""

RETURN = "# Internal."
