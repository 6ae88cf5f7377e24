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
    of the agents - C(__session_verify), C(__session_marker_created), C(__session_marker_observed),
    C(__session_marker_removed) and C(__session_logs).
  - Changes nothing. Sessions that have ended and containers that have failed are reported only.
  - Control characters in logs are shown as C(\x1b) and the like. The file and the result contain the lines unchanged;
    invalid UTF-8 is replaced.
extends_documentation_fragment:
  - backendai.cluster.attributes.control
  - backendai.cluster.options.agents
  - backendai.cluster.options.queue
  - backendai.cluster.options.session
options:
  kind:
    description:
      - V(verification) reports whether a session is healthy. It fails if a check fails, if an agent of the session is
        unreachable, and if there is no such session.
      - V(logs) shows the logs of the containers of a session, in rank order. It fails if there is no such session or
        container, and, after it has shown the available logs, if an agent of these containers is unreachable.
    type: str
    choices: [verification, logs]
    required: true
  kernel:
    description: The hostname of one container of the session, such as V(sub1), for O(kind=logs); empty for all.
    type: str
    default: ""
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
  returned: with O(kind=verification)
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
logs:
  description:
    - RV(ignore:kernels) has the containers in rank order. RV(ignore:status) is the status in Docker, C(missing) if
      the agent has no such container, and C(unknown) if the agent is unreachable. RV(ignore:error) names the logs that
      could not be read, with the reason.
    - RV(ignore:agents) has the errors of unreachable agents of these containers, by name.
  returned: with O(kind=logs)
  type: dict
  sample:
    session: {id: 5f0c6a52-3c0e-4f5e-9d0a-0f3c1d2e4b6a, name: train-llm}
    kernels:
      - hostname: main1
        agent: agent2
        status: exited
        exit_code: 1
        log: ["2026-03-01T02:59:57.120395714Z CUDA out of memory"]
        apps: {jupyter: ["[I] Serving notebooks from local directory: /home/work"]}
        error: null
    agents: {}
    error: null
"""
