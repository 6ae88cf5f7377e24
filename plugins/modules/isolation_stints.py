#!/usr/bin/python
# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Decide what outsiders try."""

from __future__ import annotations

DOCUMENTATION = r"""
module: isolation_stints
short_description: Decide what outsiders try
version_added: 0.1.0
description:
  - Makes parts of what M(backendai.cluster.isolation_targets) said of agents and gateways. Each keeps
    M(backendai.cluster.isolation_probe) busy for about a minute at most.
  - Of a host that could not be asked, the addresses of the inventory are tried, with a warning.
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
  agents:
    description:
      - The inventory names of all agents. What they said is read from the variable C(__isolation_targets) of each.
    type: list
    elements: str
    required: true
  gateways:
    description: The inventory names of all gateways; what they said is read in the same way.
    type: list
    elements: str
    required: true
  ports:
    description: The TCP ports to try, as numbers and ranges.
    type: str
    required: true
  rate:
    description: How many connections are being opened at one moment.
    type: int
    required: true
"""

EXAMPLES = r"""
- name: Decide what is tried
  backendai.cluster.isolation_stints:
    agents: "{{ groups['agents'] }}"
    gateways: "{{ groups['gateways'] }}"
    ports: 1-65535
    rate: 16000
"""

RETURN = r"""
targets:
  description: The hosts that are tried, for M(backendai.cluster.isolation_report).
  returned: success
  type: list
  elements: dict
stints:
  description: What one call of M(backendai.cluster.isolation_probe) tries, each.
  returned: success
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
