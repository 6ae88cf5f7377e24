#!/usr/bin/python
# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Say whether a session is what it should be."""

from __future__ import annotations

DOCUMENTATION = r"""
module: session_report
short_description: Say whether a session is what it should be, and fail where it is not
version_added: 0.1.0
description:
  - Makes one report of what M(backendai.cluster.session_agent) said of the
    agents, shows it, and writes it for programs.
  - Fails when anything is wrong, when an agent of the session cannot be asked, and when there is no such session.
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
    details: The report is all that it makes.
options:
  agents:
    description:
      - The inventory names of all agents. What they said is read from the variables C(__session_verify),
        C(__session_left), C(__session_seen) and C(__session_removed) of each.
    type: list
    elements: str
    required: true
  name:
    description: The name of the session.
    type: str
    default: ""
  id:
    description: The id of the session.
    type: str
    default: ""
  path:
    description: The file to write; empty for none.
    type: path
    default: ""
"""

EXAMPLES = r"""
- name: Say whether the session is what it should be
  backendai.cluster.session_report:
    name: train-llm
    agents: "{{ groups['agents'] }}"
    path: report.json
"""

RETURN = r"""
report:
  description:
    - The report, as it is written to O(path).
    - RV(ignore:healthy) says it all; where it is V(false), RV(ignore:error) is one sentence.
    - RV(ignore:agents) says why agents of the session could not be asked, by their names.
    - RV(ignore:drift) has a difference for each thing that a repair would change. What is V(null) is not there.
    - RV(ignore:pairs) are all pairs of containers, each with itself included. V(null) is what was not tried.
    - RV(ignore:mounts) says whether all containers see the same data, and how that was found out.
  returned: success
  type: dict
  sample:
    session: {id: 5f0c6a52-3c0e-4f5e-9d0a-0f3c1d2e4b6a, name: train-llm, status: RUNNING}
    healthy: true
    error: null
    agents: {}
    drift: []
    pairs:
      - {from: main1, to: main1, name: true, tcp: null, frame: null, ssh: true, ssh_error: null, latency_ms: null}
      - {from: main1, to: sub1, name: true, tcp: true, frame: true, ssh: true, ssh_error: null, latency_ms: 0.07}
    mounts:
      - source: /mnt/data
        target: /home/work/data
        read_only: false
        compared: mark
        same: true
        apart: []
        unasked: []
        mark_stays: false
"""

# The work is done by the action plugin of the same name, on the control node.
