#!/usr/bin/python
# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Find which ways in gateways open and close."""

from __future__ import annotations

DOCUMENTATION = r"""
module: session_routes
short_description: Find which ways in gateways open and close
version_added: 0.1.0
description:
  - Sessions that were started get a way in, and those that the queue says are over lose theirs.
  - Nothing is taken from a gateway because it is not known here, since another run may have just opened it.
author:
  - backendai.cluster contributors (!UNKNOWN)
extends_documentation_fragment:
  - backendai.cluster.attributes.control
  - backendai.cluster.manager.queue
attributes:
  check_mode:
    support: full
  diff_mode:
    support: none
    details: It never changes anything.
options:
  plans:
    description: The plans of the sessions that this run has started.
    type: list
    elements: dict
    default: []
  agents:
    description: The agents whose sessions have their ways in too, where this run has read them.
    type: list
    elements: str
    default: []
  since:
    description: Since when a session has to be over, in seconds since the epoch, for its way in to be closed again.
    type: float
    default: 0.0
  told:
    description: What this action has returned before in the same run, which gateways know.
    type: dict
    default: {}
"""

EXAMPLES = r"""
- name: Find which ways in are open
  backendai.cluster.session_routes:
    agents: "{{ groups['agents'] }}"
  register: ways
"""

RETURN = r"""
routes:
  description: What M(backendai.cluster.gateway_routes) takes of each session with a way in.
  returned: success
  type: list
  elements: dict
ended:
  description: The ids of sessions that are over.
  returned: success
  type: list
  elements: str
news:
  description: Whether there is something to say of them that O(told) does not say.
  returned: success
  type: bool
"""

# The work is done by the action plugin of the same name, on the control node.
