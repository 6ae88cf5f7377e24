#!/usr/bin/python
# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Say what is open to outsiders."""

from __future__ import annotations

DOCUMENTATION = r"""
module: isolation_report
short_description: Say what is open to outsiders, and fail where that is more than the gateway
version_added: 0.1.0
description:
  - "Internal: called by the playbooks of this collection."
  - Makes one report of what M(backendai.cluster.isolation_host) returned on all outsiders, shows it, and writes it for
    programs.
  - Fails when anything of an agent, its bridges or its containers answers, when more of a gateway is open than is
    expected, and when anything could not be tried.
author:
  - backendai.cluster contributors (!UNKNOWN)
extends_documentation_fragment:
  - backendai.cluster.attributes.control
attributes:
  check_mode:
    support: full
    details: Nothing has been tried; what would be is shown.
  diff_mode:
    support: none
    details: The report is all that it makes.
options:
  outsiders:
    description:
      - The inventory names of the hosts that have tried. What they found is read from the variable
        C(__isolation_probe) of each.
    type: list
    elements: str
    required: true
  targets:
    description: The hosts that were tried, as M(backendai.cluster.isolation_plan) returned them.
    type: list
    elements: dict
    required: true
  stints:
    description: What was to be tried, as M(backendai.cluster.isolation_plan) returned it.
    type: list
    elements: dict
    required: true
  path:
    description: The file to write; empty for none.
    type: path
    default: ""
"""

EXAMPLES = r"""
- name: Say what is open
  backendai.cluster.isolation_report:
    outsiders: [user1]
    targets: "{{ planned.targets }}"
    stints: "{{ planned.stints }}"
    path: report.json
"""

RETURN = r"""
report:
  description:
    - The report, as it is written to O(path).
    - RV(ignore:tried) has each address with the ports and protocols that were tried, and the next hop on the way there.
    - RV(ignore:findings) are the doors that must not be there. RV(ignore:port) is V(null) for pings, and where
      RV(ignore:ports) are several.
    - RV(ignore:expected) are those that may be there, and whether they are.
    - RV(ignore:not_proven) is what could not be tried, and why. What is V(null) there does not matter.
  returned: success, not in check mode
  type: dict
  sample:
    well: true
    outsiders: [user1]
    tried:
      - outsider: user1
        target: agent1
        address: 172.18.0.2
        kind: container
        via: 10.77.9.11
        ports: 1-65535
        udp_ports: 53,111,123,161,4789,7946,51820
        protocols: [tcp, udp, icmp]
    findings: []
    expected:
      - {target: gateway1, protocol: tcp, port: 443, means: HTTPS of sessions' apps, seen: true}
    not_proven: []
"""

# The work is done by the action plugin of the same name, on the control node.
