#!/usr/bin/python
# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
module: firewall_traffic
short_description: Read what the firewall of a host in report mode would have dropped
version_added: 0.1.0
description:
  - "Internal: called by the playbooks of this collection."
  - Reads the counters of the firewall, and names the programs and containers that listen at the ports.
extends_documentation_fragment:
  - backendai.cluster.options.engine
  - backendai.cluster.options.state
  - backendai.cluster.attributes
  - backendai.cluster.attributes.program
attributes:
  diff_mode:
    support: none
    details: Nothing is changed.
"""

EXAMPLES = r"""
- name: Read what the firewall would have dropped
  backendai.cluster.firewall_traffic:
"""

RETURN = r"""
mode: {type: str, returned: success,
  description: "What the firewall does with what is not allowed: V(enforce), V(report), or V(off) without one."}
traffic: {type: list, elements: dict, returned: success,
  description: "The packets that would have been dropped, by C(source), C(protocol), C(port) and C(destination), with
    their number C(packets) and the C(program) that listens there."}
storage: {type: list, elements: dict, returned: success,
  description: "The packets that were dropped in any mode, from containers to storage services that are closed to them,
    as in RV(traffic); C(program) is the kind of the service and its mount."}
unlisted: {type: int, returned: success, description: How many other packets would have been dropped.}
"""
