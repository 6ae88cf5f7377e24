#!/usr/bin/python
# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
module: session_report
short_description: Report on sessions, from what agents and the queue say
version_added: 0.1.0
description:
  - Shows a report to people and writes it for programs. What agents replied to M(backendai.cluster.session_agent) is
    read from their variables - C(__session_agent), C(__session_verify), C(__session_marker_written), C(__session_marker_observed),
    C(__session_marker_removed) and C(__session_logs).
  - Nothing is changed. What is due about sessions - one has ended, or containers have died - is said, and not done.
  - For people, control characters in logs are shown as C(\x1b) and the like. The file and the result have lines as they
    were printed; what is not UTF-8 is replaced.
extends_documentation_fragment:
  - backendai.cluster.attributes.control
  - backendai.cluster.options.agents
  - backendai.cluster.options.queue
  - backendai.cluster.options.session
options:
  kind:
    description:
      - V(sessions) lists the sessions that agents hold and those of the queue.
      - V(verification) says whether a session is as it should be. It fails when anything is wrong, when an agent of the
        session cannot be asked, and when there is no such session.
      - V(logs) shows what the containers of a session printed, in rank order. It fails when there is no such session or
        container, and when an agent of theirs cannot be asked - after all that is known was shown.
    type: str
    choices: [sessions, verification, logs]
    required: true
  kernel:
    description: The hostname of one container of the session, such as V(sub1), for O(kind=logs); empty for all.
    type: str
    default: ""
  history:
    description: Whether to list sessions that have ended, too.
    type: bool
    default: false
  path:
    description: The file to write; empty for none.
    type: path
    default: ""
"""

EXAMPLES = r"""
- name: List the sessions
  backendai.cluster.session_report:
    kind: sessions
    agents: "{{ groups['agents'] }}"

- name: Report whether the session is as it should be
  backendai.cluster.session_report:
    kind: verification
    name: train-llm
    agents: "{{ groups['agents'] }}"
    path: report.json
"""

RETURN = r"""
sessions:
  description: The records of all sessions.
  returned: with O(kind=sessions)
  type: list
  elements: dict
report:
  description:
    - RV(ignore:healthy) says it all; where it is V(false), RV(ignore:error) is one sentence.
    - RV(ignore:agents) says why agents of the session could not be asked, by their names.
    - RV(ignore:drift) has a difference for each thing that a repair would change. What is V(null) is not there.
    - RV(ignore:pairs) are all pairs of containers, each with itself included. V(null) is what was not tried.
    - RV(ignore:mounts) says whether all containers see the same data, and how that was found out.
  returned: with O(kind=verification)
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
        differing: []
        unknown: []
        marker_left: false
logs:
  description:
    - RV(ignore:kernels) has the containers in rank order. RV(ignore:status) is what the engine says, C(missing) where
      the agent has no such container, and C(unknown) where it cannot be asked. RV(ignore:error) says which logs could
      not be read, and why.
    - RV(ignore:agents) says why agents of these containers could not be asked, by their names.
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
