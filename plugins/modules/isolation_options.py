#!/usr/bin/python
# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Check what ``verify_isolation`` is asked."""

from __future__ import annotations

DOCUMENTATION = r"""
module: isolation_options
short_description: Check what C(verify_isolation) is asked
version_added: 0.1.0
description:
  - Fails with a sentence for each thing that is wrong, before any host is touched.
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
  pattern:
    description: What names the outsiders, for messages.
    type: str
    required: true
  outsiders:
    description: The inventory names of the hosts that it names.
    type: list
    elements: str
    required: true
  agents:
    description: The inventory names of all agents.
    type: list
    elements: str
    required: true
  gateways:
    description: The inventory names of all gateways.
    type: list
    elements: str
    required: true
  managers:
    description: The inventory names of all managers.
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
  path:
    description: The file that the report is to be written to; empty for none.
    type: path
    default: ""
"""

EXAMPLES = r"""
- name: Check what is asked
  backendai.cluster.isolation_options:
    pattern: users
    outsiders: "{{ query('ansible.builtin.inventory_hostnames', 'users') }}"
    agents: "{{ groups['agents'] }}"
    gateways: "{{ groups['gateways'] }}"
    managers: []
"""

RETURN = r"""
outsiders:
  description: The hosts that try.
  returned: success
  type: list
  elements: str
agents:
  description: The agents that are tried.
  returned: success
  type: list
  elements: str
gateways:
  description: The gateways that are tried.
  returned: success
  type: list
  elements: str
ports:
  description: The TCP ports to try.
  returned: success
  type: str
rate:
  description: How many connections are being opened at one moment.
  returned: success
  type: int
"""

# The work is done by the action plugin of the same name, on the control node.
