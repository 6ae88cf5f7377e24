#!/usr/bin/python
# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
module: isolation_verification
short_description: Validate, plan and report an isolation check
description:
  - "Internal: called by the playbooks of this collection."
  - With O(state=validated), validates the options of C(verify_isolation) before any host is contacted, and fails with
    one message for each problem.
  - With O(state=planned), divides the results of M(backendai.cluster.isolation_host) on agents and gateways into
    batches of about one minute at most, and lists the addresses that no container may reach. For unreachable hosts, the
    addresses of the inventory are used, with a warning.
  - With O(state=reported), combines the results of M(backendai.cluster.isolation_host) on all probing hosts and in
    containers into one report with a checklist, shows it, and writes it as JSON. It fails if an agent, its bridges or
    its containers answer, if unexpected ports of a gateway are open, if a container reaches the SSH port of a host, if
    the firewall of a host is in report mode, if a requirement of the checklist is not met, and if a probe could not be
    made. In check mode nothing is probed; the planned probes are shown.
  - With O(state=folders_planned), returns the folders of the policies of all managers, and the users who have sessions.
    With O(state=folders_reported), warns of what M(backendai.cluster.policy_folders) has found.
extends_documentation_fragment:
  - backendai.cluster.attributes.control
options:
  state:
    description: The step of the check.
    choices: [validated, planned, reported, folders_planned, folders_reported]
    required: true
  agents:
    description:
      - The inventory names of all agents. With O(state=planned), their results are read from the variable
        C(__isolation_targets) of each.
    type: list
    elements: str
  gateways:
    description: The inventory names of all gateways; their results are read in the same way.
    type: list
    elements: str
  ports:
    description: The TCP ports to probe, as numbers and ranges.
    default: 1-65535
  rate:
    description: The maximum number of simultaneous connection attempts.
    type: int
    default: 16000
  pattern:
    description: The inventory pattern of the probing hosts, for messages. Required with O(state=validated).
  probe_hosts:
    description:
      - The inventory names of the probing hosts. With O(state=reported), their results are read from the variable
        C(__isolation_probe) of each.
    type: list
    elements: str
  managers:
    description: The inventory names of all managers. Required with O(state=validated) and O(state=planned).
    type: list
    elements: str
  targets:
    description: The probed hosts, as O(state=planned) returned them.
    type: list
    elements: dict
  batches:
    description: The batches of probes, as O(state=planned) returned them.
    type: list
    elements: dict
  inside:
    description: The probes from inside of containers, as O(state=planned) returned them. With O(state=reported), their
      results are read from the variable C(__isolation_inside) of each agent.
    type: dict
  folders:
    description: The result of O(state=folders_planned). Required with O(state=reported) and O(state=folders_reported).
    type: dict
  path:
    description: The file for the report; empty for none. Its folder is checked with O(state=validated).
    type: path
"""

EXAMPLES = r"""
- name: Validate, plan and report an isolation check
  backendai.cluster.isolation_verification:
"""

RETURN = r"""
to_read: {type: list, elements: str, returned: with O(state=validated),
  description: The hosts to read the addresses of.}
targets: {type: list, elements: dict, returned: with O(state=planned), description: The hosts to probe.}
batches: {type: list, elements: dict, returned: with O(state=planned), description: The batches of probes.}
inside: {type: dict, returned: with O(state=planned),
  description: "The C(targets) of probes from inside of containers, and the reasons why others are C(unprobed)."}
report: {type: dict, returned: with O(state=reported), description: "The report, as in the file."}
"""
