#!/usr/bin/python
# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Decide which waiting sessions start now."""

from __future__ import annotations

DOCUMENTATION = r"""
module: session_schedule
short_description: Decide which of the sessions that wait start now
version_added: 0.1.0
description:
  - Tries the waiting sessions in the order of the queue, each on what the ones before it leave, and notes in the queue
    which of them this run starts and why the others wait on.
  - A session that others have passed O(patience) times goes first, and none of its resource group and priority starts
    before it.
author:
  - backendai.cluster contributors (!UNKNOWN)
extends_documentation_fragment:
  - backendai.cluster.attributes.control
  - backendai.cluster.manager
  - backendai.cluster.manager.queue
  - backendai.cluster.manager.rules
attributes:
  check_mode:
    support: full
  diff_mode:
    support: none
    details: It changes nothing but the queue.
options:
  pools:
    description: Where the networks of sessions come from, as M(backendai.cluster.session_spec) returned it.
    type: dict
    required: true
"""

EXAMPLES = r"""
- name: Decide what starts
  backendai.cluster.session_schedule:
    agents: "{{ groups['agents'] }}"
    pools: "{{ checked.pools }}"
  register: schedule
"""

RETURN = r"""
starts:
  description: What M(backendai.cluster.session_plan) returns, for each session that starts, and its C(spec).
  returned: success
  type: list
  elements: dict
agents:
  description: The agents that take part in any of them.
  returned: success
  type: list
  elements: str
"""

# The work is done by the action plugin of the same name, on the control node.
