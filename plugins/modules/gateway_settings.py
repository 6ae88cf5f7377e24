#!/usr/bin/python
# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Check the variables of a gateway."""

from __future__ import annotations

DOCUMENTATION = r"""
module: gateway_settings
short_description: Check the variables of a gateway
version_added: 0.1.0
description:
  - Checks all variables of this host that begin with C(gateway_), and says where users find the gateway. Nothing is
    applied yet, and the host is not asked.
  - Looks into the files of C(gateway_certificate) and C(gateway_certificate_key) too, which are on the control node.
  - Fails with one sentence for each variable that cannot be used.
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
requirements:
  - cryptography, on the control node, where a certificate is given
options: {}
"""

EXAMPLES = r"""
- name: Check what is asked
  backendai.cluster.gateway_settings:
  register: __gateway
"""

RETURN = r"""
gateway:
  description: Where users find the gateway, as M(backendai.cluster.gateway_routes) reads it on the gateway.
  returned: success
  type: dict
  sample:
    hostname: gateway.example.org
    domain: apps.example.org
    https_port: 443
    first_ssh_port: 31001
    last_ssh_port: 32000
names:
  description: The host names and addresses that a certificate of the gateway has to be for.
  returned: success
  type: list
  elements: str
  sample: [gateway.example.org, "*.apps.example.org", 192.0.2.7]
"""

# The work is done by the action plugin of the same name, on the control node.
