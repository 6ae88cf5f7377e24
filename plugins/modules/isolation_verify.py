#!/usr/bin/python
# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
module: isolation_verify
short_description: Verify that only gateways can be reached
version_added: 0.2.0
description:
  - Probes agents, their containers and gateways from untrusted hosts, and management from inside of containers. Fails
    if anything but the offered ports of gateways answers, if the firewall of a host is in report mode, if a requirement
    of RV(report.checklist) is not met, and if something could not be tried.
  - Runs once, on the control node, and asks all agents, gateways, managers and probing hosts itself, as
    M(backendai.cluster.session_info) does, with the same rules for connections. They are those of the groups C(agents),
    C(gateways) and C(managers), or of the patterns in C(agent_group), C(gateway_group) and C(manager_group).
  - A host that cannot be asked is a finding. So is one that C(--limit) hides.
  - Probing hosts need root for routes and ICMP. Addresses behind an agent, such as those of its containers, are probed
    with the agent as next hop if it is on the same segment. This adds a route for each, with protocol 186, which is
    removed at the end; those of a run that was killed are removed by the next one.
  - It takes about a minute for every five addresses, with all ports and the default of O(rate). Progress is shown on
    standard error.
extends_documentation_fragment:
  - backendai.cluster.attributes.agents
attributes:
  check_mode:
    details: Prints the probes that would be made, and makes none.
  diff_mode:
    details: No permanent changes are made.
options:
  probe_hosts:
    description: The untrusted hosts to probe from, as an inventory pattern. By default the variable
      C(firewall_probe_hosts), or else V(users).
    type: str
  ports:
    description: The TCP ports to probe, as numbers and ranges such as V(22,80,8000-9000). By default the variable
      C(firewall_probe_ports), or else V(1-65535).
    type: str
  rate:
    description: The maximum number of simultaneous connection attempts. By default the variable
      C(firewall_probe_rate), or else V(16000).
    type: int
  format:
    description: With V(table), prints RV(report) for people instead of returning it.
    type: str
    choices: [table]
  path:
    description: A file on the control node for RV(report) as JSON, in an existing folder. Only its owner can read it.
      By default the variable C(firewall_report_path), if there is one.
    type: path
seealso:
  - module: backendai.cluster.session_info
"""

EXAMPLES = r"""
- name: Close the cluster to users until it is isolated
  hosts: localhost
  gather_facts: false
  tasks:
    - name: Verify the isolation, and take what can be reached out of service
      block:
        - name: Verify the isolation
          backendai.cluster.isolation_verify:
            ports: 1-1024,2375-2377,30000-32767
          register: isolation
      rescue:
        - name: Take the agents that answer out of service
          backendai.cluster.agent_state:
            state: cordoned
            agents: "{{ isolation.report.findings | map(attribute='target') | unique | intersect(groups['agents']) }}"
            reason: it can be reached from outside
            all_confirmed: true
"""

RETURN = r"""
report:
  description: What was tried, and what came of it.
  returned: without O(format), unless in check mode or an option is not valid
  type: dict
  contains:
    ok: {type: bool, description: "Whether all was tried, and nothing is wrong."}
    probe_hosts: {type: list, elements: str, description: The hosts that were probed from.}
    findings:
      description: What answered and should not, by C(probe_host), C(target), C(address), C(protocol) and C(port).
      type: list
      elements: dict
      sample:
        - probe_host: user1
          target: agent1
          address: 192.0.2.1
          protocol: tcp
          port: 22
          ports: "22"
          state: open
          description: it accepts connections
    probed: {type: list, elements: dict, description: "Each address that was probed, with the ports and protocols."}
    expected: {type: list, elements: dict, description: "The ports that may be open, and whether they are."}
    inconclusive:
      description: What could not be tried, with the C(reason).
      type: list
      elements: dict
    not_enforced: {type: list, elements: str, description: The hosts whose firewall is in report mode.}
    checklist:
      description: The requirements of the network. RV(ignore:ok) is V(null) for one that was not checked.
      type: list
      elements: dict
      sample: [{requirement: users reach no agent, ok: true, reason: ""}]
"""
