#!/usr/bin/python
# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
module: isolation_host
short_description: Read the addresses of a host, or probe others from it or from its containers
description:
  - "Internal: called by the playbooks of this collection."
  - With O(phase=targets), reads the addresses of an agent or a gateway, of its bridges and of its containers, and the
    ports of its tunnels. The Docker engine and the ports of the host are set by its variables that begin with C(agent_)
    or C(gateway_).
  - With O(phase=probe), probes TCP ports, UDP ports and pings of the addresses of one host concurrently, and returns
    the answers. It ends 2.5 seconds after the last attempt.
  - Addresses behind the host, such as those of its containers, are probed with the host as next hop if it is on the
    same segment. This adds a route for each, with protocol 186, which is removed at the end. Routes of a killed run are
    removed by the next one.
  - With O(phase=inside), connects to O(targets) from a container of each session on this agent, in its network
    namespace, and returns what answered. It takes a few seconds, more with many sessions; at most 64 are probed from.
  - No answer from a UDP port does not prove that no process listens there.
extends_documentation_fragment:
  - backendai.cluster.attributes
  - backendai.cluster.attributes.program
attributes:
  diff_mode:
    support: none
    details: No permanent changes are made.
requirements:
  - Docker SDK for Python (C(python3-docker)), on agents
  - iproute2
notes:
  - Needs root for routes and ICMP.
options:
  phase:
    description: Whether to read the addresses of the host, or to probe others from it or from inside of its containers.
    choices: [targets, probe, inside]
    required: true
  kind:
    description: The kind of the host. Required with O(phase=targets).
    choices: [agent, gateway]
  own:
    description:
      - The addresses of the probed host itself; those on the same segment are next hops to the ones behind it. Required
        with O(phase=probe).
    type: list
    elements: str
  targets:
    description: The addresses that no container may reach, each with its C(host), C(address) and C(port). Required with
      O(phase=inside).
    type: list
    elements: dict
  addresses:
    description: The addresses to probe, from O(own) or behind the host. Required with O(phase=probe).
    type: list
    elements: str
  ports:
    description: The TCP ports to probe, as numbers and ranges.
    default: 1-65535
  udp_ports:
    description: The UDP ports to probe.
    type: list
    elements: int
  echo:
    description: Whether to ping.
    type: bool
    default: true
  rate:
    description:
      - The maximum number of simultaneous connection attempts. The limit of open files of the host may be lower.
    type: int
    default: 16000
"""

EXAMPLES = r"""
- name: Read the addresses of a host, or probe others from it or from its containers
  backendai.cluster.isolation_host:
"""

RETURN = r"""
addresses: {type: dict, returned: with O(phase=targets),
  description: "The addresses of the host, its bridges and its containers, each with its owner."}
udp_ports: {type: list, elements: int, returned: with O(phase=targets), description: The UDP ports of tunnels.}
expected: {type: dict, returned: with O(phase=targets),
  description: "The TCP ports that may be open, each with its purpose."}
firewall_mode: {type: str, returned: with O(phase=targets),
  description: "What the firewall of the host does with what is not allowed: V(enforce), V(report) or V(off)."}
separation: {type: dict, returned: with O(phase=targets) and O(kind=agent),
  description: "Whether networks of management and compute are C(declared), the C(problems) that they are not apart, and
    whether it is C(enforced) by the firewall."}
unread: {type: str, returned: with O(phase=targets),
  description: The reason why addresses or ports are missing; empty if none are.}
answers: {type: list, elements: dict, returned: with O(phase=probe),
  description: "The ports that answered, by address, protocol and state."}
next_hops: {type: dict, returned: with O(phase=probe),
  description: The next hop to each probed address; empty on the same segment.}
missing: {type: dict, returned: with O(phase=probe),
  description: "The addresses that could not be probed, each with the reason."}
unresolved: {type: list, elements: str, returned: with O(phase=probe),
  description: The addresses that no host on the segment has.}
on_link: {type: bool, returned: with O(phase=probe), description: Whether the probed host is on the same segment.}
probes: {type: list, elements: dict, returned: with O(phase=inside),
  description: "A container of each session, and the targets that answered it."}
skipped: {type: int, returned: with O(phase=inside), description: How many more sessions there are.}
"""
