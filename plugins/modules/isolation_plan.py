#!/usr/bin/python
# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Plan what outsiders probe."""

from __future__ import annotations

DOCUMENTATION = r"""
module: isolation_plan
short_description: Plan what outsiders probe
version_added: 0.1.0
description:
  - "Internal: called by the playbooks of this collection."
  - With O(state=validated), checks what C(verify_isolation) is asked before any host is touched, and fails with a
    sentence for each problem.
  - With O(state=planned), divides what agents and gateways replied to M(backendai.cluster.isolation_host) into parts,
    each of which keeps an outsider busy for about a minute at most. Of a host that could not be asked, the addresses of
    the inventory are tried, with a warning.
author:
  - backendai.cluster contributors (!UNKNOWN)
extends_documentation_fragment:
  - backendai.cluster.attributes.control
attributes:
  check_mode:
    support: full
  diff_mode:
    support: none
    details: Nothing is changed.
options:
  state:
    description: How far the plan is to get.
    type: str
    choices: [validated, planned]
    required: true
  agents:
    description:
      - The inventory names of all agents. With O(state=planned), what they replied is read from the variable
        C(__isolation_targets) of each.
    type: list
    elements: str
    required: true
  gateways:
    description: The inventory names of all gateways; what they replied is read in the same way.
    type: list
    elements: str
    required: true
  ports:
    description: The TCP ports to try, as numbers and ranges.
    type: str
    default: 1-65535
  rate:
    description: How many connections are being opened at one moment.
    type: int
    default: 16000
  pattern:
    description: What names the outsiders, for messages. Required with O(state=validated).
    type: str
  outsiders:
    description: The inventory names of the hosts that O(pattern) names. Required with O(state=validated).
    type: list
    elements: str
  managers:
    description: The inventory names of all managers. Required with O(state=validated).
    type: list
    elements: str
  path:
    description: The file that the report is to be written to; empty for none. Checked with O(state=validated).
    type: path
    default: ""
"""

EXAMPLES = r"""
- name: Validate the request
  backendai.cluster.isolation_plan:
    state: validated
    pattern: users
    outsiders: "{{ query('ansible.builtin.inventory_hostnames', 'users') }}"
    agents: "{{ groups['agents'] }}"
    gateways: "{{ groups['gateways'] }}"
    managers: []

- name: Plan the probes
  backendai.cluster.isolation_plan:
    state: planned
    agents: "{{ groups['agents'] }}"
    gateways: "{{ groups['gateways'] }}"
  register: planned
"""

RETURN = r"""
ask:
  description: The agents and gateways, which are asked for their addresses.
  returned: with O(state=validated)
  type: list
  elements: str
outsiders:
  description: The hosts that probe them.
  returned: with O(state=validated)
  type: list
  elements: str
agents:
  description: The agents.
  returned: with O(state=validated)
  type: list
  elements: str
gateways:
  description: The gateways.
  returned: with O(state=validated)
  type: list
  elements: str
ports:
  description: The TCP ports to try.
  returned: with O(state=validated)
  type: str
rate:
  description: How many connections are being opened at one moment.
  returned: with O(state=validated)
  type: int
targets:
  description: The hosts that are tried, for M(backendai.cluster.isolation_report).
  returned: with O(state=planned)
  type: list
  elements: dict
stints:
  description: The parts, each of which one call of M(backendai.cluster.isolation_host) tries.
  returned: with O(state=planned)
  type: list
  elements: dict
  sample:
    - target: agent1
      own: [10.77.9.11]
      addresses: [10.77.9.11, 172.18.0.1]
      ports: 1-65535
      udp_ports: [53, 111, 123, 161, 4789, 7946, 51820]
      echo: true
"""

# The work is done by the action plugin of the same name, on the control node.
