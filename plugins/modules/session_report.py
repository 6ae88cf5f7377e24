#!/usr/bin/python
# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
module: session_report
short_description: Report on sessions from the results of agents and the queue
version_added: 0.1.0
description:
  - Shows a report and writes it as JSON. The results of M(backendai.cluster.session_agent) are read from the variables
    of the agents - C(__session_agent), C(__session_verify), C(__session_marker_created), C(__session_marker_observed)
    and C(__session_marker_removed).
  - Changes nothing. Sessions that have ended and containers that have failed are reported only.
extends_documentation_fragment:
  - backendai.cluster.attributes.control
  - backendai.cluster.options.agents
  - backendai.cluster.options.queue
  - backendai.cluster.options.session
options:
  kind:
    description:
      - V(agents) lists the agents - which take new sessions, what is free on them, and the largest sessions that would
        start now.
      - V(verification) reports whether a session is healthy. It fails if a check fails, if an agent of the session is
        unreachable, and if there is no such session.
    type: str
    choices: [agents, verification]
    required: true
  path:
    description: The file to write; empty for none.
    type: path
    default: ""
"""

EXAMPLES = r"""
- name: Report whether the session is healthy
  backendai.cluster.session_report:
    kind: verification
    name: train-llm
    agents: "{{ groups['agents'] }}"
    path: report.json
"""

RETURN = r"""
report:
  description:
    - RV(ignore:healthy) is the overall result; if it is V(false), RV(ignore:error) contains the reason.
    - RV(ignore:agents) has the errors of unreachable agents of the session, by name.
    - RV(ignore:drift) lists the differences that a repair would change. V(null) stands for a missing object.
    - RV(ignore:pairs) are all pairs of containers, including each with itself. V(null) stands for a check not made.
    - RV(ignore:mounts) reports whether all containers see the same data, and how it was compared.
    - With O(kind=agents), RV(ignore:agents) has a row for each agent, RV(ignore:groups) one for each resource group,
      with the largest sessions that would start now.
  returned: with O(kind=verification) or O(kind=agents)
  type: dict
  sample:
    session: {id: 5f0c6a52-3c0e-4f5e-9d0a-0f3c1d2e4b6a, name: train-llm, status: RUNNING}
    healthy: true
    error: null
    agents: {}
    drift: []
    pairs:
      - {from: main1, to: main1, name: true, tcp: null, frame: null, ssh: true, ssh_error: null}
      - {from: main1, to: sub1, name: true, tcp: true, frame: true, ssh: true, ssh_error: null}
    mounts:
      - source: /mnt/data
        target: /home/work/data
        read_only: false
        compared: marker
        same: true
        differing: []
        unknown: []
        marker_left: false
"""
