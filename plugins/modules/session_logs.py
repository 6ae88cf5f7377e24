#!/usr/bin/python
# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
module: session_logs
short_description: Return what the containers of a session have printed
version_added: 0.2.0
description:
  - Returns the last lines of the logs of the containers of a session and of their apps, in rank order. Changes nothing.
    Sessions that have ended have logs as long as their agents keep them.
  - Fails if there is no such session or container, and, with all that could be read, if an agent of these containers
    cannot be asked.
  - Runs once, on the control node, and asks all agents itself, as many at a time as C(forks) says. Put it into a play
    with C(hosts=localhost), or set C(run_once=true). In a play with several hosts it is refused without that.
  - Each agent is reached as a task on it would be, as with M(backendai.cluster.session_info).
extends_documentation_fragment:
  - backendai.cluster.attributes.agents
  - backendai.cluster.options.look
options:
  kernel:
    description: The hostname of one container of the session, such as V(sub1); empty for all. By default the variable
      C(session_kernel).
    type: str
  lines:
    description: The number of lines of each log, of at most 1 MiB; 1 to 100000. By default the variable
      C(session_logs_lines), else V(100).
    type: int
  follow:
    description:
      - Whether to then show what the containers print, as they print it, until the session ends or the run is
        interrupted. Each line begins with the hostname of its container.
      - An agent that does not answer any more is left, and the task fails when the others have come to their end.
      - By default the variable C(session_logs_follow), else V(false).
    type: bool
  format:
    description: Shows the logs for people, as V(text), instead of returning them. Control characters are shown as
      C(\x1b) and the like.
    type: str
    choices: [text]
  path:
    description: A file on the control node for the logs as JSON, with the lines as they were printed; invalid UTF-8 is
      replaced. Only its owner can read it. By default the variable C(session_logs_path), else none is written.
    type: path
"""

EXAMPLES = r"""
- name: Find out why a job has failed
  hosts: localhost
  gather_facts: false
  tasks:
    - name: Read the end of the log of main1
      backendai.cluster.session_logs:
        name: train-llm
        kernel: main1
        lines: 20
      register: printed

    - name: Fail if it ran out of memory
      ansible.builtin.assert:
        that: printed.kernels[0].log | select('search', 'out of memory') | length == 0
        fail_msg: "{{ printed.kernels[0].log | last }}"

- name: Watch a session until it ends
  hosts: agents
  gather_facts: false
  tasks:
    - name: Show its logs, and what it prints
      backendai.cluster.session_logs:
        name: train-llm
        format: text
        follow: true
      run_once: true
"""

RETURN = r"""
session:
  description: The session; its name is V(null) if it has no record on this control node.
  returned: without O(format)
  type: dict
  sample: {id: 5f0c6a52-3c0e-4f5e-9d0a-0f3c1d2e4b6a, name: train-llm}
kernels:
  description: Its containers, in rank order; those of O(kernel) only, if that is given.
  returned: without O(format)
  type: list
  elements: dict
  contains:
    hostname: {type: str, description: The hostname of the container.}
    agent: {type: str, description: The inventory name of its agent.}
    status:
      description: The status in the engine, V(missing) if the agent has no such container, V(unknown) if the agent
        cannot be asked.
      type: str
    exit_code: {type: int, description: The exit code of one that has exited.}
    log: {type: list, elements: str, description: "The lines of its log, each with the time at its beginning."}
    apps: {type: dict, description: "The lines of the logs of its apps, by their names."}
    error: {type: str, description: "The logs that could not be read, with the reason; V(null) if all were."}
  sample:
    - hostname: main1
      agent: agent2
      status: exited
      exit_code: 1
      log: ["2026-03-01T02:59:57.120395714Z CUDA out of memory"]
      apps: {jupyter: ["[I] Serving notebooks from local directory: /home/work"]}
      error: null
unavailable:
  description: The agents of these containers that could not be asked, by name, as of
    M(backendai.cluster.session_info).
  returned: unless the request was refused
  type: dict
refused:
  description: Whether an option is not valid, so that no agent was asked.
  returned: if it is so
  type: bool
"""
